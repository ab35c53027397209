"""Presets of keras-hub: encoders alone, tasks, pixels, and what is refused.

`test_reference.py` has the outputs of the whole presets.
"""

import json
import shutil

import h5py
import keras
import numpy as np
import pytest
from reference_cases import TOLERANCE, expected, load, outputs, path_of

from keras_vit.checkpoints import load_checkpoint, read_info
from keras_vit.checkpoints.dialects import keras_hub
from keras_vit.data.config import evaluation_of
from keras_vit.data.resizing import Geometry, evaluation_crop
from keras_vit.preprocessing import standardize
from keras_vit.text import load_image_text

PAIRS = ("hub_clip_tiny", "hub_metaclip_2_tiny", "hub_siglip_tiny")


def refusal(folder):
    with pytest.raises(ValueError) as error:
        load_checkpoint(folder)
    return str(error.value)


def copied(name, folder, **changes):
    """The preset of a case, with other fields of its encoder's config."""
    folder = shutil.copytree(path_of(name), folder / name)
    return changed(folder / "config.json", **changes).parent


def changed(path, **changes):
    content = json.loads(path.read_text())
    config = content["config"]
    config.get("vision_encoder", content)["config"] |= changes
    path.write_text(json.dumps(content))
    return path


def edited(folder, edit, file="model.weights.h5"):
    """The folder after its arrays were changed, a dict from names."""
    arrays = {}

    def keep(name, item):
        if isinstance(item, h5py.Dataset):
            arrays[name] = item[()]

    with h5py.File(folder / file) as h5:
        h5.visititems(keep)
    (folder / file).unlink()
    write(folder / file, edit(arrays))
    return folder


def write(path, arrays):
    with h5py.File(path, "w") as h5:
        for name, array in arrays.items():
            h5[name] = array


def alone(name, folder):
    """The preset of the image encoder of a model of images and texts."""
    folder = copied(name, folder)
    path = folder / "config.json"
    config = json.loads(path.read_text())["config"]
    path.write_text(json.dumps(config["vision_encoder"]))

    def inside(arrays):
        split = {x.partition("_vision_encoder/"): y for x, y in arrays.items()}
        return {inner: y for (_, found, inner), y in split.items() if found}

    return edited(folder, inside)


@pytest.mark.parametrize("name", ["hub_clip_tiny", "hub_siglip_tiny"])
def test_the_encoder_of_images_alone(name, tmp_path):
    model = load_checkpoint(alone(name, tmp_path))
    assert model.config.num_classes == 0
    wanted = expected(name)
    found = outputs(model, wanted["image"])
    for key in ("encoded", "pre_logits"):
        np.testing.assert_allclose(found[key], wanted[key], **TOLERANCE)


@pytest.mark.parametrize("name", PAIRS)
def test_both_towers_give_what_keras_hub_gives(name):
    """But for the last norm of CLIP's texts, whose epsilon is its own."""
    pair = load_image_text(path_of(name))
    wanted = expected(name)
    ids = wanted["token_ids"]
    for found, key in (
        (pair.text_tower(ids), "texts"),
        (pair.logits(wanted["image"], ids), "logits_per_image"),
    ):
        found = keras.ops.convert_to_numpy(found)
        np.testing.assert_allclose(found, wanted[key], atol=2e-5, err_msg=key)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"vocabulary_size": 13}, "vocabulary_size=12 by its tensors of texts"),
        ({"gated": True}, "has gated, which"),
        ({"num_heads": "two"}, "num_heads"),
    ],
)
def test_texts_of_another_config_are_refused(tmp_path, changes, message):
    folder = shutil.copytree(path_of("hub_clip_tiny"), tmp_path / "preset")
    content = json.loads((folder / "config.json").read_text())
    content["config"]["text_encoder"]["config"] |= changes
    (folder / "config.json").write_text(json.dumps(content))
    with pytest.raises(ValueError, match=message):
        load_image_text(folder)


def test_a_preset_without_texts_is_no_pair():
    with pytest.raises(ValueError, match="no known format"):
        load_image_text(path_of("hub_vit_tiny"))


def test_the_norm_of_metaclip_is_outside_of_its_encoder(tmp_path):
    name = "hub_metaclip_2_tiny"
    model = load_checkpoint(alone(name, tmp_path), pooling="none")
    assert not model.config.final_norm
    norm = load(name).get_layer("encoder_norm")
    wanted = expected(name)
    tokens = keras.ops.convert_to_numpy(norm(model(wanted["image"])))
    np.testing.assert_allclose(tokens, wanted["encoded"], **TOLERANCE)


