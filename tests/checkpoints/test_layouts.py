"""Names that files of the same weights go by, written out by hand."""

import json
import re

import h5py
import keras
import numpy as np
import pytest
from arrays import read_arrays
from reference_cases import (
    FOLDER,
    TOLERANCE,
    expected,
    load,
    options_of,
    path_of,
)
from safetensors.numpy import load_file, save_file

from keras_vit.checkpoints import load_checkpoint
from keras_vit.checkpoints.files.npz import write_npz


def check(path, name, **options):
    model = load_checkpoint(path, **{**options_of(name), **options})
    logits = keras.ops.convert_to_numpy(model(expected(name)["image"]))
    np.testing.assert_allclose(logits, expected(name)["logits"], **TOLERANCE)
    return model


def same_weights(one, two):
    for a, b in zip(one.weights, two.weights, strict=True):
        np.testing.assert_array_equal(*map(keras.ops.convert_to_numpy, (a, b)))


def renamed(name, path, *changes, extra=()):
    """Writes a case again, each (pattern, replacement) applied to names."""
    file = path_of(name)
    file = file / "model.safetensors" if file.is_dir() else file
    numpy = file.suffix == ".npz"
    arrays = read_arrays(file) if numpy else load_file(file)
    result = dict(extra)
    for key, value in arrays.items():
        for pattern, replacement in changes:
            key = re.sub(pattern, replacement, key)
        result[key] = value
    assert set(result) - set(dict(extra)) != set(arrays)
    if numpy:
        write_npz(path, result.items())
    else:
        save_file(result, path)


@pytest.mark.parametrize("prefix", ["params/", "opt/target/", "params/img/"])
def test_prefixes_of_flax(prefix, tmp_path):
    zero = np.zeros(1, "float32")
    rest = [("opt/state/step", zero), ("params/t", zero)]
    extra, path = rest if prefix != "params/" else [], tmp_path / "a.npz"
    renamed("vit_tiny_google", path, ("^", prefix), extra=extra)
    model = check(path, "vit_tiny_google")
    assert set(model.load_report.dropped) == {name for name, _ in extra}


@pytest.mark.parametrize("wrapper", ["", "params/", "opt/target/"])
@pytest.mark.parametrize(
    ("tower", "others"),
    [
        ("img/", ("txt/Encoder_0/encoder_norm/scale", "t", "b")),
        ("encoder/", ("decoder/LogitsDense/kernel", "pos_embedding_decoder")),
    ],
)
def test_towers_of_flax(tower, others, wrapper, tmp_path):
    extra = [(wrapper + x, np.ones(2, "float32")) for x in others]
    path, name = tmp_path / "a.npz", "vit_tiny_bigvision_map"
    renamed(name, path, ("^params/", wrapper + tower), extra=extra)
    model = check(path, name)
    assert set(model.load_report.dropped) == {x for x, _ in extra}


def test_part_of_a_file(tmp_path):
    path = tmp_path / "two.npz"
    renamed("vit_tiny_bigvision_tok", path, ("^params/", "params/img/"))
    check(f"{path}:img", "vit_tiny_bigvision_tok")
    with pytest.raises(ValueError, match="no part 'txt'"):
        load_checkpoint(f"{path}:txt")


def test_numbers_in_the_names_of_bit(tmp_path):
    path = tmp_path / "a.npz"
    renamed("bit_tiny_google", path, ("standardized_conv2d", r"\g<0>_17"))
    check(path, "bit_tiny_google")


def test_old_layout_of_mixer(tmp_path):
    path = tmp_path / "a.npz"
    renamed(
        "mixer_tiny_google",
        path,
        ("^stem/", "embedding/"),
        ("^pre_head_layer_norm/", "Mixer/encoder_norm/"),
        (r"MixerBlock_(\d)/", r"Mixer/encoderblock_\1/"),
        (
            r"(token|channel)_mixing/Dense_0/(\w+)",
            r"\1_mixing_phase_0/\g<2>1",
        ),
        (
            r"(token|channel)_mixing/Dense_1/(\w+)",
            r"\1_mixing_phase_0/\g<2>2",
        ),
        ("LayerNorm_1", "LayerNorm_2"),
    )
    check(path, "mixer_tiny_google")


