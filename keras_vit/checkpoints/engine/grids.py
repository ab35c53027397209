"""The grid of patches that a file is for, from its positions."""

import math
from typing import NoReturn

from keras_vit.checkpoints.files.tensors import refuse

__all__ = [
    "grid_of",
    "position_fields",
    "relative_positions",
    "times",
    "windows",
]

DEFAULT_IMAGE = 224
# Where those of each block are, and those that all blocks share.
RELATIVE_POSITIONS = ("block_0/attention/position_bias", "position_bias")


def position_fields(source, fields, facts, image_size, notes, told) -> tuple:
    """The grid of patches, and the fields that follow from it."""
    path = "position_embedding/embedding"
    stored = source.file.config.get("image_size")
    cell = _cell_size(fields)
    if "position_map" in source.features:
        grid = _shown_grid(source)
        _check_stored_size(source, stored, grid, cell)
        return grid, {"image_size": stored or times(grid, cell)}
    if {"position_grid", "position_axes"} & source.features:
        grid = _shown_grid(source)
        size = stored or told.get("image_size") or times(grid, cell)
        return grid, {"image_size": size}
    if path in source.rows:
        prefix = facts.num_prefix_tokens
        length = source.checked_shape(path, 3, facts)[1]
        grid, prefixed = _grid_with_prefix(
            source, length, prefix, cell, image_size, told.get("image_size")
        )
        _check_stored_size(source, stored, grid, cell)
        if prefix and not prefixed:
            source.follow("prefix_without_position")
        size = _whole_size(stored or times(grid, cell), grid, cell, notes)
        if stored:
            source.file.config["image_size"] = size
        return grid, {"image_size": size}
    placed = fields.get("rope") or fields["relative_position_bias"]
    # Only Google's code has fixed positions of which a file shows nothing.
    learned = source.format.name.startswith(("timm", "hugging_face"))
    if learned or placed:
        return _without_positions(source, fields, image_size, cell, told)
    size = stored or image_size
    if size is None:
        size = tuple(max(x, DEFAULT_IMAGE // x * x) for x in cell)
        notes.append(
            f"image_size={size} was assumed, which a file with fixed "
            "position embeddings cannot tell; give input_shape=..."
        )
    grid = size[0] // cell[0], size[1] // cell[1]
    return grid, {"image_size": size, "position_embedding": "sincos2d"}


# Tensors with a position for each row and column.
MAPS = {"position_grid": "pos_grid", "position_map": "pos_embed"}


def _shown_grid(source) -> tuple:
    """The grid of positions that are stored as a grid, or for each axis."""
    tensors = source.file.tensors
    for feature, name in MAPS.items():
        if feature in source.features:
            found = tensors[name].shape[1:-1]
            break
    else:
        found = tuple((*tensors[x].shape, 0, 0)[1] for x in ("pos_y", "pos_x"))
    if len(found) != 2 or 0 in found:
        refuse(
            source.file.path,
            f"holds positions of {found} patches",
            "Expected rows and columns: the file is damaged, fetch it again.",
        )
    return found


def _without_positions(source, fields, image_size, cell, told) -> tuple:
    """The same for a file without a position embedding."""
    if not (fields.get("rope") or fields["relative_position_bias"]):
        refuse(
            source.file.path,
            "has no position embedding: its model has rotary positions, or "
            "none at all",
            'Give architecture="..." in timm\'s words, or the config.json '
            "that belongs to the file."
            if source.format.name == "timm"
            else "Choose another file.",
        )
    size = source.file.config.get("image_size") or told.get("image_size")
    size = size or image_size or (DEFAULT_IMAGE, DEFAULT_IMAGE)
    for table in (f"{x}/table" for x in RELATIVE_POSITIONS):
        if table in source.rows:
            grid = _grid_of_distances(source, table, size, cell, fields)
            size = times(grid, cell)
    size = tuple(max(x // y * y, y) for x, y in zip(size, cell, strict=True))
    grid = size[0] // cell[0], size[1] // cell[1]
    return grid, {"image_size": size, "position_embedding": "none"}


def _grid_of_distances(source, path, size, cell, fields) -> tuple:
    """The grid whose distances a table of relative positions holds."""
    count = source.checked_shape(path, 2)[0] - 3 * fields["class_token"]
    side = (math.isqrt(max(count, 0)) + 1) // 2
    for grid in ((size[0] // cell[0], size[1] // cell[1]), (side, side)):
        if (2 * grid[0] - 1) * (2 * grid[1] - 1) == count:
            return grid
    _refuse_grid(source, count, cell)


def _check_stored_size(source, size, grid, cell) -> None:
    """Refuses an image size that does not make the grid of the positions."""
    if size is None:
        return
    cut = tuple(x // y for x, y in zip(size, cell, strict=True))
    padded = tuple(-(-x // y) for x, y in zip(size, cell, strict=True))
    if tuple(grid) in (cut, padded):  # A ResNet pads.
        return
    refuse(
        source.file.path,
        f"has image_size={size} by its config, of which patches of {cell} "
        f"pixels do not make the {grid[0]}x{grid[1]} positions in its tensors",
        "Take the config.json that belongs to the file, or write the right "
        "size into it; load_checkpoint(..., input_shape=...) resamples.",
    )


def _whole_size(size, grid, cell, notes) -> tuple:
    """The size of images of which patches leave nothing out.

    SigLIP's So400m cuts images of 384 pixels into 27 patches of 14.
    """
    whole = times(grid, cell)
    if all(x <= y for x, y in zip(size, whole, strict=True)):
        return size  # All of it is read, or a ResNet pads it.
    notes.append(
        f"image_size={tuple(whole)} of {tuple(size)}: the original does not "
        "read what is left at the right and at the bottom beside patches of "
        f"{tuple(cell)} pixels; cut images so, or resize them to this"
    )
    return whole


def _grid_with_prefix(
    source, length, prefix, cell, image_size, told_size
) -> tuple:
    """The grid of the patches, and whether prefix tokens have positions.

    Formats that have no such variant give every token a position.
    """
    counts = {length - prefix: True}
    if prefix and "prefix_without_position" in source.format.variants:
        counts[length] = False
    readings = {}
    # Level by level: what is certain for one count rules out the other.
    for level in zip(
        *(_grids_of(source, x, cell, image_size, told_size) for x in counts),
        strict=True,
    ):
        for prefixed, grids in zip(counts.values(), level, strict=True):
            readings |= dict.fromkeys(grids, prefixed)
        if readings:
            break
    if len(readings) == 1:
        return next(iter(readings.items()))
    if not readings:
        _refuse_grid(source, length - prefix, cell)
    shown = " or ".join(
        f"{rows}x{columns} patches with{'' if prefixed else 'out'} positions "
        f"of the {prefix} other tokens"
        for (rows, columns), prefixed in readings.items()
    )
    refuse(
        source.file.path,
        f"holds {length} positions, which can be {shown}",
        'Give architecture="..." in timm\'s words or the config.json that '
        "belongs to the file; or load it at the size it was made for, without "
        "input_shape, and save it as a .keras file.",
    )


def _grids_of(source, count, cell, image_size, told_size=None) -> list:
    """The grids of so many patches, the most certain first.

    A list per source: the file, its architecture, and then a square and what
    the caller gives, of which neither is certain.
    """
    side = math.isqrt(max(count, 0))
    square = side * cell[0], side * cell[1]
    levels = [(source.file.config.get("image_size"),), (told_size,)]
    # The files of Google's code are of square images.
    if source.format.container == "npz":
        levels += [(square,), (image_size,)]
    else:
        levels += [(square, image_size)]
    result = []
    for sizes in levels:
        grids = [(x[0] // cell[0], x[1] // cell[1]) for x in sizes if x]
        fitting = [grid for grid in grids if math.prod(grid) == count > 0]
        result.append(list(dict.fromkeys(fitting)))
    return result


def grid_of(source, length, cell, image_size) -> tuple:
    """Rows and columns of so many patches, which all have positions."""
    for grids in _grids_of(source, length, cell, image_size):
        if grids:
            return grids[0]
    _refuse_grid(source, length, cell)


def _refuse_grid(source, length, cell) -> NoReturn:
    hint, token = "", source.format.table.get("class_token/token")
    if token and "class_token/token" not in source.rows:
        hint = f", and there is no class token ({token[0]} is missing)"
    refuse(
        source.file.path,
        f"holds positions of {length} patches, which are no square grid{hint}",
        "Give input_shape=(height, width, channels) of the images that it "
        f"was made for; a patch is {cell[0]}x{cell[1]} pixels.",
    )


def _cell_size(fields) -> tuple:
    """Pixels that one token stands for."""
    stages = fields.get("resnet_units")
    stride = 1 if stages is None else 4 * 2 ** max(len(stages) - 1, 0)
    return times((stride, stride), fields["patch_size"])


def times(pair, factors) -> tuple:
    return pair[0] * factors[0], pair[1] * factors[1]


def relative_positions(source) -> dict:
    """Whether each block or all have relative positions, and of which kind."""
    for place in RELATIVE_POSITIONS:
        shared = {} if "/" in place else {"relative_positions_shared": True}
        if f"{place}/table" in source.rows:
            return {"relative_position_bias": True, **shared}
        if f"{place}/rows" in source.rows:
            return {
                "relative_position_bias": True,
                "relative_position_kind": "decomposed",
            }
        path = f"{place}/hidden_weight"
        if path in source.rows:
            has_bias = f"{place}/head_bias" in source.rows
            return {
                "relative_position_bias": True,
                "relative_position_kind": "mlp" if has_bias else "mlp_swin",
                "relative_position_dim": source.checked_shape(path, 2)[1],
                **shared,
            }
    return {"relative_position_bias": False}


WINDOWS = ("window_size", "global_attention_blocks")


def windows(source, num_layers, grid) -> dict:
    """The windows of the blocks whose relative positions are not of the grid.

    Of a grid as large as a window these show nothing; the config tells.
    """
    if not source.file.config.get(WINDOWS[0], 1):
        source.file.config.pop(WINDOWS[1], None)  # All blocks are global.
    told = {x: y for x, y in source.file.config.items() if x in WINDOWS}
    path = "block_{}/attention/position_bias/{}"
    if path.format(0, "rows") not in source.rows:
        return told
    grids = [
        tuple(
            (source.checked_shape(path.format(i, axis), 2)[0] + 1) // 2
            for axis in ("rows", "columns")
        )
        for i in range(num_layers)
    ]
    sizes = {x for found in grids if found != grid for x in found}
    some = len(told.get(WINDOWS[1], ())) < num_layers
    if not sizes and told.get(WINDOWS[0]) and some:
        sizes = {told[WINDOWS[0]], *grid}
    elif sizes:
        told = {
            WINDOWS[0]: max(sizes),
            WINDOWS[1]: tuple(i for i, x in enumerate(grids) if x == grid),
        }
    if len(sizes) > 1:
        refuse(
            source.file.path,
            f"holds relative positions within {sorted(set(grids))} patches, "
            f"in an image of {grid[0]}x{grid[1]} patches",
            "Expected those of the whole image and of windows of the size "
            f"that its config tells, {told[WINDOWS[0]]}.",
        )
    return told
