"""A refusal says all that is in the way, and advice that can be followed."""

import json
import shutil
from typing import Any

import h5py
import keras
import ml_dtypes
import numpy as np
import pytest
from arrays import read_arrays
from exported import arrays
from reference_cases import load, path_of

from keras_vit.checkpoints import (
    load_checkpoint,
    load_weights,
    read_info,
    save_checkpoint,
)
from keras_vit.checkpoints.files.safetensors import write_safetensors
from keras_vit.models import VisionTransformer, ViTConfig


def write(path, tensors):
    shapes = {name: x.shape for name, x in tensors.items()}
    write_safetensors(path, shapes, tensors.items(), {"format": "pt"})
    return path


def timm_tensors(**changes):
    """Tensors of a plain ViT of timm, with more or (None) fewer."""
    tensors = arrays(path_of("timm_vit_tiny"))
    tensors |= {name.replace("__", "."): x for name, x in changes.items()}
    return {name: x for name, x in tensors.items() if x is not None}


def refusal(path, **options):
    with pytest.raises(ValueError) as error:
        load_checkpoint(path, num_heads=4, **options)
    return str(error.value)


ONE = np.ones(3, "float32")


def test_a_refusal_lists_every_obstacle(tmp_path):
    strangers = {
        "blocks__0__attn__rel_pos__lookup": ONE,
        "blocks__1__attn__rel_pos__lookup": ONE,
        "decoder__weight": ONE,
        "rope__periods": ONE,
    }
    message = refusal(write(tmp_path / "x", timm_tensors(**strangers)))
    for what in (
        "relative position embeddings (blocks.",
        "a decoder for masked images",
        "tensors of unknown use (rope.periods)",
    ):
        assert what in message
    assert "fetch" not in message


def test_batch_normalisation_is_called_so(tmp_path):
    extra = {"patch_embed__norm__running_mean": ONE}
    message = refusal(write(tmp_path / "x", timm_tensors(**extra)))
    assert "batch normalisation" in message
    assert "fetch" not in message


def test_unknown_tensors_are_no_damage(tmp_path):
    message = refusal(write(tmp_path / "x", timm_tensors(gate=ONE)))
    assert "is taken for a Vision Transformer in timm format because" in message
    assert "the file may be in order" in message
    assert "fetch" not in message


def test_the_token_of_hidden_patches_is_left_out(tmp_path):
    token = np.ones((1, 32), "float32")
    path = write(tmp_path / "x.safetensors", timm_tensors(mask_token=token))
    model = load_checkpoint(path, num_heads=4)
    assert model.load_report.dropped == ("mask_token",)


def test_load_checkpoint_does_not_advise_itself(tmp_path):
    changes = {"norm__weight": None, "norm__bias": None}
    message = refusal(write(tmp_path / "x", timm_tensors(**changes)))
    assert "encoder_norm/gamma" in message
    assert "with keras_vit.checkpoints.load_checkpoint" not in message
    assert "architecture that the models here do not have" in message
    with pytest.raises(ValueError, match="Build the model for the file with"):
        load_weights(load("vit_tiny_google"), path_of("hf_vit_tiny"))


def test_an_unknown_model_is_refused_with_its_config_json(tmp_path):
    write(tmp_path / "model.safetensors", {"stem.weight": ONE})
    content = {"model_type": "swin", "architectures": ["SwinModel"]}
    (tmp_path / "config.json").write_text(json.dumps(content))
    message = refusal(tmp_path)
    assert "swin" in message and "SwinModel" in message


def test_the_config_beside_a_file_is_read(tmp_path):
    folder = tmp_path / "x"
    model = load("hf_vit_tiny")
    save_checkpoint(model, folder, format="hugging_face")
    tensors = arrays(folder)
    (folder / "model.safetensors").unlink()
    write(folder / "model.safetensors", tensors)  # without our record
    again = load_checkpoint(folder / "model.safetensors")
    assert again.config == load_checkpoint(folder).config == model.config
    # Of a file under a name of its own the neighbour tells nothing.
    shutil.copy(folder / "model.safetensors", folder / "y.safetensors")
    with pytest.raises(ValueError, match="does not tell its number"):
        load_checkpoint(folder / "y.safetensors")


def test_an_image_size_that_does_not_make_the_positions_is_refused(tmp_path):
    folder = tmp_path / "x"
    save_checkpoint(load("hf_vit_tiny"), folder, format="hugging_face")
    tensors = arrays(folder)
    write(folder / "model.safetensors", tensors)
    content = json.loads((folder / "config.json").read_text())
    content["image_size"] = 64
    (folder / "config.json").write_text(json.dumps(content))
    with pytest.raises(ValueError, match=r"do not make the \dx\d positions"):
        load_checkpoint(folder)


