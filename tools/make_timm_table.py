"""Writes what timm's architectures are, `python tools/make_timm_table.py`.

Builds each Vision Transformer of the installed timm without memory for its
weights, and writes keras_vit/checkpoints/formats/timm_architectures.csv.
"""

import collections
import csv
import pathlib
import sys

import torch

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT / "tests"))

from timm_stub import import_timm  # noqa: E402

from keras_vit.checkpoints.formats.architectures import (  # noqa: E402
    PLAIN,
    TABLE,
    Architecture,
    marks_of,
)

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
REQUIRED = {"patch_embed.proj.weight", "blocks.0.attn.qkv.weight"}
ACTIVATIONS = {
    "GELU": "gelu",
    "GELUTanh": "gelu_tanh",
    "QuickGELU": "quick_gelu",
    "SiLU": "silu",
}


def main() -> None:
    timm = import_timm()
    pixels = collections.defaultdict(set)
    for tag in timm.list_pretrained():
        config = timm.get_pretrained_cfg(tag)
        pair = "|".join(
            " ".join(map(str, x)) for x in (config.mean, config.std)
        )
        pixels[tag.partition(".")[0]].add(pair)
    with TABLE.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["name", *Architecture._fields])
        for module in MODULES:
            for name in timm.list_models(module=module):
                with torch.device("meta"):
                    model = timm.create_model(name, pretrained=False)
                if set(model.state_dict()) >= REQUIRED:
                    found = pixels[name]
                    shared = found.pop() if len(found) == 1 else ""
                    published = int(bool(found or shared))
                    writer.writerow((name, *row_of(model), published, shared))


def row_of(model) -> tuple:
    """What the table says of a model of timm."""
    block = model.blocks[0]
    activation = type(getattr(block.mlp, "act", None)).__name__
    return (
        kind_of(model),
        model.embed_dim,
        block.attn.num_heads,
        ACTIVATIONS.get(activation, activation),
        getattr(block.norm1, "eps", 0.0),
        model.global_pool,
        "x".join(map(str, model.default_cfg["input_size"][1:])),
        " ".join(marks_of(model.state_dict())),
    )


def kind_of(model) -> str:
    """`PLAIN` for what keras_vit computes as timm does."""
    block = model.blocks[0]
    parts = (model, block, block.attn, block.mlp, block.norm1)
    names = [type(part).__name__ for part in parts]
    names[0] = names[0].removesuffix("Distilled")
    expected = [PLAIN, "Block", "Attention", "Mlp", "LayerNorm"]
    other = [x for x, y in zip(names, expected, strict=True) if x != y]
    if getattr(model, "pool_include_prefix", False):
        other.append("pool_include_prefix")
    if not other or names[0] != PLAIN:
        return names[0]
    return f"{PLAIN} with {' and '.join(other)}"


if __name__ == "__main__":
    main()