@pytest.mark.parametrize("name", ["hub_vit_tiny", "hub_deit_tiny"])
def test_pixels_are_scaled_as_the_converter_of_images_does(name):
    model = load(name, include_preprocessing=True)
    assert model.config.pixel_mean == (0.485, 0.456, 0.406)
    assert model.config.pixel_std == (0.229, 0.224, 0.225)
    wanted = expected(name)
    found = keras.ops.convert_to_numpy(model(wanted["pixels"]))
    np.testing.assert_allclose(found, wanted["pixel_logits"], **TOLERANCE)


def test_pixels_are_scaled_as_the_preprocessor_says(tmp_path):
    folder = copied("hub_deit_tiny", tmp_path)
    (folder / "image_converter.json").unlink()
    config = load_checkpoint(folder).config
    assert config.pixel_std == (0.229, 0.224, 0.225)


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        ({"scale": 1 / 127.5, "offset": -1}, (None, None)),
        ({"scale": 1 / 255, "offset": None}, ((0.0,) * 3, (1.0,) * 3)),
    ],
)
def test_one_scale_is_that_of_all_channels(changes, wanted, tmp_path):
    folder = copied("hub_deit_tiny", tmp_path)
    changed(folder / "image_converter.json", **changes)
    config = load_checkpoint(folder).config
    assert (config.pixel_mean, config.pixel_std) == wanted


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"variance": [0.1] * 3}, "has variance, which"),
        ({"scale": [1, 2, 0]}, r"has scale=\[1, 2, 0\]"),
        ({"scale": "1"}, "has scale="),
        ({"offset": [0.0]}, "has scale=.* and offset="),
        ({"offset": 1}, "has mean="),
    ],
)
def test_another_converter_of_images_is_refused(changes, words, tmp_path):
    folder = copied("hub_deit_tiny", tmp_path)
    changed(folder / "image_converter.json", **changes)
    with pytest.raises(ValueError, match=words):
        load_checkpoint(folder)


POLICY = {"class_name": "QuantizedDTypePolicy", "config": {"name": "int8"}}


@pytest.mark.parametrize(
    ("name", "changes", "words"),
    [
        ("hub_vit_tiny", {"use_mha_bias": False}, "use_mha_bias=False"),
        ("hub_vit_tiny", {"use_patch_bias": False}, "use_patch_bias=False"),
        ("hub_vit_tiny", {"image_shape": [3, 32, 32]}, r"image_size=\(3, 32\)"),
        ("hub_dinov3_tiny", {"image_shape": [8, 16, 1]}, "has channels=3 by"),
        ("hub_deit_tiny", {"use_mha_bias": False}, "use_mha_bias=False"),
        ("hub_deit_tiny", {"num_heads": 4}, "num_heads|heads"),
        ("hub_deit_tiny", {"intermediate_dim": 64}, "mlp_dim=32 by its"),
        ("hub_deit_tiny", {"patch_size": 16}, r"patch_size=\(8, 8\) by its"),
        ("hub_deit_tiny", {"image_shape": [64, 64, 3]}, "image_size"),
        ("hub_deit_tiny", {"dtype": POLICY}, "dtype='QuantizedDTypePolicy'"),
        ("hub_deit_tiny", {"window_size": 7}, "has window_size, which"),
        ("hub_dinov2_tiny", {"use_swiglu_ffn": True}, "has (mlp_dim|gated)"),
        ("hub_dinov2_tiny", {"num_register_tokens": 2}, "register_tokens=3 by"),
        ("hub_dinov3_tiny", {"use_gated_mlp": True}, "gated_mlp=False by"),
        ("hub_dinov3_tiny", {"hidden_activation": "mish"}, "'mish'"),
        ("hub_clip_tiny", {"intermediate_output_index": 1}, "output_index=1"),
        ("hub_metaclip_2_tiny", {"intermediate_output_index": 0}, "index=0"),
        ("hub_siglip_tiny", {"layer_norm_epsilon": 1e-5}, "epsilon=1e-05"),
        ("hub_siglip_tiny", {"rope": True}, "has rope, which"),
        ("hub_pali_gemma_tiny", {"vit_pooling": "map"}, "vit_pooling='map'"),
        ("hub_pali_gemma_tiny", {"vit_new": 1}, "has new, which"),
        ("hub_pali_gemma_tiny", {"vit_num_layers": 3}, "num_layers=2 by"),
        (
            "hub_pali_gemma_tiny",
            {"vit_classifier_activation": "tanh"},
            "activation='tanh'",
        ),
    ],
)
def test_a_field_that_is_not_honoured_is_named(name, changes, words, tmp_path):
    with pytest.raises(ValueError, match=words):
        load_checkpoint(copied(name, tmp_path, **changes))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"pooling": "max"}, "has pooling='max'"),
        ({"activation": "mish"}, "activation='mish'"),
        ({"hidden_layers": 2}, "has hidden_layers, which"),
    ],
)
def test_another_task_is_refused(changes, words, tmp_path):
    folder = copied("hub_deit_tiny", tmp_path)
    path = folder / "task.json"
    content = json.loads(path.read_text())
    content["config"] |= changes
    path.write_text(json.dumps(content))
    with pytest.raises(ValueError, match=words):
        load_checkpoint(folder)


