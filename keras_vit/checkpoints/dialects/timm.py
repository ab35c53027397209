"""Files of timm: their tensors, and what the architecture tells of them.

The activation, epsilon, heads and pooling of a model leave no trace in its
weights, and some models with rotary positions have the tensors of plain ones:
timm's list of architectures tells them. Its config.json is in
`timm_config.py`.

Sources: timm 1.0.31 (models/vision_transformer.py, deit.py, mlp_mixer.py,
resnetv2.py).
"""

import csv
import dataclasses
import difflib
import functools
import json
import os
import pathlib
import re
from collections.abc import Mapping
from typing import NamedTuple

from keras_vit.checkpoints.dialects.shared import (
    BATCH_NORM,
    CHUNKS,
    CONTRASTIVE,
    EXACT_GELU,
    PATCHES,
    PLAIN_BLOCK,
    PLAIN_OPTIONS,
    SAM_ENCODER,
    SAM_MARKS,
    SAM_SIGNS,
    TORCH_RESNET,
    check_periods,
    preactivated_unit,
    unit,
)
from keras_vit.checkpoints.dialects.timm_config import (
    BUILT_WITH,
    POOLINGS,
    find_folder_problems,
    find_problems,
    folder_files,
    is_config,
    metadata,
    read_config,
    read_preprocessing,
    read_trained_as,
    usual_images,
)
from keras_vit.checkpoints.engine.layout import (
    Dialect,
    Layout,
    Library,
    torch_convolution,
    torch_dense,
    torch_norm,
)
from keras_vit.checkpoints.files.tensors import refuse
from keras_vit.io.tables import python_block

__all__ = [
    "LAYOUTS",
    "LIBRARY",
    "MARKS",
    "NAFLEX_ALIASES",
    "PLAIN",
    "TABLE",
    "Architecture",
    "marks_of",
]


def position_mlp(ours, theirs):
    """Return the rows of relative positions that an MLP computes."""
    layers = {"hidden": "fc1", "head": "fc2"}
    rows = {}
    for name, linear in layers.items():
        rows[f"{ours}/{name}_weight"] = f"{theirs}.{linear}.weight", "linear"
        rows[f"{ours}/{name}_bias"] = f"{theirs}.{linear}.bias", "same"
    return rows


def batch_norm(ours, theirs):
    """Return the rows of a batch normalisation."""
    return {
        **torch_norm(ours, theirs),
        f"{ours}/moving_mean": (f"{theirs}.running_mean", "same"),
        f"{ours}/moving_variance": (f"{theirs}.running_var", "same"),
    }


def resnet_norm(ours, theirs):
    """Return the rows of a normalisation of ResNets, whichever it is."""
    return {
        **batch_norm(ours, theirs),
        f"{ours}/gate": (f"{theirs}.v", "same"),
    }


def heads_dense(ours, theirs):
    """Return the rows of a linear layer from heads to heads."""
    return torch_dense(ours, theirs, bias="heads_bias")


def class_block(ours, theirs):
    """Return the rows of a class-attention block of CaiT."""
    key_value = {
        f"{ours}/attention/key_value/{weight}": (
            (f"{theirs}.attn.k.{name}", f"{theirs}.attn.v.{name}"),
            "torch_kv",
        )
        for weight, name in {"kernel": "weight", "bias": "bias"}.items()
    }
    return {
        **torch_norm(f"{ours}/attention_norm", f"{theirs}.norm1"),
        **torch_dense(f"{ours}/attention/query", f"{theirs}.attn.q"),
        **key_value,
        **torch_dense(f"{ours}/attention/out", f"{theirs}.attn.proj"),
        f"{ours}/attention_scale/gamma": (f"{theirs}.gamma_1", "same"),
        **torch_norm(f"{ours}/mlp_norm", f"{theirs}.norm2"),
        **torch_dense(f"{ours}/mlp/dense", f"{theirs}.mlp.fc1"),
        **torch_dense(f"{ours}/mlp/dense_1", f"{theirs}.mlp.fc2"),
        f"{ours}/mlp_scale/gamma": (f"{theirs}.gamma_2", "same"),
    }