def folder_with(tmp_path, *changes):
    renamed("hf_vit_tiny", tmp_path / "model.safetensors", *changes)
    config = (FOLDER / "hf_vit_tiny" / "config.json").read_text()
    (tmp_path / "config.json").write_text(config)
    return tmp_path


def test_hugging_face_without_its_prefix(tmp_path):
    check(folder_with(tmp_path, (r"^vit\.", "")), "hf_vit_tiny")


def test_names_of_transformers_5(tmp_path):
    folder = folder_with(
        tmp_path,
        (r"encoder\.layer\.", "layers."),
        (r"attention\.attention\.query", "attention.q_proj"),
        (r"attention\.attention\.key", "attention.k_proj"),
        (r"attention\.attention\.value", "attention.v_proj"),
        (r"attention\.output\.dense", "attention.o_proj"),
        (r"intermediate\.dense", "mlp.fc1"),
        (r"(\d)\.output\.dense", r"\1.mlp.fc2"),
    )
    check(folder, "hf_vit_tiny")


def test_hybrid_of_hugging_face(tmp_path):
    path = tmp_path / "model.safetensors"
    renamed(
        "timm_hybrid_tiny",
        path,
        (r"^(cls_token)", r"vit.embeddings.\1"),
        ("^pos_embed", "vit.embeddings.position_embeddings"),
        (
            r"^patch_embed\.proj",
            "vit.embeddings.patch_embeddings.projection",
        ),
        (
            r"^patch_embed\.backbone",
            "vit.embeddings.patch_embeddings.backbone.bit",
        ),
        (r"bit\.stem\.conv", "bit.embedder.convolution"),
        (r"bit\.stem\.norm", "bit.embedder.norm"),
        (
            r"bit\.stages\.(\d)\.blocks",
            r"bit.encoder.stages.\1.layers",
        ),
        (r"^blocks\.(\d)\.norm1", r"vit.encoder.layer.\1.layernorm_before"),
        (r"^blocks\.(\d)\.norm2", r"vit.encoder.layer.\1.layernorm_after"),
        (
            r"^blocks\.(\d)\.attn\.proj",
            r"vit.encoder.layer.\1.attention.output.dense",
        ),
        (
            r"^blocks\.(\d)\.mlp\.fc1",
            r"vit.encoder.layer.\1.intermediate.dense",
        ),
        (r"^blocks\.(\d)\.mlp\.fc2", r"vit.encoder.layer.\1.output.dense"),
        (r"^norm\.", "vit.layernorm."),
        (r"^head\.", "classifier."),
    )
    tensors = load_file(path)
    for i in range(2):
        for kind in ("weight", "bias"):
            rows = np.split(tensors.pop(f"blocks.{i}.attn.qkv.{kind}"), 3)
            for x, value in zip(("query", "key", "value"), rows, strict=True):
                name = f"vit.encoder.layer.{i}.attention.attention.{x}.{kind}"
                tensors[name] = np.ascontiguousarray(value)
    save_file(tensors, path)
    config = {"num_attention_heads": 4, "layer_norm_eps": 1e-6}
    (tmp_path / "config.json").write_text(json.dumps(config))
    model = check(tmp_path, "timm_hybrid_tiny", num_heads=None)
    assert model.load_report.format == "hugging_face"
    same_weights(model, load("timm_hybrid_tiny"))


def test_torchvision(tmp_path):
    path = tmp_path / "a.safetensors"
    renamed(
        "timm_vit_tiny",
        path,
        ("^cls_token", "class_token"),
        (r"^patch_embed\.proj", "conv_proj"),
        ("^pos_embed", "encoder.pos_embedding"),
        (r"^blocks\.", "encoder.layers.encoder_layer_"),
        (r"attn\.qkv\.", "self_attention.in_proj_"),
        (r"attn\.proj", "self_attention.out_proj"),
        (r"mlp\.fc1", "mlp.0"),
        (r"mlp\.fc2", "mlp.linear_2"),
        (r"(\d)\.norm([12])", r"\1.ln_\2"),
        (r"^norm\.", "encoder.ln."),
        (r"^head\.", "heads.head."),
    )
    model = check(path, "timm_vit_tiny")
    assert model.load_report.format == "torchvision"


