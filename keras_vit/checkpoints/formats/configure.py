"""The config of the model that a file holds, from its tensors."""

import math
import re
import warnings
from typing import NoReturn

from keras_vit.checkpoints.containers.tensors import DAMAGED, refuse
from keras_vit.checkpoints.formats.architectures import PIXELS, fields_of_file
from keras_vit.checkpoints.formats.recognition import Configured, Source
from keras_vit.checkpoints.formats.transforms import Facts

__all__ = ["configure"]

DEFAULT_IMAGE = 224
# Fields of the config that no tensor tells.
UNTOLD = ("activation", "layer_norm_epsilon", "num_heads", "pooling", *PIXELS)
# Widths of the papers whose heads are not of 64 features (So400m, H, g, G).
HEADS_OF_WIDTH = {1152: 16, 1280: 16, 1408: 16, 1664: 16}


def configure(
    source: Source,
    num_heads: int | None = None,
    image_size=None,
    architecture: str | None = None,
    given=(),
) -> Configured:
    """Derives the config of a model from the shapes of its weights.

    What these cannot tell comes from the arguments, the config beside the
    file, the name of the architecture, or from all published architectures
    with the same tensors where they agree.

    Args:
        source: an opened file.
        num_heads: int, where the file cannot tell.
        image_size: (height, width) in pixels that the file is for, where its
            number of patches is no square.
        architecture: str, name of timm's architecture.
        given: dict, the fields of the config that the caller sets.

    Raises:
        ValueError: when weights are missing or of the wrong rank, or the
            file leaves open what only an argument can tell.
    """
    family = source.format.family
    if family in ("vit", "variant"):
        told = _told(source, num_heads, architecture, given)
        configured = _configure_vit(source, told, image_size)
    else:
        configured = CONFIGURE[family](source, image_size)
    fields = configured.fields
    for name, value in source.file.config.items():
        # A pooling of two tokens is one of the first in timm's words.
        if name in given or name == "pooling":
            continue
        if name in fields and fields[name] != value:
            refuse(
                source.file.path,
                f"has {name}={fields[name]} by its tensors, but "
                f"{name}={value} by its config",
                "The two belong to different models: fetch both again.",
            )
    return configured


def _told(source, num_heads, name, given) -> dict:
    """The fields that no tensor tells, from what tells them."""
    width = _shape(source, "patch_embed/projection/kernel", 4)[3]
    told = {}
    if source.format.name == "timm":
        known = {*given, *source.file.config}
        known |= {"num_heads"} if num_heads else set()
        told = fields_of_file(
            source.file.path,
            source.file.tensors,
            width,
            name or source.file.config.get("architecture"),
            known,
        )
    elif name is not None:
        raise ValueError(
            "architecture is a name of timm's, and "
            f"{source.file.path!r} is of the format {source.format.name}. "
            f"Received: architecture={name!r}. Leave it out."
        )
    told |= {x: y for x, y in source.file.config.items() if x in UNTOLD}
    for field in source.format.untold:
        if field not in {*told, *given}:
            refuse(
                source.file.path,
                f"does not tell its {field}, in which files of the format "
                f"{source.format.name} differ",
                f"Put the config.json that belongs to it beside it, or give "
                f"{field}=...",
            )
    wants_pixels = dict(given).get("include_preprocessing")
    if source.format.name == "timm" and wants_pixels and PIXELS[0] not in told:
        warnings.warn(
            f"{source.file.path!r} does not tell how pixels are scaled: to "
            "[-1, 1] is taken. Give pixel_mean and pixel_std, or load it "
            "with the config.json that belongs to it.",
            stacklevel=2,
        )
    heads = _heads(source, num_heads, told.get("num_heads"), width)
    return {**told, "num_heads": heads}


def _configure_vit(source, told, image_size) -> Configured:
    notes = []
    kernel = _shape(source, "patch_embed/projection/kernel", 4)
    root = "root_conv/kernel" in source.rows
    prefix, registers = _prefix_tokens(source)
    facts = Facts(told["num_heads"], prefix)
    distilled = "distillation_token" in source.features
    representation, classes = _dense_sizes(source, facts)
    fields = {
        "channels": kernel[2],
        "patch_size": kernel[:2],
        "hidden_dim": kernel[3],
        "num_layers": _count(source, r"block_(\d+)/.*"),
        "mlp_dim": _shape(source, "block_0/mlp/dense/kernel", 2, facts)[1],
        "num_heads": told["num_heads"],
        "class_token": prefix > distilled + registers,
        "distillation_token": distilled,
        "register_tokens": registers,
        "norm_after_pooling": "norm_after_pooling" in source.features,
        "norm_before_blocks": "first_norm/gamma" in source.rows,
        "num_classes": classes,
        "representation_dim": representation,
        **_constants(source, told),
        **_biases(source),
    }
    fields["pooling"] = _pooling(source, told, fields)
    fields |= {x: told[x] for x in PIXELS if x in told}
    if root:
        width = _shape(source, "root_conv/kernel", 4)
        fields["channels"], fields["resnet_width"] = width[2], width[3]
        fields["resnet_units"] = _units(source)
    grid, found = _position(source, fields, facts, image_size, notes, told)
    return Configured(fields | found, facts, grid, notes)