BACKBONE = "patch_embed.backbone"
LAMBDAS = ("q1", "k1", "q2", "k2")  # of differential attention
VIT = {
    **PATCHES,
    "patch_norm/gamma": ("patch_embed.norm.weight", "same"),  # of AIMv2, RMS
    **torch_convolution("stem_conv1", f"{BACKBONE}.0.conv"),
    **batch_norm("stem_norm1", f"{BACKBONE}.0.bn"),
    **torch_convolution("stem_conv2", f"{BACKBONE}.1.conv"),
    **batch_norm("stem_norm2", f"{BACKBONE}.1.bn"),
    "class_token/token": ("cls_token", "same"),
    "position_embedding/embedding": ("pos_embed", "same"),
    **torch_norm("first_norm", "norm_pre"),
    **PLAIN_BLOCK,
    **torch_norm("block_{i}/attention/query_norm", "blocks.{i}.attn.q_norm"),
    **torch_norm("block_{i}/attention/key_norm", "blocks.{i}.attn.k_norm"),
    "block_{i}/attention/rotary/frequencies": ("rope.freqs.{i}", "same"),
    "block_{i}/attention/position_bias/table": (
        "blocks.{i}.attn.relative_position_bias_table",
        "same",
    ),
    **position_mlp(
        "block_{i}/attention/position_bias", "blocks.{i}.attn.rel_pos.mlp"
    ),
    "position_bias/table": (
        "shared_rel_pos.relative_position_bias_table",
        "same",
    ),
    **position_mlp("position_bias", "shared_rel_pos.mlp"),
    **torch_norm("block_{i}/attention/inner_norm", "blocks.{i}.attn.norm"),
    **heads_dense(
        "block_{i}/attention/logits_projection", "blocks.{i}.attn.proj_l"
    ),
    **heads_dense(
        "block_{i}/attention/weights_projection", "blocks.{i}.attn.proj_w"
    ),
    "block_{i}/attention/lambdas": (
        tuple("blocks.{i}.attn.lambda_" + x for x in LAMBDAS),
        "stacked_vectors",
    ),
    "block_{i}/attention/heads_norm/gamma": (
        "blocks.{i}.attn.sub_norm.weight",
        "same",
    ),
    "block_{i}/attention_scale/gamma": ("blocks.{i}.ls1.gamma", "same"),
    **torch_norm("block_{i}/mlp/inner_norm", "blocks.{i}.mlp.norm"),
    "block_{i}/mlp_scale/gamma": ("blocks.{i}.ls2.gamma", "same"),
    **class_block("class_block_{i}", "blocks_token_only.{i}"),
    **torch_norm("encoder_norm", "norm"),
    "pool/probe": ("attn_pool.latent", "same"),
    **torch_dense("pool/query", "attn_pool.q"),
    **torch_dense(
        "pool/key_value", "attn_pool.kv", "torch_kv_rows", "torch_kv_rows"
    ),
    **torch_dense("pool/out", "attn_pool.proj"),
    **torch_norm("pool/norm", "attn_pool.norm"),
    **torch_dense("pool/mlp/dense", "attn_pool.mlp.fc1"),
    **torch_dense("pool/mlp/dense_1", "attn_pool.mlp.fc2"),
    **torch_dense("pre_logits", "pre_logits.fc"),
    **torch_dense("predictions", "head"),
    **torch_convolution("root_conv", f"{BACKBONE}.stem.conv"),
    **torch_norm("root_norm", f"{BACKBONE}.stem.norm"),
    **unit(BACKBONE + ".stages.{s0}.blocks.{u0}"),
}
SAM = {**SAM_ENCODER, **torch_dense("predictions", "head.fc")}

