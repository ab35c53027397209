"""The config of the model that a file holds, from its tensors."""

import math
import re

from keras_vit.checkpoints.containers.tensors import DAMAGED, refuse
from keras_vit.checkpoints.formats.recognition import Configured, Source
from keras_vit.checkpoints.formats.transforms import Facts

__all__ = ["configure"]

DEFAULT_IMAGE = 224
# Widths of the papers whose heads are not of 64 features (So400m, H, g, G).
HEADS_OF_WIDTH = {1152: 16, 1280: 16, 1408: 16, 1664: 16}


def configure(
    source: Source, num_heads: int | None = None, image_size=None
) -> Configured:
    """Derives the config of a model from the shapes of its weights.

    Args:
        source: an opened file.
        num_heads: int, where the file cannot tell.
        image_size: (height, width) in pixels that the file is for, where its
            number of patches is no square. A square number is taken for a
            square grid, unless the file says otherwise.

    Raises:
        ValueError: when weights are missing or of the wrong rank, or the
            file leaves open what only an argument can tell.
    """
    configured = CONFIGURE[source.format.family](source, num_heads, image_size)
    fields = configured.fields
    for name, value in source.file.config.items():
        if name in fields and fields[name] != value:
            refuse(
                source.file.path,
                f"has {name}={fields[name]} by its tensors, but "
                f"{name}={value} by its config",
                "The two belong to different models: fetch both again.",
            )
    return configured


def _configure_vit(source, num_heads, image_size) -> Configured:
    notes = []
    kernel = _shape(source, "patch_embed/projection/kernel", 4)
    root = "root_conv/kernel" in source.rows
    hidden_dim = kernel[3]
    num_heads = _heads(source, num_heads, hidden_dim, notes)
    distilled = "distillation_token" in source.features
    prefix = ("class_token/token" in source.rows) * (1 + distilled)
    facts = Facts(num_heads, prefix)
    representation, classes = _dense_sizes(source, facts)
    fields = {
        "channels": kernel[2],
        "patch_size": kernel[:2],
        "hidden_dim": hidden_dim,
        "num_layers": _count(source, r"block_(\d+)/.*"),
        "mlp_dim": _shape(source, "block_0/mlp/dense/kernel", 2, facts)[1],
        "num_heads": num_heads,
        "pooling": _pooling(source, prefix),
        "class_token": prefix > 0,
        "distillation_token": distilled,
        "norm_after_pooling": "norm_after_pooling" in source.features,
        "num_classes": classes,
        "representation_dim": representation,
        **_constants(source),
    }
    if root:
        width = _shape(source, "root_conv/kernel", 4)
        fields["channels"], fields["resnet_width"] = width[2], width[3]
        fields["resnet_units"] = _units(source)
    grid, found = _position(source, fields, facts, image_size, notes)
    return Configured(fields | found, facts, grid, notes)


def _configure_mixer(source, num_heads, image_size) -> Configured:
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
        **_constants(source),
    }
    return Configured(fields, facts, grid)


def _configure_bit(source, num_heads, image_size) -> Configured:
    facts = Facts()
    kernel = _shape(source, "root_conv/kernel", 4)
    fields = {
        "image_size": source.file.config.get("image_size", (None, None)),
        "channels": kernel[2],
        "units": _units(source),
        "width": kernel[3],
        "num_classes": _dense_sizes(source, facts)[1],
        **_constants(source),
    }
    return Configured(fields, facts)


CONFIGURE = {
    "vit": _configure_vit,
    "mixer": _configure_mixer,
    "bit": _configure_bit,
    "variant": _configure_vit,
}


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


def _heads(source, num_heads, hidden_dim, notes) -> int:
    """Attention heads: from the file, the argument, or the papers."""
    stored = _heads_of_file(source)
    if stored and num_heads and stored != num_heads:
        refuse(
            source.file.path,
            f"has {stored} attention heads, but num_heads={num_heads}",
            "Leave out num_heads.",
        )
    known = stored or num_heads or HEADS_OF_WIDTH.get(hidden_dim)
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


def _heads_of_file(source) -> int | None:
    """Heads by the rank 3 kernels of Flax, or by the config beside."""
    path = "block_0/attention/qkv/kernel"
    if path not in source.rows:
        _shape(source, path, 2)  # says what is missing
    row = source.rows[path]
    if row.transform == "heads_qkv":
        return (*source.file.tensors[row.names[0]].shape, 0, 0)[1]
    return source.file.config.get("num_heads")


def _grid_of(source, length, cell, image_size) -> tuple:
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


def _times(pair, factors) -> tuple:
    return pair[0] * factors[0], pair[1] * factors[1]


def _dense_sizes(source, facts) -> tuple:
    """Outputs of the pre-logits layer and of the head, 0 where absent."""
    return tuple(
        _shape(source, path, 2, facts)[1] if path in source.rows else 0
        for path in ("pre_logits/kernel", "predictions/kernel")
    )


def _pooling(source, prefix) -> str:
    if "pool/probe" in source.rows:
        return "map"
    if "averaged_heads" in source.features:
        return "prefix"
    after = "norm_after_pooling" in source.features
    return "token" if prefix and not after else "mean"


def _constants(source) -> dict:
    """What the family fixes, unless the config beside the file has it."""
    root = "root_conv/kernel" in source.rows
    fields = {
        name: source.file.config.get(name, value)
        for name, value in source.format.constants.items()
        if root or not name.startswith("resnet_")
    }
    for path, implied in source.format.implied.items():
        fields |= implied if path in source.rows else {}
    return fields


def _position(source, fields, facts, image_size, notes) -> tuple:
    """The grid of patches, and the fields that follow from it."""
    path = "position_embedding/embedding"
    stored = source.file.config.get("image_size")
    cell = _cell_size(fields)
    if path in source.rows:
        length = _shape(source, path, 3, facts)[1] - facts.num_prefix_tokens
        grid = _grid_of(source, length, cell, image_size)
        return grid, {"image_size": stored or _times(grid, cell)}
    size = stored or image_size
    if size is None:
        size = tuple(max(x, DEFAULT_IMAGE // x * x) for x in cell)
        notes.append(
            f"image_size={size} was assumed, which a file with fixed "
            "position embeddings cannot tell; give input_shape=..."
        )
    grid = size[0] // cell[0], size[1] // cell[1]
    return grid, {"image_size": size, "position_embedding": "sincos2d"}


def _cell_size(fields) -> tuple:
    """Pixels that one token stands for."""
    stages = fields.get("resnet_units")
    stride = 1 if stages is None else 4 * 2 ** max(len(stages) - 1, 0)
    return _times((stride, stride), fields["patch_size"])
