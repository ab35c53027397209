"""Weights of the catalogue that came after the paper, against timm."""

import keras
import numpy as np
import pytest
from timm_models import built, config_of, write
from timm_stub import import_timm

from keras_vit.checkpoints import load_checkpoint
from keras_vit.checkpoints.dialects import timm as timm_dialect
from keras_vit.checkpoints.public import catalog, fetch
from keras_vit.sizes import VIT

MODERN = [entry for entry in catalog.entries() if entry.architecture]


@pytest.mark.parametrize("entry", MODERN, ids=lambda x: x.key)
def test_the_catalogue_is_what_timm_says(entry):
    (alias,) = entry.aliases
    config = import_timm().get_pretrained_cfg(alias.removeprefix("timm/"))
    how = entry.preprocessing
    assert entry.url == f"{catalog.HUB}/{config.hf_hub_id}"
    assert entry.image_size == config.input_size[1]
    assert entry.classes == config.num_classes
    assert entry.licence.lower() == config.license.lower()
    assert how.interpolation == config.interpolation
    assert how.crop_fraction == config.crop_pct
    assert (how.mean or (0.5,) * 3) == tuple(config.mean)
    assert (how.std or (0.5,) * 3) == tuple(config.std)


@pytest.mark.parametrize("entry", MODERN, ids=lambda x: x.key)
def test_architecture_is_one_that_loads(entry):
    found = timm_dialect.find(entry.architecture)
    assert found is not None
    assert found.kind == timm_dialect.PLAIN
    assert found.width == VIT[entry.model]["hidden_dim"]
    assert found.num_heads == VIT[entry.model]["num_heads"]


@pytest.mark.slow
@pytest.mark.parametrize("entry", MODERN, ids=lambda x: x.key)
def test_sizes_are_those_of_the_application(entry):
    import torch

    with torch.device("meta"):
        model = import_timm().create_model(entry.architecture)
    block, sizes = model.blocks[0], VIT[entry.model]
    assert len(model.blocks) == sizes["num_layers"]
    assert block.mlp.fc2.weight.shape[1] == sizes["mlp_dim"]
    assert tuple(model.patch_embed.patch_size) == sizes["patch_size"]


def test_licences_that_are_not_free_are_named():
    licences = {entry.name: entry.licence for entry in MODERN}
    assert licences["dinov2"] == "Apache-2.0"
    assert licences["dinov3"] == "dinov3-license"
    assert licences["mae"] == "CC-BY-NC-4.0"


def test_the_catalogue_tells_the_architecture(tmp_path, monkeypatch):
    """One repository of timm serves CLIP with either activation."""
    name = "vit_base_patch16_clip_224"
    model = built(name)
    write(model, tmp_path, config=config_of(model, name))
    monkeypatch.setattr(fetch, "_fetch_address", lambda *_, **__: str(tmp_path))
    found = load_checkpoint("ViT_B16/clip_openai")
    assert found.config.activation == "quick_gelu"
    assert load_checkpoint("ViT_B16/clip_laion2b").config.activation == "gelu"
    image = np.zeros((1, 64, 64, 3), "float32")
    outputs = keras.ops.convert_to_numpy(found(image))
    again = load_checkpoint(
        tmp_path, architecture="vit_base_patch16_clip_quickgelu_224"
    )
    np.testing.assert_array_equal(
        outputs, keras.ops.convert_to_numpy(again(image))
    )