# Blocks whose attention and MLP share their first projection ...
PARALLEL = {
    **torch_norm("block_{i}/attention_norm", "blocks.{i}.in_norm"),
    **{
        f"block_{{i}}/{ours}/{weight}": (f"blocks.{{i}}.in_proj.{name}", part)
        for ours, part in (
            ("attention/qkv", "qkv_behind_mlp"),
            ("mlp/dense", "mlp_before_qkv"),
        )
        for weight, name in (("kernel", "weight"), ("bias", "bias"))
    },
    **torch_norm("block_{i}/attention/query_norm", "blocks.{i}.q_norm"),
    **torch_norm("block_{i}/attention/key_norm", "blocks.{i}.k_norm"),
    "block_{i}/attention/lambdas": (
        tuple("blocks.{i}.lambda_" + x for x in LAMBDAS),
        "stacked_vectors",
    ),
    "block_{i}/attention/heads_norm/gamma": (
        "blocks.{i}.sub_norm.weight",
        "same",
    ),
    "block_{i}/attention/out/kernel": (
        "blocks.{i}.attn_out_proj.weight",
        "linear",
    ),
    "block_{i}/attention/out/bias": (
        (
            "blocks.{i}.attn_out_proj.bias",
            "blocks.{i}.mlp_out_proj.bias",
        ),
        "summed",
    ),
    "block_{i}/mlp/dense_1/kernel": (
        "blocks.{i}.mlp_out_proj.weight",
        "linear",
    ),
    "block_{i}/attention_scale/gamma": ("blocks.{i}.ls.gamma", "same"),
}
# ... without biases for query, key and value ...
MLP_BIAS = {"block_{i}/mlp/dense/bias": ("blocks.{i}.mlp_bias", "same")}
# ... and the last projection.
FUSED_OUTPUT = {
    "block_{i}/attention/out/kernel": (
        "blocks.{i}.out_proj.weight",
        "out_before_mlp",
    ),
    "block_{i}/attention/out/bias": ("blocks.{i}.out_proj.bias", "same"),
    "block_{i}/mlp/dense_1/kernel": (
        "blocks.{i}.out_proj.weight",
        "mlp_behind_out",
    ),
}
DISTILLED = {
    "class_token/token": (("cls_token", "dist_token"), "tokens"),
}
# MobileCLIP's, whose last convolution is the projection.
PATCH_STEM = torch_dense(
    "patch_embed/projection", f"{BACKBONE}.2.conv", kernel="convolution"
)
REGISTERS = {
    "class_token/token": (("cls_token", "reg_token"), "token_and_registers"),
}
REGISTERS_ALONE = {"class_token/token": ("reg_token", "same")}
# DeiT III's own files.
GAMMAS = {
    "block_{i}/attention_scale/gamma": ("blocks.{i}.gamma_1", "same"),
    "block_{i}/mlp_scale/gamma": ("blocks.{i}.gamma_2", "same"),
}
# NaFlexViT's: a dense layer of patches, and a grid of positions, or one for the
# rows and one for the columns.
FLAT_PATCHES = {
    "patch_embed/projection/kernel": ("patch_embed.flat.weight", "patches"),
}
POSITION_GRID = {
    "position_embedding/embedding": ("pos_grid", "grid_behind_prefix"),
}
POSITION_AXES = {
    "position_embedding/embedding": (("pos_y", "pos_x"), "axes_behind_prefix"),
}
# EVA's and BEiT's, whose keys have no bias.
QUERY_VALUE_BIASES = {
    "block_{i}/attention/qkv/bias": (
        ("blocks.{i}.attn.q_bias", "blocks.{i}.attn.v_bias"),
        "torch_query_value",
    ),
}
# Those of relpos models, in a module of their own.
RELATIVE_TABLES = {
    "block_{i}/attention/position_bias/table": (
        "blocks.{i}.attn.rel_pos.relative_position_bias_table",
        "same",
    ),
}
SEPARATE_QKV = {
    "block_{i}/attention/qkv/kernel": (
        tuple("blocks.{i}.attn." + f"{x}_proj.weight" for x in "qkv"),
        "torch_qkv",
    ),
    "block_{i}/attention/qkv/bias": (
        tuple("blocks.{i}.attn." + f"{x}_proj.bias" for x in "qv"),
        "torch_query_value",
    ),
}
# Sapiens2's, whose keys have a bias and may have fewer heads.
GROUPED_QKV = {
    f"block_{{i}}/attention/qkv/{weight}": (
        tuple(f"blocks.{{i}}.attn.{x}_proj.{name}" for x in "qkv"),
        "torch_grouped_qkv",
    )
    for weight, name in {"kernel": "weight", "bias": "bias"}.items()
}
SEPARATE_GATES = {
    "block_{i}/mlp/dense/kernel": (
        ("blocks.{i}.mlp.fc1_g.weight", "blocks.{i}.mlp.fc1_x.weight"),
        "gates_and_values",
    ),
    "block_{i}/mlp/dense/bias": (
        ("blocks.{i}.mlp.fc1_g.bias", "blocks.{i}.mlp.fc1_x.bias"),
        "gate_and_value_biases",
    ),
}
AVERAGED_HEADS = {
    "predictions/kernel": (
        ("head.weight", "head_dist.weight"),
        "average_heads",
    ),
    "predictions/bias": (("head.bias", "head_dist.bias"), "average_biases"),
}
# Of a tower of open_clip, from the features to those of the texts.
PROJECTED = {"predictions/kernel": ("projection.weight", "linear")}
OPEN_CLIP_ALIASES = (
    (r"trunk\.(.*)", r"\1"),
    (r"head\.proj\.weight", "projection.weight"),
)
NORM_AFTER_POOLING = torch_norm("encoder_norm", "fc_norm")
PREFIX_WITHOUT_POSITION = {
    "position_embedding/embedding": ("pos_embed", "behind_prefix"),
}
ROOT_ONLY = {
    **torch_convolution("root_conv", f"{BACKBONE}.conv"),
    **torch_norm("root_norm", f"{BACKBONE}.norm"),
}
MIXER = {
    **torch_dense("patch_embed/projection", "stem.proj", kernel="convolution"),
    **torch_norm("block_{i}/token_norm", "blocks.{i}.norm1"),
    **torch_dense("block_{i}/token_mixing/dense", "blocks.{i}.mlp_tokens.fc1"),
    **torch_dense(
        "block_{i}/token_mixing/dense_1", "blocks.{i}.mlp_tokens.fc2"
    ),
    **torch_norm("block_{i}/channel_norm", "blocks.{i}.norm2"),
    **torch_dense(
        "block_{i}/channel_mixing/dense", "blocks.{i}.mlp_channels.fc1"
    ),
    **torch_dense(
        "block_{i}/channel_mixing/dense_1", "blocks.{i}.mlp_channels.fc2"
    ),
    **torch_norm("encoder_norm", "norm"),
    **torch_dense("predictions", "head"),
    # Of ResMLP.
    **torch_dense("block_{i}/token_mixing", "blocks.{i}.linear_tokens"),
    "block_{i}/token_scale/gamma": ("blocks.{i}.ls1", "same"),
    "block_{i}/channel_scale/gamma": ("blocks.{i}.ls2", "same"),
}
AFFINE = {
    f"{ours}/{weight}": (f"{theirs}.{name}", "vector_3d")
    for ours, theirs in (
        ("block_{i}/token_norm", "blocks.{i}.norm1"),
        ("block_{i}/channel_norm", "blocks.{i}.norm2"),
        ("encoder_norm", "norm"),
    )
    for weight, name in (("gamma", "alpha"), ("beta", "beta"))
}
# Of gMLP.
SPATIAL_GATING = {
    **torch_norm("block_{i}/channel_norm", "blocks.{i}.norm"),
    **torch_norm(
        "block_{i}/channel_mixing/gate/norm",
        "blocks.{i}.mlp_channels.gate.norm",
    ),
    **torch_dense(
        "block_{i}/channel_mixing/gate/dense",
        "blocks.{i}.mlp_channels.gate.proj",
    ),
}
# Of gMixer, whose gates come after the values.
GATES_LAST = {
    **torch_dense(
        "block_{i}/token_mixing/dense",
        "blocks.{i}.mlp_tokens.fc1",
        "gates_last",
        "gates_last_biases",
    ),
    **torch_dense(
        "block_{i}/channel_mixing/dense",
        "blocks.{i}.mlp_channels.fc1",
        "gates_last",
        "gates_last_biases",
    ),
}

RESNET_UNIT = "stages.{s0}.blocks.{u0}"
BIT = {
    **torch_convolution("root_conv", "stem.conv"),
    **torch_convolution("root_conv1", "stem.conv1"),
    **resnet_norm("root_norm1", "stem.norm1"),
    **torch_convolution("root_conv2", "stem.conv2"),
    **resnet_norm("root_norm2", "stem.norm2"),
    **torch_convolution("root_conv3", "stem.conv3"),
    **preactivated_unit(RESNET_UNIT),
    **resnet_norm("stage{s}_unit{u}_norm1", f"{RESNET_UNIT}.norm1"),
    **resnet_norm("stage{s}_unit{u}_norm2", f"{RESNET_UNIT}.norm2"),
    **resnet_norm("stage{s}_unit{u}_norm3", f"{RESNET_UNIT}.norm3"),
    **resnet_norm("encoder_norm", "norm"),
    **torch_dense("predictions", "head.fc", kernel="linear_1x1"),
}

