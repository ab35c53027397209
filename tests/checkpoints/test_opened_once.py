"""A file is opened once, one model is built, and `read_info` reads no array."""

import dataclasses
import json
import sys
import zipfile

import keras
import numpy as np
import pytest
import variant_models
from reference_cases import path_of
from tiny_models import SMALLEST

from keras_vit.checkpoints import load_checkpoint, load_weights, read_info
from keras_vit.checkpoints.engine import loading
from keras_vit.checkpoints.files.tensors import TensorFile
from keras_vit.models import VisionTransformer, ViTConfig

FILES = ["npz", "safetensors", "keras"]
VARIANTS = {
    "2d": {"position": "2d", "position_at": "every_layer"},
    "relative": {"position": "relative", "position_at": "every_layer"},
    "1d": {"position": "1d", "position_at": "every_layer"},
    "none": {"position": "none"},
    "axial": {"attention": "axial", "mlp": "local"},
}
SMALL = ViTConfig(**{**SMALLEST, "num_classes": 0})


@pytest.fixture
def path(request, tmp_path):
    if request.param == "keras":
        load_checkpoint(path_of("vit_tiny_google")).save(tmp_path / "m.keras")
        return tmp_path / "m.keras"
    names = {"npz": "vit_tiny_google", "safetensors": "hf_vit_tiny"}
    return path_of(names[request.param])


@pytest.fixture
def counts(monkeypatch):
    """How often a file was recognised, a model built and an array read."""
    counted = {"recognised": 0, "models": 0, "arrays": 0}

    def counting(holder, name, key):
        original = getattr(holder, name)

        def call(*args, **kwargs):
            counted[key] += 1
            return original(*args, **kwargs)

        monkeypatch.setattr(holder, name, call)

    counting(loading, "recognise", "recognised")
    counting(loading, "open_keras", "recognised")
    # Keras calls it once more for the first model of a class.
    VisionTransformer(SMALL)
    variant_models.model()
    counting(keras.Model, "__init__", "models")
    counting(TensorFile, "read", "arrays")
    return counted


each_file = pytest.mark.parametrize("path", FILES, indirect=True)


@each_file
def test_one_model_is_built_and_each_array_is_read_once(path, counts):
    model = load_checkpoint(path)
    stored = len(read_info(path).shapes)
    assert counts == {"recognised": 2, "models": 1, "arrays": stored}
    assert len(model.load_report.loaded) == len(model.weights)


@each_file
def test_an_opened_source_is_handed_on(path, counts):
    source = loading.open_source(path)
    assert loading.open_source(source) is source
    assert read_info(source).num_parameters == read_info(path).num_parameters
    model = load_checkpoint(source, classes=3)
    load_weights(model, source)
    assert model.output_shape == (None, 3)
    assert counts["recognised"] == 2
    assert counts["models"] == 1


@each_file
def test_info_reads_names_and_shapes_only(path, counts):
    info = read_info(path)
    assert info.num_parameters > 1000
    assert counts == {"recognised": 1, "models": 0, "arrays": 0}


def test_info_of_damaged_numbers(tmp_path):
    path = tmp_path / "damaged.npz"
    path.write_bytes(path_of("vit_tiny_google").read_bytes())
    with zipfile.ZipFile(path) as archive:
        largest = max(archive.infolist(), key=lambda x: x.compress_size)
    data = bytearray(path.read_bytes())
    data[largest.header_offset + largest.compress_size // 2] ^= 0xFF
    path.write_bytes(data)
    assert read_info(path).fields["num_layers"] == 2
    with pytest.raises(ValueError, match=r"damaged\.npz"):
        load_checkpoint(path)


def lines_of_loading(num_layers, folder):
    """How many lines of loading.py run for a model of so many blocks."""
    config = dataclasses.replace(SMALL, num_layers=num_layers)
    path = folder / f"{num_layers}.keras"
    VisionTransformer(config).save(path)
    count = 0

    def trace(frame, event, _):
        nonlocal count
        if frame.f_code.co_filename != loading.__file__:
            return None
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        load_checkpoint(path)
    finally:
        sys.settrace(before)
    return count


def test_work_is_linear_in_the_number_of_weights(tmp_path):
    two, four, eight = (lines_of_loading(n, tmp_path) for n in (2, 4, 8))
    assert eight - four == 2 * (four - two) > 0


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_keras_file_of_a_variant_is_that_model(variant, tmp_path, counts):
    network = variant_models.model(VARIANTS[variant])
    network.save(tmp_path / "m.keras")
    assert read_info(tmp_path / "m.keras").shapes == {
        weight.path: tuple(weight.shape) for weight in network.weights
    }
    counts["models"] = 0
    loaded = load_checkpoint(tmp_path / "m.keras")
    assert counts["models"] == 1
    for one, two in zip(network.weights, loaded.weights, strict=True):
        np.testing.assert_array_equal(one, two, err_msg=one.path)


def test_a_bfloat16_model_is_read(tmp_path):
    network = VisionTransformer(SMALL, dtype="bfloat16")
    network.save(tmp_path / "m.keras")
    loaded = load_checkpoint(tmp_path / "m.keras")
    for one, two in zip(network.weights, loaded.weights, strict=True):
        one, two = (
            keras.ops.convert_to_numpy(x).astype("float32") for x in (one, two)
        )
        np.testing.assert_array_equal(one, two)


def test_a_model_with_layer_scale_is_read(tmp_path):
    config = dataclasses.replace(SMALL, layer_scale_init=0.5)
    network = VisionTransformer(config)
    network.save(tmp_path / "m.keras")
    assert read_info(tmp_path / "m.keras").fields["layer_scale_init"] == 0.5
    loaded = load_checkpoint(tmp_path / "m.keras")
    for one, two in zip(network.weights, loaded.weights, strict=True):
        np.testing.assert_array_equal(one, two, err_msg=one.path)


@pytest.mark.parametrize("mode", ["int8", "int4", "float8"])
def test_a_quantised_model_is_refused(mode, tmp_path):
    network = VisionTransformer(SMALL)
    network.quantize(mode)
    network.save(tmp_path / "m.keras")
    for use in (load_checkpoint, read_info):
        with pytest.raises(ValueError, match=r"m\.keras.*is quantised"):
            use(tmp_path / "m.keras")


def test_a_model_of_a_policy_of_floats_is_read(tmp_path):
    policy = keras.dtype_policies.FloatDTypePolicy("mixed_bfloat16")
    network = VisionTransformer(SMALL, dtype=policy)
    network.save(tmp_path / "m.keras")
    loaded = load_checkpoint(tmp_path / "m.keras")
    for one, two in zip(network.weights, loaded.weights, strict=True):
        np.testing.assert_array_equal(one, two, err_msg=one.path)


def test_tables_of_another_grid_than_the_configs_are_refused(tmp_path):
    variant_models.model(VARIANTS["2d"]).save(tmp_path / "good.keras")
    with (
        zipfile.ZipFile(tmp_path / "good.keras") as good,
        zipfile.ZipFile(tmp_path / "bad.keras", "w") as bad,
    ):
        for name in good.namelist():
            data = good.read(name)
            if name == "config.json":
                content = json.loads(data)
                content["config"]["config"]["image_size"] = [16, 12]
                data = json.dumps(content)
            bad.writestr(name, data)
    with pytest.raises(ValueError, match=r"bad\.keras.*\(4, 3\) patches"):
        load_checkpoint(tmp_path / "bad.keras")
