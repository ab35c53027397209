"""Files under the names of the repositories that published the models.

The stored outputs are of the same weights in timm and transformers, whose
scripts of conversion say which name became which.
"""

import re

import numpy as np
import pytest
from reference_cases import TOLERANCE, expected, options_of, path_of
from safetensors.numpy import load_file, save_file

from keras_vit.checkpoints import load_checkpoint

# transformers, convert_dinov2_to_hf.py and convert_dinov3_vit_to_hf.py.
DINO = (
    (r"dinov2_with_registers\.", ""),
    (r"embeddings\.patch_embeddings\.projection", "patch_embed.proj"),
    (r"embeddings\.patch_embeddings", "patch_embed.proj"),
    (r"embeddings\.position_embeddings", "pos_embed"),
    (r"embeddings\.", ""),
    (r"(?:encoder\.)?layer\.", "blocks."),
    (r"attention\.(output\.dense|o_proj)", "attn.proj"),
    (r"layer_scale(\d)\.lambda1", r"ls\1.gamma"),
    (r"weights_in", "w12"),
    (r"weights_out", "w3"),
    (r"layernorm", "norm"),
)
DINOV3 = (("register_tokens", "storage_tokens"), *DINO)
PLAIN_MLP = (("up_proj", "fc1"), ("down_proj", "fc2"))
GATED_MLP = (("gate_proj", "w1"), ("up_proj", "w2"), ("down_proj", "w3"))
PROJECTIONS = (("query", "q_proj"), ("key", "k_proj"), ("value", "v_proj"))
# timm, checkpoint_filter_fn of eva.py.
EVA = (
    (r"attn\.norm", "attn.inner_attn_ln"),
    (r"mlp\.norm", "mlp.ffn_ln"),
    (r"mlp\.fc1_g", "mlp.w1"),
    (r"mlp\.fc1_x", "mlp.w2"),
    (r"mlp\.fc2", "mlp.w3"),
    (r"([qv])_proj\.bias", r"\1_bias"),
)
CHUNKED = ((r"blocks\.(\d)\.", r"blocks.\1.\1."),)


def renamed(tensors, *pairs):
    found = {}
    for name, x in tensors.items():
        for pattern, replacement in pairs:
            name = re.sub(pattern, replacement, name)
        found[name] = x
    return found


def tensors(name, *pairs):
    path = path_of(name)
    path = path / "model.safetensors" if path.is_dir() else path
    return renamed(load_file(path), *pairs)


def fused(content, mask=False):
    """Query, key and value in one, as Meta's code has them."""
    content = renamed(content, *PROJECTIONS)
    found = {x: y for x, y in content.items() if "_proj." not in x}
    for i in (0, 1):
        theirs = f"blocks.{i}.attention.{{}}_proj.{{}}"
        old = theirs.replace("attention.", "attention.attention.")
        theirs = old if old.format("q", "weight") in content else theirs
        zeros = np.zeros(len(content[theirs.format("q", "weight")]), "float32")
        for kind in ("weight", "bias"):
            parts = [
                content.get(theirs.format(x, kind), zeros + mask) for x in "qkv"
            ]
            found[f"blocks.{i}.attn.qkv.{kind}"] = np.concatenate(parts)
        if mask:
            # What is multiplied by the mask is of no use.
            parts = [zeros + 1, zeros, zeros + 1]
            name = f"blocks.{i}.attn.qkv.bias_mask"
            found[name] = np.concatenate(parts)
    return {x: y for x, y in found.items() if not x.startswith("classifier")}


def check(path, name, content, key, **options):
    save_file(content, path)
    model = load_checkpoint(path, **options)
    found = model.predict(expected(name)["image"], verbose=0)
    np.testing.assert_allclose(found, expected(name)[key], **TOLERANCE)


ENCODER = {"include_top": False, "num_heads": 2}


@pytest.mark.parametrize("chunks", [(), CHUNKED])
@pytest.mark.parametrize("prefix", ["", "teacher.backbone."])
@pytest.mark.parametrize(
    "name", ["hf_dinov2_registers_tiny", "hf_dinov2_swiglu_tiny"]
)
def test_dinov2_of_its_authors(name, prefix, chunks, tmp_path):
    content = renamed(fused(tensors(name, *DINO)), *chunks)
    content = {prefix + x: y for x, y in content.items()}
    if prefix:
        content["teacher.dino_head.mlp.0.weight"] = np.ones((2, 2), "float32")
        content["teacher.ibot_head.last_layer.weight"] = np.ones(2, "float32")
    check(tmp_path / "x.safetensors", name, content, "encoded", **ENCODER)