BIT_CONSTANTS = {
    **{"standardization": "variance", "standardization_epsilon": 1e-8},
    **{"group_norm_epsilon": 1e-5, "root_padding": "zeros"},
    **{"downsampling": "convolution", "activation": "relu"},
}
# ResNets of BiT's units without its weight standardisation: those with
# another normalisation, and those with a deep stem.
PLAIN_RESNET = {"standardization": None, "root_padding": "lowest"}
# NaFlexViT, whose patches are a dense layer and whose positions are a grid.
NAFLEX_ALIASES = (
    (r"embeds\.(cls_token|reg_token)", r"\1"),
    (r"embeds\.proj\.weight", "patch_embed.flat.weight"),
    (r"embeds\.proj\.bias", "patch_embed.proj.bias"),
    (r"embeds\.pos_embed", "pos_grid"),
    (r"embeds\.pos_embed_([xy])", r"pos_\1"),
)
# Sapiens2 under the names of its authors, as in timm's repositories of it.
SAPIENS2_ALIASES = (
    (r"storage_tokens", "reg_token"),
    (r"patch_embed\.projection\.(.*)", r"patch_embed.proj.\1"),
    (r"(blocks\.\d+\.attn)\.w([qkv])\.(.*)", r"\1.\2_proj.\3"),
    (r"(blocks\.\d+)\.attn\.gamma\.weight", r"\1.gamma_1"),
    (r"(blocks\.\d+)\.ffn\.w12\.(.*)", r"\1.mlp.fc1.\2"),
    (r"(blocks\.\d+)\.ffn\.w3\.(.*)", r"\1.mlp.fc2.\2"),
    (r"(blocks\.\d+)\.ln([12])\.(.*)", r"\1.norm\2.\3"),
    (r"ln1\.(.*)", r"norm.\1"),
)
# EVA-02 under the names of its authors.
EVA_ALIASES = (
    (r"(blocks\.\d+\.attn)\.([qv])_bias", r"\1.\2_proj.bias"),
    (r"(blocks\.\d+)\.attn\.inner_attn_ln\.(.*)", r"\1.attn.norm.\2"),
    (r"(blocks\.\d+)\.mlp\.ffn_ln\.(.*)", r"\1.mlp.norm.\2"),
    (r"(blocks\.\d+)\.mlp\.w1\.(.*)", r"\1.mlp.fc1_g.\2"),
    (r"(blocks\.\d+)\.mlp\.w2\.(.*)", r"\1.mlp.fc1_x.\2"),
)
GATES_ALIASES = (
    (r"(blocks\.\d+)\.mlp\.w12\.(.*)", r"\1.mlp.fc1.\2"),
    (r"(blocks\.\d+)\.mlp\.w3\.(.*)", r"\1.mlp.fc2.\2"),
)
# What stood for hidden patches in pre-training.
MASK_TOKEN = r"(embeddings\.)?mask_token"
UNSUPPORTED = {
    r"blocks\.\d+\.attn\.(rel_pos.*|relative_position.*)": (
        "relative position embeddings"
    ),
    r"decoder.*": "a decoder for masked images",
    r"rel_pos_bias\..*": "relative positions that all blocks share (BEiT)",
    r"lm_head\..*": "a head that predicts visual tokens",
    **BATCH_NORM,
    r"blocks\.\d+\.attn\.[qv]_bias": (
        "biases of queries and values alone (BEiT, EVA)"
    ),
    r"neck\..*": "a last normalisation with an epsilon of its own (SAM)",
}
# Frequencies of mixed rotary positions, (2, L, H, d / 2).
STACKS = {r"rope\.freqs": (1, "rope.freqs.{i}")}
# The fields of which its models have other values than the default.
OPTIONS = {
    "vit": PLAIN_OPTIONS["vit"]
    | {
        *("key_value_heads", "mlp_layer_scale", "rope", "rope_temperature"),
        *("rope_offset", "rope_axes", "rope_reference_grid", "rope_pairs"),
        *("relative_position_bias", "relative_position_kind"),
        *("relative_position_dim", "relative_positions_shared"),
        *("window_size", "global_attention_blocks", "key_bias"),
        *("projection_bias", "qk_norm", "attention_inner_norm"),
        *("talking_heads", "differential_attention", "mlp_placement"),
        *("class_attention_layers", "mlp_inner_norm", "gated_mlp"),
        *("normalization", "norm_placement", "final_norm", "patch_norm"),
        *("neck_dim", "pool_prefix_tokens", "pool_num_heads"),
        *("pool_mlp_dim", "norm_after_pooling", "patch_stem"),
        "patch_stem_dim",
    },
    "mixer": PLAIN_OPTIONS["mixer"]
    | {"mixing", "gated_mlp", "normalization", "layer_scale_init"},
    "bit": PLAIN_OPTIONS["bit"]
    | {
        *("unit", "stem", "root_padding", "downsampling", "normalization"),
        *("activation", "standardization"),
    },
}

