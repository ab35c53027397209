"""What an image of a size takes at least."""

import dataclasses

import pytest

from keras_vit.models import ViTConfig
from keras_vit.prediction import networks

CONFIG = ViTConfig(
    **{"image_size": 40, "patch_size": 4, "hidden_dim": 8, "num_heads": 2},
    **{"num_layers": 2, "mlp_dim": 8, "class_token": False},
    **{"pooling": "mean", "window_size": 5},
)


@pytest.fixture(autouse=True)
def ten_megabytes(monkeypatch):
    monkeypatch.setattr(
        networks.machine, "available_memory", lambda: 10_000_000
    )
    monkeypatch.setattr(networks, "_keeps_attention", lambda: True)


def test_windows_keep_the_attention_of_their_own_pairs():
    """2,500 tokens: pairs with 25 take 0.5 MB, pairs with all 50 MB."""
    assert networks.check_image_size(vars(CONFIG), 200) == (200, 200)


@pytest.mark.parametrize(
    "changes", [{"global_attention_blocks": (1,)}, {"window_size": 0}]
)
def test_a_block_of_all_patches_keeps_that_of_all_pairs(changes):
    fields = vars(dataclasses.replace(CONFIG, **changes))
    with pytest.raises(ValueError, match="takes 0.1 GB for one at least"):
        networks.check_image_size(fields, 200)