CLIP = {
    "norm_pre__weight": np.ones(32, "float32"),
    "norm_pre__bias": np.zeros(32, "float32"),
    "patch_embed__proj__bias": None,
}


@pytest.mark.parametrize("name", ["mixer_tiny_google", "timm_mixer_tiny"])
def test_a_mixer_has_the_size_of_its_patches(name):
    path = path_of(name)
    own = load_checkpoint(path).config.image_size
    assert load_checkpoint(path, input_shape=(*own, 3)).config.image_size == own
    with pytest.raises(ValueError, match="each patch.*32x32.*=.48, 32."):
        load_checkpoint(path, input_shape=(48, 32, 3))
    with pytest.raises(ValueError, match="each patch.*32x32.*=48. Leave"):
        load_checkpoint(path, image_size=48)


def test_info_and_load_weights_take_what_a_file_leaves_open(tmp_path):
    path = write(tmp_path / "x.safetensors", timm_tensors(**CLIP))
    with pytest.raises(ValueError, match="does not tell its activation"):
        read_info(path, num_heads=4)
    info = read_info(path, num_heads=4, activation="quick_gelu")
    assert info.fields["activation"] == "quick_gelu"
    name = "vit_base_patch16_clip_quickgelu_224"
    info = read_info(path, num_heads=4, architecture=name)
    assert info.fields["activation"] == "quick_gelu"
    with pytest.raises(ValueError, match=r"Unknown arguments \['activaton'\]"):
        read_info(path, num_heads=4, activaton="gelu")
    model = load_checkpoint(path, num_heads=4, architecture=name)
    for options in ({}, {"architecture": name}):
        again = type(model)(model.config)
        load_weights(again, path, **options)
        for ours, theirs in zip(again.weights, model.weights, strict=True):
            np.testing.assert_array_equal(
                *map(keras.ops.convert_to_numpy, (ours, theirs))
            )


def keras_hub_folder(folder, dtype: Any = "float32", **task):
    """A preset of keras-hub of one block and three classes."""
    block = "layers/vi_t_encoder/encoder_layers/vi_t_encoder_block"
    embedding = "layers/vi_t_patching_and_embedding"
    random = np.random.default_rng(0)
    shapes = {
        f"{embedding}/vars/0": (1, 1, 8),
        f"{embedding}/patch_embedding/vars/0": (4, 4, 3, 8),
        f"{embedding}/patch_embedding/vars/1": (8,),
        f"{embedding}/position_embedding/vars/0": (5, 8),
        f"{block}/mha/output_dense/vars/0": (2, 4, 8),
        f"{block}/mha/output_dense/vars/1": (8,),
        f"{block}/mlp/dense_1/vars/0": (8, 12),
        f"{block}/mlp/dense_1/vars/1": (12,),
        f"{block}/mlp/dense_2/vars/0": (12, 8),
        f"{block}/mlp/dense_2/vars/1": (8,),
    }
    for name in ("query", "key", "value"):
        shapes[f"{block}/mha/{name}_dense/vars/0"] = (8, 2, 4)
        shapes[f"{block}/mha/{name}_dense/vars/1"] = (2, 4)
    norms = [f"{block}/layer_norm_1", f"{block}/layer_norm_2"]
    for norm in (*norms, "layers/vi_t_encoder/layer_norm"):
        shapes |= {f"{norm}/vars/0": (8,), f"{norm}/vars/1": (8,)}
    heads = {"layers/dense/vars/0": (8, 3), "layers/dense/vars/1": (3,)}
    for file, part in (
        ("model.weights.h5", shapes),
        ("task.weights.h5", heads),
    ):
        with h5py.File(folder / file, "w") as h5:
            for name, shape in part.items():
                h5[name] = random.normal(0, 0.3, shape).astype(dtype)
                # As Keras marks it.
                h5[name].attrs["dtype"] = str(np.dtype(dtype))
    config = {"image_shape": [8, 8, 3], "num_heads": 2}
    content = {"registered_name": "keras_hub>ViTBackbone", "config": config}
    (folder / "config.json").write_text(json.dumps(content))
    task = {"config": {"pooling": "token", "num_classes": 3, **task}}
    (folder / "task.json").write_text(json.dumps(task))
    return folder