TABLE = pathlib.Path(__file__).with_name("timm_architectures.csv")
# Tensors by which the architectures differ.
MARKS = {
    "class_token": "cls_token",
    "distillation_token": "dist_token",
    "registers": "reg_token",
    "positions": "pos_embed",
    "patch_bias": "patch_embed.proj.bias",
    "flat_patches": "patch_embed.flat.weight",
    "position_grid": "pos_grid",
    "position_axes": "pos_y",
    "patch_norm": "patch_embed.norm.weight",
    "resnet": "patch_embed.backbone.stem.conv.weight",
    "patch_stem": "patch_embed.backbone.2.conv.weight",
    "first_norm": "norm_pre.weight",
    "qkv_bias": "blocks.0.attn.qkv.bias",
    "layer_scale": "blocks.0.ls1.gamma",
    "gamma": "blocks.0.gamma_1",
    "gamma_2": "blocks.0.gamma_2",
    "separate_qkv": "blocks.0.attn.q_proj.weight",
    "key_bias": "blocks.0.attn.k_proj.bias",
    "query_bias": "blocks.0.attn.q_bias",
    "query_norm": "blocks.0.attn.q_norm.weight",
    "attention_norm": "blocks.0.attn.norm.weight",
    "talking_heads": "blocks.0.attn.proj_l.weight",
    "class_attention": "blocks_token_only.0.attn.q.weight",
    "differential": "blocks.0.attn.lambda_q1",
    "parallel": "blocks.0.in_proj.weight",
    "parallel_bias": "blocks.0.in_proj.bias",
    "parallel_norm": "blocks.0.in_norm.bias",
    "parallel_scale": "blocks.0.ls.gamma",
    "parallel_differential": "blocks.0.lambda_q1",
    "fused_output": "blocks.0.out_proj.weight",
    "relative_positions": "blocks.0.attn.relative_position_bias_table",
    "relative_tables": "blocks.0.attn.rel_pos.relative_position_bias_table",
    "relative_mlp": "blocks.0.attn.rel_pos.mlp.fc1.weight",
    "decomposed_positions": "blocks.0.attn.rel_pos_h",
    "neck": "neck.0.weight",
    "neck_norm": "neck.weight",
    "shared_table": "shared_rel_pos.relative_position_bias_table",
    "shared_mlp": "shared_rel_pos.mlp.fc1.weight",
    "projection_bias": "blocks.0.attn.proj.bias",
    "gates": "blocks.0.mlp.fc1_g.weight",
    "mlp_norm": "blocks.0.mlp.norm.weight",
    "layer_norm": "blocks.0.norm1.bias",
    "frequencies": "rope.freqs.0",
    "norm": "norm.weight",
    "norm_after_pooling": "fc_norm.weight",
    "attention_pooling": "attn_pool.latent",
}
GAMMA_MARKS = {"gamma", "gamma_2"}
PIXELS = ("pixel_mean", "pixel_std")
UNTOLD = ("num_heads", "activation", "layer_norm_epsilon", "pooling")
PLAIN = "ViT"  # The kind that the models here compute.


class Architecture(NamedTuple):
    """One of timm's architectures with the tensors of a Vision Transformer."""

    kind: str
    """`PLAIN`, or the class in timm that computes something else."""

    width: int
    num_heads: int
    activation: str
    layer_norm_epsilon: float
    pooling: str
    """In timm's words: "token", "avg", "map", "max", "avgmax" or ""."""

    image_size: tuple
    marks: tuple
    """What `marks_of` its tensors are."""

    is_published: bool
    """Whether there are weights of it."""

    pixels: tuple
    """(mean, deviation) of the pixels in all weights of it; () if they differ
    or there are none."""

    options: dict
    """Those of `OPTIONS` that are not as in the paper, and "resampling" where
    it is not timm's usual."""


@functools.cache
def architectures() -> dict[str, Architecture]:
    """Read all architectures, as `tools/make_timm_table.py` found them."""
    with TABLE.open(newline="", encoding="utf-8") as file:
        return {row.pop("name"): _parsed(row) for row in csv.DictReader(file)}


def _parsed(row) -> Architecture:
    return Architecture(
        row["kind"],
        int(row["width"]),
        int(row["num_heads"]),
        row["activation"],
        float(row["layer_norm_epsilon"]),
        row["pooling"],
        tuple(map(int, row["image_size"].split("x"))),
        tuple(row["marks"].split()),
        row["is_published"] == "1",
        tuple(
            tuple(map(float, part.split())) for part in row["pixels"].split("|")
        )
        if row["pixels"]
        else (),
        json.loads(row["options"] or "{}"),
    )


def find(name: str) -> Architecture | None:
    """Find the architecture that a path or a name of timm names, or None.

    Args:
        name: such as "vit_base_patch16_224.augreg_in21k", a file with such a
            name, or one in a folder with such a name.
    """
    for part in reversed(re.split(r"[/\\]|--", os.fspath(name))[-5:]):
        found = architectures().get(part.partition(".")[0])
        if found is not None:
            return found
    return None


def marks_of(tensors: Mapping) -> tuple:
    """Return the keys of `MARKS` whose tensors are there, by name.

    Also "packed_gates" where the first layer of the MLPs is twice as wide as
    the second is deep. The values of `tensors` have a shape.
    """
    marks = [mark for mark, name in MARKS.items() if name in tensors]
    first, second = (tensors.get(f"blocks.0.mlp.fc{i}.weight") for i in (1, 2))
    if first is not None and second is not None:
        if first.shape[0] == 2 * (*second.shape, 0, 0)[1]:
            marks.append("packed_gates")
    return tuple(marks)


def alike(marks: tuple, width: int) -> list[Architecture]:
    """List published architectures with the same tensors.

    Those of the same width, or of any where there is none of it.
    """
    named = {frozenset(marks)}
    if GAMMA_MARKS <= set(marks):
        # DeiT-III's own files have the names of timm's rotary models.
        named.add(frozenset({*marks, "layer_scale"} - GAMMA_MARKS))
    found = [x for x in architectures().values() if frozenset(x.marks) in named]
    found = [x for x in found if x.is_published]
    return [x for x in found if x.width == width] or found


