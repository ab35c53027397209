"""Writes what timm says of its models, `python tools/make_timm_table.py`.

Builds each Vision Transformer of the installed timm without memory for its
weights, and writes keras_vit/checkpoints/dialects/timm_architectures.csv; all
weights that timm lists, keras_vit/checkpoints/public/timm_weights.csv; and what
timm says of the weights in keras_vit/checkpoints/public/catalog.csv whose alias
begins with "timm/": of a new row model, name and alias are enough. It takes
minutes. Stopped, it leaves the files as they were.
"""

import collections
import csv
import json
import pathlib
import re
import sys

import torch

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT / "tests" / "support"))

from timm_stub import import_timm  # noqa: E402

from keras_vit.checkpoints.dialects.timm import (  # noqa: E402
    NAFLEX_ALIASES,
    PLAIN,
    TABLE,
    Architecture,
    marks_of,
)
from keras_vit.checkpoints.public import catalog  # noqa: E402
from keras_vit.io.atomic_files import replacing  # noqa: E402
from keras_vit.models import ViTConfig  # noqa: E402

MODULES = (
    "vision_transformer",
    "deit",
    "vision_transformer_hybrid",
    "eva",
    "naflexvit",
    "beit",
    "cait",
    "vision_transformer_relpos",
    "vision_transformer_sam",
)
ALL_MODULES = (*MODULES, "resnetv2", "mlp_mixer")
# Of a Vision Transformer: its patches, and one of these.
PATCHES = {
    "patch_embed.proj.weight",
    "patch_embed.flat.weight",
    "patch_embed.backbone.2.conv.weight",
}
PROJECTIONS = {
    *("blocks.0.attn.qkv.weight", "blocks.0.attn.q_proj.weight"),
    "blocks.0.in_proj.weight",
}
ACTIVATIONS = {
    "GELU": "gelu",
    "GELUTanh": "gelu_tanh",
    "QuickGELU": "quick_gelu",
    "SiLU": "silu",
}


def main() -> None:
    timm = import_timm()
    write_weights(timm)
    write_all_weights(timm)
    write_architectures(timm)