def _prefix_tokens(source) -> tuple[int, int]:
    """How many tokens stand before the patches, and how many are registers."""
    path = "class_token/token"
    prefix = _shape(source, path, 3)[1] if path in source.rows else 0
    if "registers_alone" in source.features:
        return prefix, prefix
    others = 1 + ("distillation_token" in source.features)
    return prefix, max(prefix - others, 0)


def _biases(source) -> dict:
    """Which of the biases that the format may leave out are there."""
    head = {"predictions/kernel", "predictions/bias"} & set(source.rows)
    without = {"head_bias": None} if head == {"predictions/kernel"} else {}
    paths = {
        "patch_bias": "patch_embed/projection/bias",
        "qkv_bias": "block_0/attention/qkv/bias",
    }
    return without | {
        name: name not in source.format.optional or path in source.rows
        for name, path in paths.items()
    }


def _configure_mixer(source, image_size) -> Configured:
    facts = Facts()
    kernel = _shape(source, "patch_embed/projection/kernel", 4)
    tokens = _shape(source, "block_0/token_mixing/dense/kernel", 2)
    channels = _shape(source, "block_0/channel_mixing/dense/kernel", 2)
    grid = _grid_of(source, tokens[0], kernel[:2], image_size)
    fields = {
        "image_size": _times(grid, kernel[:2]),
        "channels": kernel[2],
        "patch_size": kernel[:2],
        "hidden_dim": kernel[3],
        "num_layers": _count(source, r"block_(\d+)/.*"),
        "tokens_mlp_dim": tokens[1],
        "channels_mlp_dim": channels[1],
        "num_classes": _dense_sizes(source, facts)[1],
        **_constants(source, {}),
    }
    return Configured(fields, facts, grid)


def _configure_bit(source, image_size) -> Configured:
    facts = Facts()
    kernel = _shape(source, "root_conv/kernel", 4)
    fields = {
        "image_size": source.file.config.get("image_size", (None, None)),
        "channels": kernel[2],
        "units": _units(source),
        "width": kernel[3],
        "num_classes": _dense_sizes(source, facts)[1],
        **_constants(source, {}),
    }
    return Configured(fields, facts)


CONFIGURE = {"mixer": _configure_mixer, "bit": _configure_bit}


def _shape(source, path, rank, facts=None) -> tuple:
    """The shape of a weight that must be there and be of a rank."""
    if path not in source.rows:
        refuse(
            source.file.path,
            f"has no weight for {path}",
            DAMAGED,
        )
    found = source.shape_of(path, facts or Facts())
    if len(found) != rank or 0 in found:
        refuse(
            source.file.path,
            f"has shape {found} in our layout, expected {rank} sizes above 0",
            DAMAGED,
            ", ".join(source.rows[path].names),
        )
    return found


def _count(source, pattern) -> int:
    """How many blocks or units there are, numbered without a gap from 0."""
    found = {
        int(match[1]) for x in source.rows if (match := re.match(pattern, x))
    }
    missing = set(range(max(found, default=0) + 1)) - found
    if missing:
        refuse(
            source.file.path,
            f"lacks numbers {sorted(missing)[:20]} of its blocks",
            DAMAGED,
        )
    return len(found)


def _units(source) -> tuple:
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
            DAMAGED,
        )
    return tuple(numbers)


def _heads(source, num_heads, told, hidden_dim) -> int:
    """Attention heads: from the file, the argument, or the papers."""
    stored = _heads_of_file(source)
    if stored and num_heads and stored != num_heads:
        refuse(
            source.file.path,
            f"has {stored} attention heads, but num_heads={num_heads}",
            "Leave out num_heads.",
        )
    known = stored or num_heads or told or HEADS_OF_WIDTH.get(hidden_dim)
    if known:
        return known
    if hidden_dim % 64:
        refuse(
            source.file.path,
            "does not tell its number of attention heads, and a hidden_dim "
            f"of {hidden_dim} is no multiple of 64",
            "Give num_heads=...",
        )
    warnings.warn(
        f"{source.file.path!r} does not tell its number of attention heads: "
        f"num_heads={hidden_dim // 64} is taken, 64 features per head. Give "
        "num_heads=... for another number.",
        stacklevel=2,
    )
    return hidden_dim // 64