def fields_of_file(
    path, tensors, width, name: str | None, known, arguments: Mapping
) -> dict:
    """Return the fields of a `ViTConfig` that timm's architectures tell.

    That of the name; or that which the path names, if the tensors are its;
    or what all published ones with these tensors have in common.

    Args:
        path: str, the file.
        tensors: dict from the names of its tensors to what has their shape.
        width: int, D.
        name: what somebody called the architecture, or None.
        known: fields that are known otherwise, so that they may differ.
        arguments: what the model was built with, by its config.json.

    Raises:
        ValueError: for an unknown name, an architecture that the models here
            do not have or that the tensors are not of, and where architectures
            with these tensors differ.
    """
    marks = marks_of(tensors)
    found = _named(path, name)
    if found is None:
        found = find(path)
        if found is not None and set(found.marks) != set(marks):
            found = None  # The file only has the name of something else.
    likely = alike(marks, width) if found is None else [found]
    _check_norms(path, marks, likely, known)
    if found is not None:
        _check_kind(path, name or path, found)
        _check_marks(path, marks, name, found, arguments, known)
        fields = {**_fields_of(found, width), "image_size": found.image_size}
        if GATES.isdisjoint(marks) != GATES.isdisjoint(found.marks):
            fields["activation"] = "gelu" if GATES.isdisjoint(marks) else "silu"
        return fields
    return _in_common(path, likely, width, known)


# Its MLPs with gates have SiLU and the others GELU, whatever the architecture.
GATES = {"gates", "packed_gates"}
AVERAGES = ("avg", "avgmax", "max")
# Marks that come with what no tensor shows, and the arguments of which the
# first that is given tells whether they are there, by its values.
WITNESSES = {
    "class_token": {"class_token": (True,)},
    "norm_after_pooling": {
        "fc_norm": (True,),
        "use_fc_norm": (True,),
        "global_pool": AVERAGES,
    },
    "attention_pooling": {"global_pool": ("map",)},
    "decomposed_positions": {"use_rel_pos": (True,)},
    "packed_gates": {"swiglu_mlp": (True,)},
}
OF_POOLINGS = ("class_token", "norm_after_pooling", "attention_pooling")


def _check_marks(path, marks, name, found, arguments, known) -> None:
    """Refuse tensors of another pooling, windows or gates than they are said.

    What else the tensors show is built as they show it.
    """
    by_caller = "pooling" in known and arguments.get("global_pool") is None
    for mark, told in WITNESSES.items():
        if mark in OF_POOLINGS and by_caller:
            continue
        same = GATES if mark in GATES else {mark}
        usual = not same.isdisjoint(found.marks)
        given = {x: arguments[x] for x in told if arguments.get(x) is not None}
        expected = usual
        for argument, value in given.items():
            if argument != "global_pool" or value != found.pooling:
                expected = value in told[argument]
            break
        shown = not same.isdisjoint(marks)
        if shown == expected or not _matters(mark, found):
            continue
        tensor = " or ".join(MARKS.get(x, "mlp.fc1 of gates") for x in same)
        said = "".join(f", {x}={y!r}" for x, y in given.items())
        has, does = ("has", "does not") if shown else ("has no", "does")
        refuse(
            path,
            f"{has} {tensor}, but the architecture "
            f"{str(name or path)[-100:]!r}{said} {does}",
            "Give the architecture or the config.json that it was trained "
            "with; or, with architecture=..., its pooling=...",
        )


def _matters(mark, architecture) -> bool:
    """Return whether a mark tells what a model of this architecture pools."""
    if mark == "class_token":  # It changes no mean.
        return architecture.pooling == "token"
    of_tokens = {"distillation_token", "class_attention", "neck"}
    return mark != "norm_after_pooling" or of_tokens.isdisjoint(
        architecture.marks
    )


def _check_norms(path, marks, architectures, known) -> None:
    """Refuse norms that are missing where no architecture is without them."""
    expected = {mark for x in architectures for mark in x.marks}
    last = {"norm", "norm_after_pooling"}
    missing = {
        "final_norm": not last & {*marks}
        and bool(last & expected or not architectures),
        "normalization": "layer_norm" not in marks
        and ("layer_norm" in expected or not architectures),
    }
    lacking = [x for x, y in missing.items() if y and x not in known]
    if lacking:
        weight = {
            "final_norm": "encoder_norm/gamma, the last normalisation",
            "normalization": "block_0/attention_norm/beta, its offset",
        }
        refuse(
            path,
            f"has no weight for {' and '.join(weight[x] for x in lacking)}",
            "It is of an architecture that the models here do not have, or "
            f"was cut off; if it is meant so, give {lacking[0]}=...",
        )


def _in_common(path, architectures, width, known) -> dict:
    """Return the fields in which all of some architectures agree."""
    missing = [f"{x}=..." for x in UNTOLD if x not in known]
    if missing and not architectures:
        refuse(
            path,
            "has tensors that no published architecture has together",
            'Give architecture="..." in timm\'s words, the config.json that '
            f"belongs to the file, or all of {', '.join(missing)}.",
        )
    kinds = sorted({x.kind for x in architectures})
    different = {json.dumps(x.options) for x in architectures}
    if kinds not in ([], [PLAIN]) or len(different) > 1:
        shown = [f"{kind} of timm" for kind in kinds]
        refuse(
            path,
            "has tensors that architectures of several kinds have: "
            f"{' and '.join([*shown, *sorted(different)])}, which compute "
            "different things",
            'Give architecture="..." in timm\'s words, or the config.json '
            "that belongs to the file.",
        )
    readings = [_fields_of(x, width) for x in architectures]
    common = readings[0] if readings else {}
    if len({x.pixels for x in architectures}) > 1:
        common = {k: x for k, x in common.items() if k not in PIXELS}
    for field, argument in {
        "activation": 'activation="gelu", "gelu_tanh" or "quick_gelu"',
        "num_heads": "num_heads=...",
        "pooling": "pooling=...",
        "layer_norm_epsilon": "layer_norm_epsilon=...",
    }.items():
        values = sorted({x[field] for x in readings if x.get(field)}, key=str)
        if len(values) > 1 and field not in known:
            refuse(
                path,
                f"does not tell its {field}, which is "
                f"{' or '.join(map(repr, values))} in the architectures with "
                "these tensors",
                f'Give {argument}, or architecture="..." in timm\'s words.',
            )
    return common