@pytest.mark.parametrize(
    ("name", "mlp"),
    [("hf_dinov3_tiny", PLAIN_MLP), ("hf_dinov3_gated_tiny", GATED_MLP)],
)
def test_dinov3_of_its_authors(name, mlp, tmp_path):
    content = fused(tensors(name, *DINOV3, *mlp), mask=True)
    content["rope_embed.periods"] = 100.0 ** (np.arange(2) / 2)
    check(
        tmp_path / "x.safetensors",
        name,
        content,
        "encoded",
        **ENCODER,
        input_shape=(32, 32, 3),
    )


def test_the_size_that_rotary_positions_leave_open_is_named(tmp_path):
    """Rotary positions have no table, so any size fits the file."""
    content = fused(tensors("hf_dinov3_tiny", *DINOV3, *PLAIN_MLP), mask=True)
    save_file(content, tmp_path / "x.safetensors")
    with pytest.warns(UserWarning, match=r"image_size=\(224, 224\)"):
        load_checkpoint(tmp_path / "x.safetensors", **ENCODER)


@pytest.mark.parametrize("periods", [50.0 ** (np.arange(2) / 2), np.ones(4)])
def test_periods_of_another_temperature_are_refused(periods, tmp_path):
    """No config stands beside the files of DINOv3's authors."""
    content = fused(tensors("hf_dinov3_tiny", *DINOV3, *PLAIN_MLP), mask=True)
    content["rope_embed.periods"] = periods
    save_file(content, tmp_path / "x.safetensors")
    with pytest.raises(ValueError, match="rope_temperature=100 have 2 to 10"):
        load_checkpoint(
            tmp_path / "x.safetensors", **ENCODER, input_shape=(32, 32, 3)
        )


def test_beit_of_its_authors(tmp_path):
    name = "timm_vit_tiny_beit"
    content = tensors(name)
    for i in (0, 1):
        index = np.zeros((17, 17), "int64")
        content[f"blocks.{i}.attn.relative_position_index"] = index
    path = tmp_path / "x.safetensors"
    check(path, name, content, "logits", **options_of(name))


def test_positions_that_blocks_share_are_named(tmp_path):
    content = {
        x: y
        for x, y in tensors("timm_vit_tiny_beit").items()
        if "relative_position" not in x
    }
    content["rel_pos_bias.relative_position_bias_table"] = np.ones(
        (52, 4), "float32"
    )
    save_file(content, tmp_path / "x.safetensors")
    with pytest.raises(ValueError, match="that all blocks share"):
        load_checkpoint(tmp_path / "x.safetensors", num_heads=4)


def test_eva_02_of_its_authors(tmp_path):
    name = "timm_vit_tiny_eva02"
    content = tensors(name, *EVA)
    for rope in ("rope", "blocks.0.attn.rope", "blocks.1.attn.rope"):
        for part in ("cos", "sin"):
            content[f"{rope}.freqs_{part}"] = np.ones((16, 8), "float32")
    path = tmp_path / "x.safetensors"
    check(path, name, content, "logits", **options_of(name))


DECODER = {
    "mask_token": np.ones((1, 1, 4), "float32"),
    "decoder_embed.weight": np.ones((4, 32), "float32"),
    "decoder_pos_embed": np.ones((1, 17, 4), "float32"),
    "decoder_blocks.0.norm1.weight": np.ones(4, "float32"),
    "decoder_pred.bias": np.ones(4, "float32"),
}


@pytest.mark.parametrize("prefix", ["", "model."])
def test_mae_with_its_decoder(prefix, tmp_path):
    name = "timm_vit_tiny"
    content = {prefix + x: y for x, y in (tensors(name) | DECODER).items()}
    path = tmp_path / "x.safetensors"
    check(path, name, content, "encoded", include_top=False, num_heads=4)


def test_ijepa_has_two_encoders(tmp_path):
    name = "timm_vit_tiny"
    content = {
        f"{x}.module.{y}": z
        for x in ("encoder", "target_encoder")
        for y, z in tensors(name).items()
    }
    content["predictor.module.norm.weight"] = np.ones(2, "float32")
    path = tmp_path / "x.safetensors"
    options = {"include_top": False, "num_heads": 4}
    check(path, name, content, "encoded", prefix="target_encoder", **options)
    with pytest.raises(ValueError, match="2 models.*prefix='encoder.module.'"):
        load_checkpoint(path, **options)
