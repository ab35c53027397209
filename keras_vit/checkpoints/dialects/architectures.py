"""What the architecture of a timm file tells, which its tensors do not.

The activation, epsilon, heads and pooling of a model leave no trace in its
weights, and some models with rotary positions have the tensors of plain ones.
"""

import csv
import difflib
import functools
import json
import os
import pathlib
import re
from collections.abc import Mapping
from typing import NamedTuple

from keras_vit.checkpoints.files.folders import POOLINGS
from keras_vit.checkpoints.files.tensors import refuse

__all__ = [
    "MARKS",
    "OPTIONS",
    "PIXELS",
    "PLAIN",
    "TABLE",
    "Architecture",
    "alike",
    "fields_of_file",
    "find",
    "marks_of",
]

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
GAMMAS = {"gamma", "gamma_2"}
PIXELS = ("pixel_mean", "pixel_std")
# What else the architecture tells, as fields of a `ViTConfig`.
OPTIONS = (
    *("rope", "rope_temperature", "rope_offset", "rope_axes"),
    *("rope_reference_grid", "rope_pairs", "norm_placement"),
    *("pool_prefix_tokens", "pool_num_heads"),
)
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
    """All architectures by name, as `tools/make_timm_table.py` found them."""
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
    """The architecture that a path or a name of timm names, or None.

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
    """The keys of `MARKS` whose tensors are there, by name.

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
    """Published architectures with the same tensors.

    Those of the same width, or of any where there is none of it.
    """
    named = {frozenset(marks)}
    if GAMMAS <= set(marks):
        # DeiT-III's own files have the names of timm's rotary models.
        named.add(frozenset({*marks, "layer_scale"} - GAMMAS))
    found = [x for x in architectures().values() if frozenset(x.marks) in named]
    found = [x for x in found if x.is_published]
    return [x for x in found if x.width == width] or found


def fields_of_file(path, tensors, width, name: str | None, known) -> dict:
    """What timm's architectures tell of a file: fields of a `ViTConfig`.

    That of the name; or that which the path names, if the tensors are its;
    or what all published ones with these tensors have in common.

    Args:
        path: str, the file.
        tensors: dict from the names of its tensors to what has their shape.
        width: int, D.
        name: what somebody called the architecture, or None.
        known: fields that are known otherwise, so that they may differ.

    Raises:
        ValueError: for an unknown name, an architecture that the models here
            do not have, and where architectures with these tensors differ.
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
        return {**_fields_of(found, width), "image_size": found.image_size}
    return _in_common(path, likely, width, known)


def _check_norms(path, marks, architectures, known) -> None:
    """Refuses norms that are missing where no architecture is without them."""
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
    """The fields in which all of some architectures agree."""
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
    """The architecture of a name that somebody gave."""
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
    """The fields of an architecture; its heads for its own width alone."""
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