def _named(path, name) -> Architecture | None:
    """Find the architecture of a name that somebody gave."""
    if name is None:
        return None
    found = find(name)
    if found is None:
        near = difflib.get_close_matches(str(name), architectures(), n=1)
        refuse(
            path,
            f"is of the architecture {str(name)[:100]!r}, which is no Vision "
            "Transformer of timm that is known here",
            f"Did you mean {near[0]!r}?" if near else "Choose another file.",
        )
    return found


def _check_kind(path, name, found):
    if found.kind != PLAIN:
        refuse(
            path,
            f"is of the architecture {str(name)[-100:]!r}, {found.kind} in "
            "timm, which computes something else than the models here",
            "Choose another file.",
        )


def _fields_of(architecture, width) -> dict:
    """Return the fields of an architecture; heads for its own width alone."""
    fields = {
        "activation": architecture.activation,
        "layer_norm_epsilon": architecture.layer_norm_epsilon,
        "pooling": POOLINGS.get(architecture.pooling),
        **architecture.options,
    }
    if architecture.pixels:
        same = {x for part in architecture.pixels for x in part} == {0.5}
        found = (None, None) if same else architecture.pixels
        fields |= zip(PIXELS, found, strict=True)
    if architecture.width == width:
        fields["num_heads"] = architecture.num_heads
    return fields


def read_architecture(checkpoint, architecture: str | None, known) -> dict:
    """Return the fields of a Vision Transformer that its architecture tells.

    Args:
        checkpoint: a recognised file.
        architecture: its name, where somebody tells it.
        known: names of fields that are known otherwise.
    """
    file = checkpoint.file
    if "projected" in checkpoint.features and architecture is None:
        refuse(
            file.path,
            "is a tower of open_clip, and does not tell whether it projects "
            "the token or the mean",
            "Load its folder with open_clip_config.json, or give "
            'architecture="..." in timm\'s words if it pools as that does.',
        )
    width = checkpoint.checked_shape("patch_embed/projection/kernel", 4)[3]
    arguments = file.config.get(BUILT_WITH, {})
    return fields_of_file(
        file.path, file.tensors, width, architecture, known, arguments
    )


def check_layout(checkpoint, architecture: str | None) -> None:
    """Refuse the name of a Vision Transformer for a file of another family."""
    families = {"mixer": "a Mixer", "bit": "a ResNet"}
    family = families.get(checkpoint.layout.family)
    if family and architecture and find(architecture):
        refuse(
            checkpoint.file.path,
            f"holds {family}, but {architecture!r} is a Vision Transformer",
            "Give the architecture or the config.json of the file.",
        )


def read_gates(checkpoint, architecture: str | None, known) -> dict:
    """Return the activation of a Mixer with gates, which nothing else tells."""
    names = (architecture, pathlib.Path(checkpoint.file.path).name)
    if not any("gmixer_" in (x or "") for x in names):
        refuse(
            checkpoint.file.path,
            "has gated MLPs and does not tell their activation",
            "Put the config.json that belongs to it beside it, or give "
            'activation="silu", as timm\'s gMixers have it.',
        )
    return {"activation": "silu"}


def find_pooling(checkpoint, fields) -> str | None:
    """Return the pooling of DeiT's features; None of other models."""
    is_distilled = fields["distillation_token"] and not fields["num_classes"]
    return "prefix_mean" if is_distilled else None


DIALECT = Dialect(
    "timm",
    is_config=is_config,
    read_config=read_config,
    read_preprocessing=read_preprocessing,
    read_trained_as=read_trained_as,
    usual_images=usual_images,
    example_of_architecture="vit_base_patch16_clip_224",
    check_layout=check_layout,
    scales_pixels_variously=True,
    untold=UNTOLD,
    metadata=metadata,
    folder_problems=find_folder_problems,
    folder_files=folder_files,
)


def usage(repository, revision, channels, config) -> str:
    """Return Markdown with the code that loads a repository."""
    branch = f"@{revision}" if revision else ""
    code = python_block(
        "import timm",
        "",
        f'model = timm.create_model("hf-hub:{repository}{branch}", '
        "pretrained=True).eval()",
        "config = timm.data.resolve_model_data_config(model)",
        "transform = timm.data.create_transform(**config)",
    )
    return f"In timm:\n\n{code}"


def load_folder(path):
    """Load a folder by timm itself, as a torch module."""
    import timm

    return timm.create_model(f"local-dir:{path}", pretrained=True).eval()


