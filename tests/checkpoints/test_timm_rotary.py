"""What the config.json of timm's Eva says of rotary positions is honoured."""

import keras
import numpy as np
import pytest
from timm_models import built, config_of, write

from keras_vit.checkpoints import load_checkpoint

torch = pytest.importorskip("torch")

NAME = "eva02_base_patch16_clip_224"
SIZE = (48, 64)
ROPES = {
    "other pairs and order": {
        **{"use_rot_pos_emb": True, "rope_type": "cat"},
        **{"rope_grid_indexing": "xy", "rope_rotate_half": True},
    },
    "centered": {
        **{"use_rot_pos_emb": True, "rope_type": "dinov3"},
        "rope_temperature": 50.0,
    },
    "none": {"use_rot_pos_emb": False},
    "norms after": {"use_post_norm": True, "use_rot_pos_emb": True},
}


@pytest.mark.parametrize("kind", ROPES)
def test_arguments_of_the_config_are_honoured(kind, tmp_path):
    model = built(NAME, img_size=SIZE, **ROPES[kind])
    config = config_of(model, NAME, **ROPES[kind])
    ours = load_checkpoint(write(model, tmp_path, config=config))
    images = np.random.default_rng(1).uniform(-1, 1, (2, *SIZE, 3))
    images = images.astype("float32")
    with torch.no_grad():
        wanted = model(torch.tensor(np.moveaxis(images, -1, 1))).numpy()
    found = keras.ops.convert_to_numpy(ours(images))
    scale = max(1, np.abs(wanted).max())
    np.testing.assert_allclose(found, wanted, rtol=0, atol=5e-5 * scale)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"use_rot_pos_emb": True, "rope_type": "mrope"},
            "rope='mrope'.*'cat', 'dinov3', 'mixed'",
        ),
        (
            {"use_rot_pos_emb": True, "rope_grid_indexing": 1},
            "rope_axes=1",
        ),
        ({"rope_type": "dinov3"}, "with rope_type alone"),
    ],
)
def test_other_words_are_refused(arguments, message, tmp_path):
    model = built(NAME, img_size=SIZE)
    config = config_of(model, NAME, **arguments)
    with pytest.raises(ValueError, match=message):
        load_checkpoint(write(model, tmp_path, config=config))