def test_fields_are_those_of_the_preset():
    config = load("hub_dinov3_gated_tiny").config
    wanted = {
        "image_size": (32, 16),
        "rope": "centered",
        "rope_temperature": 50.0,
        "layer_norm_epsilon": 1e-3,
        "activation": "silu",
        "gated_mlp": True,
        "key_bias": True,
        "register_tokens": 0,
    }
    assert {x: getattr(config, x) for x in wanted} == wanted
    assert read_info(path_of("hub_clip_tiny")).fields["num_classes"] == 10


def test_images_that_patches_do_not_fill(tmp_path):
    folder = copied("hub_siglip_tiny", tmp_path, image_shape=[37, 37, 3])
    model = load_checkpoint(folder)
    assert "image_size=(32, 32) of (37, 37)" in str(model.load_report)
    wanted = expected("hub_siglip_tiny")
    found = keras.ops.convert_to_numpy(model(wanted["image"]))
    np.testing.assert_allclose(found, wanted["pre_logits"], **TOLERANCE)


def test_numbers_of_positions_that_are_not_in_order_are_refused(tmp_path):
    """As keras-hub leaves them in a CLIP that no checkpoint was loaded into."""
    number = "layers/clip_vision_encoder/layers/clip_vision_embedding/vars/1"

    def zeros(arrays):
        return {**arrays, number: np.zeros_like(arrays[number])}

    folder = edited(copied("hub_clip_tiny", tmp_path), zeros)
    assert "position_ids=[0, 0, 0" in refusal(folder)


def test_weights_in_several_files(tmp_path):
    """As keras-hub writes presets of more than 10 GB."""
    name = "hub_deit_tiny"
    folder = copied(name, tmp_path)
    places = {}

    def half(arrays):
        for i, part in enumerate((sorted(arrays)[::2], sorted(arrays)[1::2])):
            file = f"model_0000{i}.weights.h5"
            write(folder / file, {x: arrays[x] for x in part})
            places.update({f"/{x}": [file] for x in part})
        return {}

    edited(folder, half)
    (folder / "model.weights.h5").unlink()
    shards = folder / "model.weights.json"
    shards.write_text(json.dumps({"metadata": {}, "weight_map": places}))
    for one, two in zip(
        load_checkpoint(folder).weights, load(name).weights, strict=True
    ):
        np.testing.assert_array_equal(
            *map(keras.ops.convert_to_numpy, (one, two))
        )
    shards.write_text(json.dumps({"weight_map": {"a": "../b.h5"}}))
    assert "outside" in refusal(folder)
    shards.write_text(json.dumps({"weight_map": {"a": "b.h5"}}))
    assert "'b.h5', which is not there" in refusal(folder)
    shards.write_text(json.dumps({"weight_map": ["b.h5"]}))
    assert "no config of a model" in refusal(folder)


BIAS = ("query_dense/vars/1", "value_dense/vars/1")


def test_without_biases_of_query_and_value_they_are_zero(tmp_path):
    """As in DINOv3 of 7 billion parameters."""

    def zeros(arrays):
        return {
            x: np.zeros_like(y) if x.endswith(BIAS) else y
            for x, y in arrays.items()
        }

    def none(arrays):
        return {x: y for x, y in arrays.items() if not x.endswith(BIAS)}

    name = "hub_dinov3_tiny"
    models = [
        load_checkpoint(edited(copied(name, tmp_path / edit.__name__), edit))
        for edit in (zeros, none)
    ]
    assert [x.config.qkv_bias for x in models] == [True, False]
    images = expected(name)["image"]
    np.testing.assert_allclose(
        *(keras.ops.convert_to_numpy(x(images)) for x in models),
        rtol=0,
        atol=1e-6,
    )