LIBRARY = Library("timm", "timm", ("pyTorch",), usage, load_folder=load_folder)
VIT_POOLINGS = (
    *("token", "mean", "max", "map", "prefix", "prefix_mean", "none"),
)
PLAIN_VIT = Layout(
    DIALECT,
    "timm",
    "vit",
    VIT,
    marks=(
        ("patch_embed.proj.weight", "blocks.0.attn.qkv.weight"),
        ("patch_embed.proj.weight", "blocks.0.attn.q_proj.weight"),
        ("patch_embed.flat.weight", "blocks.0.attn.qkv.weight"),
        ("patch_embed.backbone.2.conv.weight", "blocks.0.attn.qkv.weight"),
        ("patch_embed.proj.weight", "blocks.0.in_proj.weight"),
    ),
    aliases=(
        *CHUNKS,
        *GATES_ALIASES,
        *OPEN_CLIP_ALIASES,
        *NAFLEX_ALIASES,
        *SAPIENS2_ALIASES,
    ),
    variants={
        "projected": PROJECTED,
        "distillation_token": DISTILLED,
        "averaged_heads": AVERAGED_HEADS,
        "norm_after_pooling": NORM_AFTER_POOLING,
        "prefix_without_position": (PREFIX_WITHOUT_POSITION),
        "root_only": ROOT_ONLY,
        "patch_stem": PATCH_STEM,
        "registers": REGISTERS,
        "registers_alone": REGISTERS_ALONE,
        "gammas": GAMMAS,
        "parallel": PARALLEL,
        "mlp_bias": MLP_BIAS,
        "fused_output": FUSED_OUTPUT,
        "query_value_biases": QUERY_VALUE_BIASES,
        "relative_tables": RELATIVE_TABLES,
        "separate_qkv": SEPARATE_QKV,
        "grouped_qkv": GROUPED_QKV,
        "separate_gates": SEPARATE_GATES,
        "flat_patches": FLAT_PATCHES,
        "position_grid": POSITION_GRID,
        "position_axes": POSITION_AXES,
    },
    signs={
        "projected": "projection.weight",
        "registers": "reg_token",
        "gammas": "blocks.0.gamma_1",
        "parallel": "blocks.0.in_proj.weight",
        "mlp_bias": "blocks.0.mlp_bias",
        "fused_output": "blocks.0.out_proj.weight",
        "query_value_biases": "blocks.0.attn.q_bias",
        "relative_tables": (
            "blocks.0.attn.rel_pos.relative_position_bias_table"
        ),
        "separate_qkv": "blocks.0.attn.q_proj.weight",
        "grouped_qkv": "blocks.0.attn.k_proj.bias",
        "separate_gates": "blocks.0.mlp.fc1_g.weight",
        "flat_patches": "patch_embed.flat.weight",
        "position_grid": "pos_grid",
        "position_axes": "pos_y",
        "distillation_token": "dist_token",
        "averaged_heads": "head_dist.weight",
        "norm_after_pooling": "fc_norm.weight",
        "root_only": "patch_embed.backbone.conv.weight",
        "patch_stem": "patch_embed.backbone.2.conv.weight",
    },
    constants={**EXACT_GELU, **TORCH_RESNET},
    # What it started at no file tells, nor does it matter any more.
    implied={"block_0/attention_scale/gamma": {"layer_scale_init": 1e-5}},
    ignored=(
        MASK_TOKEN,
        r"rope_embed\.periods",
        r"(blocks\.\d+\.attn\.)?rope\.freqs_(cos|sin)",
        r"(blocks\.\d+\.attn|rel_pos_bias)\.relative_position_index",
        r"decoder_\w+(\..*)?",  # of MAE
        r"patch_embed\.backbone\.\d\.bn\.num_batches_tracked",
    ),
    beside=CONTRASTIVE,
    unsupported=UNSUPPORTED,
    resampling="bicubic_antialiased",
    container="either",
    settable=("activation", "layer_norm_epsilon"),
    # Old files have it; timm itself dropped the layer.
    unwritable=(r"pre_logits/.*",),
    optional=("patch_bias", "qkv_bias", "projection_bias"),
    stacks=STACKS,
    read_architecture=read_architecture,
    find_pooling=find_pooling,
    check_values=check_periods,
    options=OPTIONS["vit"],
    poolings=VIT_POOLINGS,
    unpositioned="register_tokens",
    find_problems=find_problems,
)
LAYOUTS = (
    # Before timm's other models, whose names it has but for some.
    Layout(
        DIALECT,
        "timm",
        "vit",
        SAM,
        marks=SAM_MARKS,
        signs=SAM_SIGNS,
        constants={**EXACT_GELU, "layer_norm_epsilon": 1e-5},
        resampling="bicubic_antialiased",
        container="either",
        settable=("activation", "layer_norm_epsilon"),
        needs=("neck_dim",),
        optional=("qkv_bias",),
        read_architecture=read_architecture,
        find_pooling=find_pooling,
        options=OPTIONS["vit"],
        poolings=VIT_POOLINGS,
        unpositioned="register_tokens",
        find_problems=find_problems,
    ),
    dataclasses.replace(
        PLAIN_VIT,
        marks=(("patch_embed.proj.weight", "blocks.0.attn.q_proj.weight"),),
        aliases=(*EVA_ALIASES, *PLAIN_VIT.aliases),
        container="",
        options=frozenset(),
        poolings=(),
    ),
    PLAIN_VIT,
    Layout(
        DIALECT,
        "timm",
        "mixer",
        MIXER,
        marks=(
            ("stem.proj.weight", "blocks.0.mlp_tokens.fc1.weight"),
            ("stem.proj.weight", "blocks.0.linear_tokens.weight"),
            ("stem.proj.weight", "blocks.0.mlp_channels.gate.proj.weight"),
        ),
        variants={
            "affine": AFFINE,
            "spatial_gating": SPATIAL_GATING,
            "gates_last": GATES_LAST,
        },
        signs={
            "affine": "norm.alpha",
            "spatial_gating": "blocks.0.mlp_channels.gate.proj.weight",
        },
        constants=EXACT_GELU,
        implied={"block_0/token_scale/gamma": {"layer_scale_init": 1e-4}},
        container="either",
        settable=("activation", "layer_norm_epsilon"),
        read_architecture=read_gates,
        options=OPTIONS["mixer"],
        poolings=("mean", "none"),
    ),
    Layout(
        DIALECT,
        "timm",
        "bit",
        BIT,
        marks=(
            ("stem.conv.weight", "stages.0.blocks.0.conv1.weight"),
            ("stem.conv1.weight", "stages.0.blocks.0.conv1.weight"),
        ),
        constants=BIT_CONSTANTS,
        implied={
            "encoder_norm/moving_mean": PLAIN_RESNET,
            "encoder_norm/gate": PLAIN_RESNET,
            "root_conv1/kernel": {**PLAIN_RESNET, "downsampling": "average"},
        },
        ignored=(r".*\.num_batches_tracked",),
        container="either",
        settable=tuple(x for x in BIT_CONSTANTS if x != "group_norm_epsilon"),
        options=OPTIONS["bit"],
        poolings=("mean", "max", "none"),
    ),
)