@pytest.mark.parametrize(
    ("activation", "expected"),
    [("softmax", "softmax"), ("linear", None), (None, None)],
)
def test_the_activation_of_a_task_of_keras_hub(tmp_path, activation, expected):
    model = load_checkpoint(keras_hub_folder(tmp_path, activation=activation))
    assert model.config.classifier_activation == expected
    logits = load_checkpoint(tmp_path, classifier_activation=None)
    images = np.random.default_rng(1).uniform(-1, 1, (2, 8, 8, 3))
    found = keras.ops.convert_to_numpy(model(images.astype("float32")))
    wanted = logits(images.astype("float32"))
    if expected:
        wanted = keras.ops.softmax(wanted)
    np.testing.assert_allclose(
        found, keras.ops.convert_to_numpy(wanted), rtol=0, atol=1e-6
    )


def test_an_unknown_activation_of_a_task_is_refused(tmp_path):
    folder = keras_hub_folder(tmp_path, activation="mish")
    with pytest.raises(ValueError, match="activation='mish'"):
        load_checkpoint(folder)


def test_bfloat16_of_keras_hub(tmp_path):
    folder = keras_hub_folder(tmp_path, dtype=ml_dtypes.bfloat16)
    kernel = "layers/dense/vars/0"
    with h5py.File(folder / "task.weights.h5") as file:
        stored = file[kernel][()].view(ml_dtypes.bfloat16).astype("float32")
    model = load_checkpoint(folder)
    found = model.get_layer("predictions").kernel
    np.testing.assert_array_equal(keras.ops.convert_to_numpy(found), stored)


def test_a_preset_of_keras_hub_that_is_no_vit_is_named(tmp_path):
    content = {"registered_name": "keras_hub>ResNetBackbone", "config": {}}
    (tmp_path / "config.json").write_text(json.dumps(content))
    (tmp_path / "model.weights.h5").touch()
    message = refusal(tmp_path)
    assert "'keras_hub>ResNetBackbone', which is no Vision" in message


def test_readers_of_npz_do_not_see_the_record(tmp_path):
    """NumPy's, which is that of Google's code, finds the tensors alone."""
    model = load("vit_tiny_google", classifier_activation="softmax")
    save_checkpoint(model, tmp_path / "x.npz", format="google")
    names = set(read_arrays(path_of("vit_tiny_google")))
    with np.load(tmp_path / "x.npz") as file:
        assert set(file.files) == names
    again = load_checkpoint(tmp_path / "x.npz")
    assert again.config.classifier_activation == "softmax"


@pytest.mark.parametrize(
    ("name", "start", "message"),
    [
        ("x.gguf", b"GGUF\3\0\0\0\1", "GGUF.*safetensors of the model"),
        ("x.onnx", b"\x08\x07\x12\x07pytorch", "ONNX.*exported from"),
        ("x.bin", b"\x80\x02}q\x00.", "pickle.*save_file.torch.load"),
        ("x.png", b"\x89PNG\r\n\x1a\n", "a picture.*model, and then"),
        ("x.jpg", b"\xff\xd8\xff\xe0\0\x10JFIF", "a picture.*model, and then"),
    ],
)
def test_a_file_of_another_kind_says_what_to_take(
    name, start, message, tmp_path
):
    (tmp_path / name).write_bytes(start)
    with pytest.raises(ValueError, match=message):
        load_checkpoint(tmp_path / name)


def test_an_exported_pair_in_place_of_weights_is_named(tmp_path):
    (tmp_path / "pair.json").write_text("{}")
    with pytest.raises(ValueError, match="exported image-text.*Take the weig"):
        load_checkpoint(tmp_path)


def test_a_whole_model_in_hdf5_loads_into_a_model(tmp_path):
    config = ViTConfig(
        image_size=(16, 16),
        patch_size=(8, 8),
        hidden_dim=8,
        num_heads=2,
        num_layers=1,
        mlp_dim=8,
        num_classes=3,
    )
    model, other = VisionTransformer(config), VisionTransformer(config)
    model.save(tmp_path / "model.h5")
    with pytest.raises(ValueError, match="load_weights.*model.keras"):
        load_checkpoint(tmp_path / "model.h5")
    load_weights(other, tmp_path / "model.h5")
    for mine, its in zip(other.get_weights(), model.get_weights(), strict=True):
        np.testing.assert_array_equal(mine, its)


def test_a_folder_of_checkpoints_names_one_of_them(tmp_path):
    folder = tmp_path / "checkpoint-500"
    folder.mkdir()
    (folder / "model.safetensors").write_bytes(b"")
    with pytest.raises(ValueError, match="such as 'checkpoint-500'"):
        load_checkpoint(tmp_path)