KEYS = {
    "hub_deit_tiny": "mha/key_dense",
    "hub_dinov2_tiny": "attention/attention/key_dense",
    "hub_dinov3_gated_tiny": "attention/key_dense",
    "hub_clip_tiny": "attention/key_dense",
    "hub_metaclip_2_tiny": "attention/key_dense",
    "hub_siglip_tiny": "self_attn/key_dense",
    "hub_pali_gemma_tiny": "attn/key_proj",
}


@pytest.mark.parametrize("name", KEYS)
def test_key_bias_which_no_output_shows(name):
    found = []

    def keep(path, item):
        if path.endswith(f"{KEYS[name]}/vars/1") and "_text_" not in path:
            if "pooling" not in path and "decoder" not in path:
                found.append(item[()])

    with h5py.File(path_of(name) / "model.weights.h5") as h5:
        h5.visititems(keep)
    model = load(name)
    assert len(found) == model.config.num_layers
    for i, theirs in enumerate(found):
        bias = model.get_layer(f"block_{i}").attention.qkv.bias
        ours = keras.ops.convert_to_numpy(bias)
        ours = ours.reshape(model.config.num_heads, 3, -1)[:, 1].ravel()
        theirs = theirs.view("bfloat16") if theirs.dtype.kind == "V" else theirs
        np.testing.assert_array_equal(ours, theirs.astype("float32").ravel())


def test_key_bias_of_attention_pooling():
    name = "hub_siglip_tiny"
    path = "layers/sig_lip_vision_encoder/layers/"
    path += "sig_lip_multi_head_attention_pooling/attention/key_dense/vars/1"
    with h5py.File(path_of(name) / "model.weights.h5") as h5:
        theirs = h5[path][()].ravel()
    model = load(name)
    bias = keras.ops.convert_to_numpy(model.get_layer("pool").key_value.bias)
    ours = bias.reshape(model.config.num_heads, 2, -1)[:, 0].ravel()
    np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize(
    ("antialias", "method"), [(False, "bicubic"), (True, "bicubic_antialiased")]
)
def test_positions_are_resampled_as_the_preset_says(
    antialias, method, tmp_path
):
    folder = copied(
        "hub_dinov2_tiny", tmp_path, antialias_in_interpolation=antialias
    )
    model = load_checkpoint(folder, input_shape=(48, 48, 3))
    assert f"4x4 -> 6x6 ({method})" in str(model.load_report)


def test_other_presets_are_named(tmp_path):
    content = {"registered_name": "keras_hub>SAMBackbone", "config": {}}
    (tmp_path / "config.json").write_text(json.dumps(content))
    message = refusal(tmp_path)
    assert "'keras_hub>SAMBackbone'" in message and "CLIPBackbone" in message


# Keras on torch has another cubic kernel; of "nearest", ties differ.
METHODS = ("bilinear", "bicubic")
METHODS = METHODS[:1] if keras.backend.backend() == "torch" else METHODS


# Either shape of the sides, with and without cropping and antialiasing.
@pytest.mark.parametrize("seed", range(12))
def test_pixels_are_those_of_the_converter(tmp_path, seed):
    """Keras's Resizing, a scale and an offset."""
    random = np.random.default_rng(seed)
    sides = [int(x) for x in random.integers(8, 24, 2)]
    config = {
        "image_size": sides if seed % 2 else sides[:1] * 2,
        "crop_to_aspect_ratio": bool(random.integers(2)),
        "interpolation": METHODS[seed // 2 % len(METHODS)],
        "antialias": bool(random.integers(2)),
        "scale": [[1 / 127.5] * 3, 0.02, [0.01, 0.02, 0.03]][seed % 3],
        "offset": [[-1.0] * 3, -0.5, [-1.0, 0.0, -0.2]][seed % 3],
    }
    height, width = random.integers(5, 60, 2)
    image = random.integers(0, 256, (height, width, 3)).astype("uint8")
    resize = keras.layers.Resizing(
        *config["image_size"],
        interpolation=config["interpolation"],
        crop_to_aspect_ratio=config["crop_to_aspect_ratio"],
        antialias=config["antialias"],
    )
    resized = keras.ops.convert_to_numpy(resize(image[None]))[0]
    expected = resized * config["scale"] + config["offset"]
    path = tmp_path / "image_converter.json"
    known = keras_hub._trained_as(tmp_path, (path, config))
    rule = evaluation_of(known, known.image_size)
    size = known.image_size or (0, 0)
    cut = evaluation_crop(image, Geometry(size, 3, rule))
    scale = keras_hub._scaled(path, config)
    found = standardize(
        cut.astype("float32"), scale.get("pixel_mean"), scale.get("pixel_std")
    )
    step = np.max(config["scale"])  # one level of 255
    assert np.abs(found - expected).max() <= step