def test_layer_scale_of_deit_iii(tmp_path):
    path = tmp_path / "a.safetensors"
    name = "timm_vit_tiny_layer_scale"
    renamed(name, path, (r"\.ls([12])\.gamma", r".gamma_\1"))
    # timm's models with rotary positions have the same tensors.
    with pytest.raises(ValueError, match='several kinds have: .*"rope"'):
        load_checkpoint(path, num_heads=4)
    check(path, name, architecture="deit3_base_patch16_224")


def test_layer_scale_in_some_blocks_is_refused(tmp_path):
    name = "timm_vit_tiny_layer_scale"
    tensors = load_file(path_of(name))
    del tensors["blocks.1.ls2.gamma"]
    save_file(tensors, tmp_path / "a.safetensors")
    with pytest.raises(ValueError, match="Missing.*: block_1/mlp_scale/gamma"):
        check(tmp_path / "a.safetensors", name)


def test_timm_without_a_position_for_the_class_token(tmp_path):
    tensors = load_file(path_of("timm_vit_tiny"))
    table = tensors["pos_embed"]
    tensors["cls_token"] = tensors["cls_token"] + table[:, :1]
    tensors["pos_embed"] = np.ascontiguousarray(table[:, 1:])
    save_file(tensors, tmp_path / "a.safetensors")
    check(tmp_path / "a.safetensors", "timm_vit_tiny")


BLOCK = "layers/vi_t_encoder/encoder_layers/vi_t_encoder_block"
EMBEDDING = "layers/vi_t_patching_and_embedding"
HUB_NAMES = [
    (r"^cls$", f"{EMBEDDING}/vars/0"),
    (r"^embedding/(\w+)$", rf"{EMBEDDING}/patch_embedding/\1"),
    (
        r"^Transformer/posembed_input/pos_embedding$",
        f"{EMBEDDING}/position_embedding/vars/0",
    ),
    (r"^Transformer/encoder_norm/", "layers/vi_t_encoder/layer_norm/"),
    (r"^Transformer/encoderblock_0/", f"{BLOCK}/"),
    (r"^Transformer/encoderblock_(\d+)/", rf"{BLOCK}_\1/"),
    ("LayerNorm_0", "layer_norm_1"),
    ("LayerNorm_2", "layer_norm_2"),
    ("MultiHeadDotProductAttention_1/out/", "mha/output_dense/"),
    (r"MultiHeadDotProductAttention_1/(\w+)/", r"mha/\1_dense/"),
    ("MlpBlock_3/Dense_0", "mlp/dense_1"),
    ("MlpBlock_3/Dense_1", "mlp/dense_2"),
    (r"/(kernel|scale)$", "/vars/0"),
    (r"/bias$", "/vars/1"),
]


def test_preset_of_keras_hub(tmp_path):
    name = "vit_tiny_deep"
    parts = {"model.weights.h5": {}, "task.weights.h5": {}}
    for key, value in read_arrays(path_of(name)).items():
        task = key.startswith("head/")
        key = key.replace("head/", "layers/dense/")
        for pattern, replacement in HUB_NAMES:
            key = re.sub(pattern, replacement, key)
        value = value[0] if "position_embedding" in key else value
        parts["task.weights.h5" if task else "model.weights.h5"][key] = value
    for file, arrays in parts.items():
        with h5py.File(tmp_path / file, "w") as h5:
            for key, value in arrays.items():
                h5[key] = value
    config = {"image_shape": [32, 32, 3], "num_heads": 2}
    config = {"registered_name": "keras_hub>ViTBackbone", "config": config}
    (tmp_path / "config.json").write_text(json.dumps(config))
    task = {"config": {"pooling": "token", "num_classes": 10}}
    (tmp_path / "task.json").write_text(json.dumps(task))
    # keras-hub computes the exact GELU; the golden numbers are of tanh.
    model = check(tmp_path, name, activation="gelu_tanh")
    assert load_checkpoint(tmp_path).config.activation == "gelu"
    same_weights(model, load(name))
