"""Folders that Keras writes unzipped, as `model.save("hf://...")` does."""

import json
import sys
import types

import keras
import numpy as np
import pytest

from keras_vit.checkpoints import load_checkpoint, load_weights, read_info
from keras_vit.models import Mixer, VisionTransformer
from keras_vit.variants import VariantTransformer

SIZES = {
    "image_size": 8,
    "patch_size": 4,
    "num_layers": 1,
    "hidden_dim": 8,
    "num_classes": 3,
}
VIT = {**SIZES, "mlp_dim": 16, "num_heads": 2}
MODELS = {
    "vit": (VisionTransformer, {**VIT, "pooling": "map"}),
    "mixer": (Mixer, {**SIZES, "tokens_mlp_dim": 4, "channels_mlp_dim": 8}),
    "variant": (
        VariantTransformer,
        {**VIT, "variant": {"mlp": "local"}},
    ),
}
IMAGES = np.random.default_rng(0).uniform(-1, 1, (2, 8, 8, 3)).astype("float32")


def build(kind):
    family, fields = MODELS[kind]
    model = family(family.config_class(**fields))
    random = np.random.default_rng(1)
    for weight in model.weights:
        weight.assign(random.normal(0, 0.3, weight.shape))
    return model


def output(model):
    return keras.ops.convert_to_numpy(model(IMAGES))


@pytest.fixture(params=MODELS)
def folder(request, tmp_path):
    keras.saving.save_model(
        build(request.param), tmp_path / "saved", zipped=False
    )
    (tmp_path / "saved" / "README.md").write_text("# A card\n")
    return tmp_path / "saved"


def test_it_is_the_model_that_keras_loads(folder):
    expected = output(keras.saving.load_model(folder))
    np.testing.assert_array_equal(output(load_checkpoint(folder)), expected)


def test_its_weights_fill_a_model(folder):
    expected = keras.saving.load_model(folder)
    model = type(expected)(expected.config)
    load_weights(model, folder)
    np.testing.assert_array_equal(output(model), output(expected))


@pytest.fixture
def saved(tmp_path):
    keras.saving.save_model(build("vit"), tmp_path / "saved", zipped=False)
    return tmp_path / "saved"


def test_its_info_names_the_tensors(saved):
    info = read_info(saved)
    assert info.shapes["predictions/kernel"] == (8, 3)


def test_weights_of_another_size_than_its_config_are_refused(saved):
    config = json.loads((saved / "config.json").read_text())
    config["config"]["config"]["hidden_dim"] = 10**6
    (saved / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match="saved"):
        load_checkpoint(saved)


def test_damaged_weights_are_refused(saved):
    weights = saved / "model.weights.h5"
    weights.write_bytes(weights.read_bytes()[:-900])
    with pytest.raises(ValueError, match="saved.*cannot be read"):
        load_checkpoint(saved)


def test_an_oversized_config_is_refused(saved):
    (saved / "config.json").write_bytes(b" " * (2**20 + 1) + b"{}")
    with pytest.raises(ValueError, match="config.json"):
        load_checkpoint(saved)


def test_it_is_read_from_the_hub(saved, monkeypatch):
    asked = {}

    def snapshot_download(name, *, allow_patterns, **options):
        asked[name] = allow_patterns
        return str(saved)

    module = types.SimpleNamespace(snapshot_download=snapshot_download)
    monkeypatch.setitem(sys.modules, "huggingface_hub", module)
    expected = output(keras.saving.load_model(saved))
    found = load_checkpoint("hf://user/name")
    np.testing.assert_array_equal(output(found), expected)
    assert "*.weights.h5" in asked["user/name"]


def test_a_keras_file_is_read_from_the_hub(tmp_path, monkeypatch):
    (tmp_path / "snapshot").mkdir()
    model = build("vit")
    model.save(tmp_path / "snapshot" / "model.keras")
    module = types.SimpleNamespace(
        snapshot_download=lambda *_, **options: (
            str(tmp_path / "snapshot")
            if "model.keras" in options["allow_patterns"]
            else None
        )
    )
    monkeypatch.setitem(sys.modules, "huggingface_hub", module)
    found = load_checkpoint("hf://user/name")
    np.testing.assert_array_equal(output(found), output(model))
