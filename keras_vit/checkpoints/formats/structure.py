"""Counts and sizes of a model, read off the shapes in a file."""

import math
import re

from keras_vit.checkpoints.containers.errors import refuse
from keras_vit.checkpoints.formats.transforms import Facts

__all__ = ["count", "grid_of", "heads", "shape", "times", "units"]

# Widths of the papers whose heads are not of 64 features (So400m, H, g, G).
HEADS_OF_WIDTH = {1152: 16, 1280: 16, 1408: 16, 1664: 16}


def shape(source, path, rank, facts=None) -> tuple:
    """The shape of a weight that must be there and be of a rank."""
    if path not in source.rows:
        refuse(
            source.file.path,
            f"has no weight for {path}",
            "It is cut off or of another model: fetch it again.",
        )
    found = source.shape_of(path, facts or Facts())
    if len(found) != rank or 0 in found:
        refuse(
            source.file.path,
            f"has shape {found} in our layout, expected {rank} sizes above 0",
            "It is of another model, or damaged: fetch it again.",
            ", ".join(source.rows[path].names),
        )
    return found


def count(source, pattern) -> int:
    """How many blocks or units there are, numbered without a gap from 0."""
    found = {
        int(match[1]) for x in source.rows if (match := re.match(pattern, x))
    }
    missing = set(range(max(found, default=0) + 1)) - found
    if missing:
        refuse(
            source.file.path,
            f"lacks numbers {sorted(missing)[:20]} of its blocks",
            "It was cut off: fetch it again.",
        )
    return len(found)


def units(source) -> tuple:
    """Units of each stage of a ResNet."""
    found = {
        (int(match[1]), int(match[2]))
        for path in source.rows
        if (match := re.match(r"stage(\d+)_unit(\d+)_", path))
    }
    stages = range(1, max((s for s, _ in found), default=0) + 1)
    numbers = [sum(1 for s, _ in found if s == stage) for stage in stages]
    expected = {
        (stage, unit)
        for stage, number in zip(stages, numbers, strict=True)
        for unit in range(1, number + 1)
    }
    if found != expected or 0 in numbers:
        refuse(
            source.file.path,
            "lacks a stage or unit of its ResNet",
            "It was cut off: fetch it again.",
        )
    return tuple(numbers)


def heads(source, num_heads, hidden_dim, notes) -> int:
    """Attention heads: from the file, the argument, or the papers."""
    told = heads_of_file(source)
    if told and num_heads and told != num_heads:
        refuse(
            source.file.path,
            f"has {told} attention heads, but num_heads={num_heads}",
            "Leave out num_heads.",
        )
    known = told or num_heads or HEADS_OF_WIDTH.get(hidden_dim)
    if known:
        return known
    if hidden_dim % 64:
        refuse(
            source.file.path,
            "does not tell its number of attention heads, and a hidden_dim "
            f"of {hidden_dim} is no multiple of 64",
            "Give num_heads=...",
        )
    notes.append(
        f"num_heads={hidden_dim // 64} was taken as hidden_dim / 64, which "
        "the file cannot tell; give num_heads=... for another number"
    )
    return hidden_dim // 64


def heads_of_file(source) -> int | None:
    """Heads by the rank 3 kernels of Flax, or by the config beside."""
    path = "block_0/attention/qkv/kernel"
    if path not in source.rows:
        shape(source, path, 2)  # says what is missing
    row = source.rows[path]
    if row.transform == "heads_qkv":
        return (*source.file.tensors[row.names[0]].shape, 0, 0)[1]
    return source.file.config.get("num_heads")


def grid_of(source, length, cell, image_size) -> tuple:
    """Rows and columns of so many patches.

    What the file says of its image size comes first, then a square, then the
    image size that the caller gives.
    """
    side = math.isqrt(max(length, 0))
    square = side * cell[0], side * cell[1]
    for size in (source.file.config.get("image_size"), square, image_size):
        grid = size and (size[0] // cell[0], size[1] // cell[1])
        if grid and math.prod(grid) == length > 0:
            return grid
    hint, token = "", source.format.table.get("class_token/token")
    if token and "class_token/token" not in source.rows:
        hint = f", and there is no class token ({token[0]} is missing)"
    refuse(
        source.file.path,
        f"holds positions of {length} patches, which are no square grid{hint}",
        "Give input_shape=(height, width, channels) of the images that it "
        f"was made for; a patch is {cell[0]}x{cell[1]} pixels.",
    )


def times(pair, factors) -> tuple:
    return pair[0] * factors[0], pair[1] * factors[1]