def _heads_of_file(source) -> int | None:
    """Heads by the rank 3 kernels of Flax, or by the config beside."""
    path = "block_0/attention/qkv/kernel"
    if path not in source.rows:
        _shape(source, path, 2)  # says what is missing
    row = source.rows[path]
    if row.transform == "heads_qkv":
        return (*source.file.tensors[row.names[0]].shape, 0, 0)[1]
    return source.file.config.get("num_heads")


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


def _grid_of(source, length, cell, image_size) -> tuple:
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


def _times(pair, factors) -> tuple:
    return pair[0] * factors[0], pair[1] * factors[1]


def _dense_sizes(source, facts) -> tuple:
    """Outputs of the pre-logits layer and of the head, 0 where absent."""
    return tuple(
        _shape(source, path, 2, facts)[1] if path in source.rows else 0
        for path in ("pre_logits/kernel", "predictions/kernel")
    )


def _pooling(source, told, fields) -> str:
    if "pool/probe" in source.rows:
        return "map"
    if "averaged_heads" in source.features:
        return "prefix"
    timm = source.format.name == "timm"
    if timm and fields["distillation_token"] and not fields["num_classes"]:
        return "prefix_mean"
    if source.format.name == "hugging_face" and (
        fields["representation_dim"] and not fields["class_token"]
    ):
        refuse(
            source.file.path,
            "has a pooler and no class token: it takes the first patch, which "
            "the models here do not",
            "Choose another file.",
        )
    if told.get("pooling"):
        return told["pooling"]
    path, wide = "predictions/kernel", 2 * fields["hidden_dim"]
    if path in source.rows and _shape(source, path, 2)[0] == wide:
        return "token_and_mean"  # as DINOv2's linear head
    after = "norm_after_pooling" in source.features
    return "token" if fields["class_token"] and not after else "mean"


def _constants(source, told) -> dict:
    """What the family fixes, unless something tells it."""
    root = "root_conv/kernel" in source.rows
    known = {**told, **source.file.config}
    fields = {
        name: known.get(name, value)
        for name, value in source.format.constants.items()
        if root or not name.startswith("resnet_")
    }
    for path, implied in source.format.implied.items():
        fields |= implied if path in source.rows else {}
    return fields


def _position(source, fields, facts, image_size, notes, told) -> tuple:
    """The grid of patches, and the fields that follow from it."""
    path = "position_embedding/embedding"
    stored = source.file.config.get("image_size")
    cell = _cell_size(fields)
    if path in source.rows:
        prefix = facts.num_prefix_tokens
        length = _shape(source, path, 3, facts)[1]
        grid, prefixed = _grid_with_prefix(
            source, length, prefix, cell, image_size, told.get("image_size")
        )
        _check_stored_size(source, stored, grid, cell)
        if prefix and not prefixed:
            source.follow("prefix_without_position")
        return grid, {"image_size": stored or _times(grid, cell)}
    if source.format.name == "timm":
        refuse(
            source.file.path,
            "has no position embedding: its model has rotary positions or "
            "none, which the models here do not have",
            "Choose another file.",
        )
    size = stored or image_size
    if size is None:
        size = tuple(max(x, DEFAULT_IMAGE // x * x) for x in cell)
        notes.append(
            f"image_size={size} was assumed, which a file with fixed "
            "position embeddings cannot tell; give input_shape=..."
        )
    grid = size[0] // cell[0], size[1] // cell[1]
    return grid, {"image_size": size, "position_embedding": "sincos2d"}


def _check_stored_size(source, size, grid, cell) -> None:
    """Refuses an image size that does not make the grid of the positions."""
    if size is None or (size[0] // cell[0], size[1] // cell[1]) == grid:
        return
    refuse(
        source.file.path,
        f"has image_size={size} by its config, of which patches of {cell} "
        f"pixels do not make the {grid[0]}x{grid[1]} positions in its tensors",
        "Take the config.json that belongs to the file, or write the right "
        "size into it; load_checkpoint(..., input_shape=...) resamples.",
    )


def _cell_size(fields) -> tuple:
    """Pixels that one token stands for."""
    stages = fields.get("resnet_units")
    stride = 1 if stages is None else 4 * 2 ** max(len(stages) - 1, 0)
    return _times((stride, stride), fields["patch_size"])