def write_weights(timm) -> None:
    """Write what timm says of the weights of the catalogue."""
    with catalog.TABLE.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        if row["aliases"].startswith("timm/"):
            row |= row_of_weights(timm, row["aliases"].removeprefix("timm/"))
    with (
        replacing(catalog.TABLE) as temporary,
        temporary.open("w", newline="", encoding="utf-8") as file,
    ):
        writer = csv.DictWriter(file, rows[0], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    print(f"{catalog.TABLE.name}: {len(rows)} rows")


def write_all_weights(timm) -> None:
    """Write all weights that timm lists of the models here."""
    with catalog.TABLE.open(newline="", encoding="utf-8") as file:
        columns = next(csv.reader(file))
    rows = []
    for module in ALL_MODULES:
        for tag in timm.list_models(module=module, pretrained=True):
            config = timm.get_pretrained_cfg(tag)
            architecture = tag.partition(".")[0]
            usual = timm.get_pretrained_cfg(architecture).tag
            with torch.device("meta"):
                model = timm.create_model(architecture)
            numbers = sum(x.numel() for x in model.state_dict().values())
            rows.append(
                row_of_weights(timm, tag)
                | {
                    "name": f"timm/{tag}",
                    "resize": RESIZES[config.crop_mode],
                    "mebibytes": round(4 * numbers / 2**20),
                    "aliases": architecture
                    if tag.partition(".")[2] == usual
                    else "",
                }
            )
            if not config.hf_hub_id:
                rows[-1]["url"] = config.url
        print(f"{module}: {len(rows)} weights so far", flush=True)
    with (
        replacing(catalog.LIBRARY_TABLES["timm"]) as temporary,
        temporary.open("w", newline="", encoding="utf-8") as file,
    ):
        writer = csv.DictWriter(file, columns, "", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


RESIZES = {"center": "shorter_side", "squash": "squash"}


# SPDX, where there is one. The others restrict what the weights may be used
# for.
LICENCES = {
    "apache-2.0": "Apache-2.0",
    "mit": "MIT",
    "cc-by-nc-4.0": "CC-BY-NC-4.0",
}


def row_of_weights(timm, tag: str) -> dict[str, object]:
    """Return what timm says of one of its weights."""
    config = timm.get_pretrained_cfg(tag)
    is_plain = {*config.mean, *config.std} == {0.5}
    return {
        "url": f"{catalog.HUB}/{config.hf_hub_id}",
        "classes": config.num_classes,
        "labels": "imagenet" if config.num_classes == 1000 else "",
        "image_size": config.input_size[1],
        "resize": "shorter_side",
        "interpolation": config.interpolation,
        "antialias": 1,
        "crop_fraction": float(config.crop_pct),
        "mean": "" if is_plain else " ".join(map(str, config.mean)),
        "std": "" if is_plain else " ".join(map(str, config.std)),
        "licence": LICENCES.get(config.license, config.license),
        "head_is_zero": 0,
        "architecture": tag.partition(".")[0],
        "address_verified": 1,
    }


def write_architectures(timm) -> None:
    pixels = collections.defaultdict(set)
    for tag in timm.list_pretrained():
        config = timm.get_pretrained_cfg(tag)
        pair = "|".join(
            " ".join(map(str, x)) for x in (config.mean, config.std)
        )
        pixels[tag.partition(".")[0]].add(pair)
    with (
        replacing(TABLE) as temporary,
        temporary.open("w", newline="", encoding="utf-8") as file,
    ):
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["name", *Architecture._fields])
        for module in MODULES:
            names = timm.list_models(module=module)
            print(f"{module}: {len(names)} models", flush=True)
            for name in names:
                with torch.device("meta"):
                    model = timm.create_model(name, pretrained=False)
                names = set(tensors_of(model))
                if PATCHES & names and PROJECTIONS & names:
                    found = pixels[name]
                    shared = found.pop() if len(found) == 1 else ""
                    published = int(bool(found or shared))
                    row = (name, *row_of(model), published, shared)
                    options = options_of(model)
                    writer.writerow(
                        (*row, json.dumps(options) if options else "")
                    )


def row_of(model) -> tuple:
    """Return what the table says of a model of timm."""
    block = model.blocks[0]
    if hasattr(block, "in_proj"):  # The parts of parallel blocks are its own.
        attention, norm, act = block, block.in_norm, block.mlp_act
    else:
        attention, norm = block.attn, block.norm1
        act = getattr(block.mlp, "act", None)
    activation = type(act).__name__
    return (
        kind_of(model),
        model.embed_dim,
        attention.num_heads,
        ACTIVATIONS.get(activation, activation),
        getattr(norm, "eps", 0.0),
        model.global_pool,
        "x".join(map(str, model.default_cfg["input_size"][1:])),
        " ".join(marks_of(tensors_of(model))),
    )


def tensors_of(model) -> dict:
    """Return the tensors of a model under the names that loading gives."""
    found = {}
    for name, tensor in model.state_dict().items():
        for pattern, replacement in NAFLEX_ALIASES:
            if match := re.fullmatch(pattern, name):
                name = match.expand(replacement)
        # Split into those of each block.
        found[name.replace("rope.freqs", "rope.freqs.0")] = tensor
    return found


PARALLEL = ("ParallelScalingBlock", "DiffParallelScalingBlock")
# The classes of timm that keras_vit computes.
KNOWN = (
    {
        *("VisionTransformer", "VisionTransformerDistilled"),
        *("Eva", "Beit", "NaFlexVit", "VisionTransformerRelPos", "Cait"),
        "VisionTransformerSAM",
    },
    {
        *("Block", "EvaBlock", "EvaBlockPostNorm", "ResPostBlock"),
        *("RelPosBlock", "ResPostRelPosBlock", "LayerScaleBlock"),
        *PARALLEL,
    },
    {
        *("Attention", "EvaAttention", "AttentionRope", "RelPosAttention"),
        *("TalkingHeadAttn", "DiffAttention"),
    },
    {"Mlp", "GluMlp", "SwiGLU"},
    {"LayerNorm", "RmsNorm"},
)
AFTER = ("EvaBlockPostNorm", "ResPostBlock", "ResPostRelPosBlock")


def kind_of(model) -> str:
    """Return `PLAIN` for what keras_vit computes as timm does."""
    block = model.blocks[0]
    if type(block).__name__ in PARALLEL:
        return PLAIN
    parts = (model, block, block.attn, block.mlp, block.norm1)
    names = [type(part).__name__ for part in parts]
    other = [x for x, y in zip(names, KNOWN, strict=True) if x not in y]
    if type(getattr(model, "neck", None)).__name__ == "LayerNorm2d":
        other.append("a last normalisation of its own epsilon")
    if getattr(model, "rel_pos_bias", None) is not None:
        other.append("shared relative positions")
    if not other:
        return PLAIN
    other = [x for x in other if x != names[0]]
    return " with ".join([names[0], " and ".join(other)][: 1 + bool(other)])


def options_of(model) -> dict:
    """Return the fields of a `ViTConfig` that no tensor tells."""
    options = rope_of(getattr(model, "rope", None))
    if type(model.blocks[0]).__name__ in AFTER:
        options["norm_placement"] = "after"
    pool = getattr(model, "attn_pool", None)
    prefix = getattr(model, "num_prefix_tokens", 0)
    reads_all = pool is not None and type(model).__name__ == "Eva"
    options |= resampling_of(getattr(model, "embeds", None))
    if getattr(model, "pool_include_prefix", False) or reads_all and prefix:
        options["pool_prefix_tokens"] = True
    if pool is not None and pool.num_heads != model.blocks[0].attn.num_heads:
        options["pool_num_heads"] = pool.num_heads
    return options


def resampling_of(embeds) -> dict:
    """Return how a NaFlexViT resamples its positions."""
    if embeds is None:
        return {}
    method = "linear"
    if embeds.pos_embed_type == "learned":
        how = (
            embeds.pos_embed_interp_mode,
            embeds.pos_embed_antialias,
            embeds.pos_embed_align_corners,
        )
        method = RESAMPLINGS[how]
    square = "_square" if embeds.pos_embed_ar_preserving else ""
    return {"resampling": method + square}


RESAMPLINGS = {
    ("bicubic", True, False): "bicubic_antialiased",
    ("bilinear", True, False): "linear_antialiased",
    ("bilinear", False, False): "linear",
    ("bilinear", False, True): "linear_aligned",
}
ROPES = {
    "RotaryEmbeddingCat": "axial",
    "RotaryEmbeddingDinoV3": "centered",
    "RotaryEmbeddingMixed": "mixed",
}
INDEXING = {"ij": "row_first", "xy": "column_first"}


def rope_of(rope) -> dict:
    """Return the options of rotary positions."""
    if rope is None:
        return {}
    options = {
        "rope": ROPES[type(rope).__name__],
        "rope_temperature": float(rope.temperature),
        "rope_offset": float(getattr(rope, "grid_offset", 0)),
        "rope_axes": INDEXING[rope.grid_indexing],
        "rope_reference_grid": getattr(rope, "ref_feat_shape", None),
        "rope_pairs": "halves"
        if getattr(rope, "rotate_half", False)
        else "neighbors",
    }
    return {x: y for x, y in options.items() if y != getattr(ViTConfig, x)}


if __name__ == "__main__":
    main()
