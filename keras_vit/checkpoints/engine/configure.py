"""The config of the model that a file holds, from its tensors.

What these cannot tell comes from the config beside them, the caller, or the
publisher's list of architectures.
"""

import dataclasses
import math
import re
import warnings
from typing import NoReturn

import numpy as np

from keras_vit.checkpoints.engine.layout import Facts, listed
from keras_vit.checkpoints.engine.recognition import Checkpoint, dialects
from keras_vit.checkpoints.files.tensors import DAMAGED, refuse
from keras_vit.io.checks import check_kind, check_whole
from keras_vit.models.options import (
    AROUND,
    CONFIGS,
    RECORD,
    ViTConfig,
    options_of,
    without_unused,
)

__all__ = [
    "NOT_IN_TENSORS",
    "adapted_fields",
    "check_input_shape",
    "configure",
]

WINDOWS = ("window_size", "global_attention_blocks")
# Fields that the tensors of some models show.
SHOWN_BY_SOME = ("image_size", "layer_scale_init", "norm_after_pooling")
# Fields of the config that no tensor tells.
NOT_IN_TENSORS = tuple(
    name
    for name, row in options_of(ViTConfig).items()
    if row.shown == RECORD and name not in (*AROUND, *WINDOWS, *SHOWN_BY_SOME)
)
# Widths of the papers whose heads are not of 64 features (So400m, H, g, G).
HEADS_OF_WIDTH = {1152: 16, 1280: 16, 1408: 16, 1664: 16}


def configure(
    checkpoint: Checkpoint,
    num_heads: int | None = None,
    image_size=None,
    architecture: str | None = None,
    given=(),
) -> Checkpoint:
    """Derive the config of a model from the shapes of its weights.

    What these cannot tell comes from the arguments, the config beside the
    file, the name of the architecture, or from all published architectures
    with the same tensors where they agree.

    Args:
        checkpoint: a recognised file.
        num_heads: int, where the file cannot tell.
        image_size: (height, width) in pixels that the file is for, where its
            number of patches is no square.
        architecture: str, its publisher's name of the architecture.
        given: dict, the fields of the config that the caller sets.

    Returns:
        The checkpoint with its fields, facts, grid and notes; one that has
        them, because the file holds a config of ours, as it is.

    Raises:
        ValueError: when weights are missing or of the wrong rank, or the
            file leaves open what only an argument can tell.
    """
    if num_heads is not None:
        check_whole(1, num_heads=num_heads)
    family, file = checkpoint.layout.family, checkpoint.file
    name = architecture or file.config.get("architecture")
    if num_heads is not None and family not in ("vit", "variant"):
        what = f"has no attention heads, but num_heads={num_heads}"
        refuse(file.path, what, "Leave out num_heads.")
    publisher = checkpoint.layout.dialect
    if name is not None and not publisher.example_of_architecture:
        names = [x.name for x in dialects() if x.example_of_architecture]
        advice = "Leave it out."
        if not architecture:
            advice = "Its config.json is of another model: fetch both again."
        raise ValueError(
            f"architecture is a name of {' or '.join(names)}'s, and "
            f"{file.path!r} is of the format {checkpoint.layout.name}. "
            f"Received: architecture={name!r}. {advice}"
        )
    publisher.check_layout(checkpoint, name)
    if checkpoint.fields:
        _check_heads(checkpoint, checkpoint.fields.get("num_heads"), num_heads)
        return checkpoint
    if family in ("vit", "variant"):
        known = _known_fields(checkpoint, num_heads, architecture, given)
        configured = _configure_vit(checkpoint, known, image_size)
        # The size of an architecture's images: somebody named it.
        if known.get("image_size") is None:
            told = {*given, *(("num_heads",) if num_heads else ())}
            _say_untold(configured, told)
    else:
        known = {**file.config, **dict(given)}
        known |= {"architecture": architecture} if architecture else {}
        configured = CONFIGURE[family](checkpoint, image_size, known)
    configured.notes.extend(file.notes)
    if head := checkpoint.other_head:
        configured.notes.append(
            f"a head of its own is left out: {listed(head)}"
        )
    if family in CONFIGS:
        kept = without_unused(configured.fields, CONFIGS[family])
        configured.fields = kept
    fields = configured.fields
    fields |= {x: y for x, y in file.config.items() if x in AROUND}
    for name, value in file.config.items():
        # A pooling of two tokens has the name of one of the first elsewhere.
        if name in given or name == "pooling":
            continue
        if name == "num_classes" and checkpoint.other_head:
            continue
        if name in fields and fields[name] != value:
            refuse(
                file.path,
                f"has {name}={fields[name]} by its tensors, but "
                f"{name}={value} by its config",
                "The two belong to different models: fetch both again.",
            )
    checkpoint.layout.check_values(configured, fields)
    return configured


def _say_untold(checkpoint, given) -> None:
    """Warn of what was taken as is usual, as no tensor or config tells it."""
    file, fields = checkpoint.file, checkpoint.fields
    told = {*given, *file.config}
    told |= {"num_heads"} if _heads_of_file(checkpoint) else set()
    untold = [
        f"{name}={fields[name]!r}"
        for name in checkpoint.layout.dialect.untold
        if name not in told
    ]
    if untold:
        _say_taken(checkpoint, f"{', '.join(untold)}, as is usual for them")


def _say_taken(checkpoint, what) -> None:
    """Warn of what was taken for certain that tensors leave open."""
    warnings.warn(
        f"{checkpoint.file.path!r}: its tensors leave open what is taken as "
        f"{what}. If it is otherwise, give {_ways_to_tell(checkpoint)}, or "
        "an argument such as num_heads=...",
        stacklevel=2,
    )


def _architecture_fields(checkpoint, architecture, known) -> dict:
    """Return the fields that the publisher's list of architectures tells."""
    read = checkpoint.layout.read_architecture
    return read(checkpoint, architecture, {*known}) if read else {}


def _known_fields(checkpoint, num_heads, architecture, given) -> dict:
    """Return the fields that no tensor tells, from what tells them."""
    layout, file = checkpoint.layout, checkpoint.file
    width = checkpoint.checked_shape("patch_embed/projection/kernel", 4)[3]
    name = architecture or file.config.get("architecture")
    # What only a record of ours tells: the model is known, and is ours.
    is_ours = AROUND[0] in file.config
    fields = {}
    if layout.read_architecture and not (is_ours and name is None):
        known = {*given, *file.config}
        known |= {"num_heads"} if num_heads else set()
        fields = _architecture_fields(checkpoint, name, known)
    fields |= {x: y for x, y in file.config.items() if x in NOT_IN_TENSORS}
    for field in layout.required:
        if field not in {*fields, *given}:
            refuse(
                file.path,
                f"does not tell its {field}, in which files of the format "
                f"{layout.name} differ",
                f"Load its folder with the {layout.dialect.config_name} that "
                f"belongs to it, or give {field}=...",
            )
    wants_pixels = dict(given).get("include_preprocessing")
    is_open = layout.dialect.scales_pixels_variously and (
        "pixel_mean" not in fields
    )
    if wants_pixels and is_open:
        warnings.warn(
            f"{file.path!r} does not tell how pixels are scaled: to "
            "[-1, 1] is taken. Give pixel_mean and pixel_std, or load it "
            "with the config.json that belongs to it.",
            stacklevel=2,
        )
    if "resampling" in fields:
        file.config.setdefault("resampling", fields["resampling"])
    heads = _heads(checkpoint, num_heads, fields.get("num_heads"), width)
    return {**fields, "num_heads": heads}


def _configure_vit(checkpoint, known, image_size) -> Checkpoint:
    notes = []
    kernel = checkpoint.checked_shape("patch_embed/projection/kernel", 4)
    root = "root_conv/kernel" in checkpoint.rows
    prefix, registers = _prefix_tokens(checkpoint)
    late = _class_blocks(checkpoint)
    facts = Facts(
        known["num_heads"],
        0 if late else prefix,
        known.get("pool_num_heads", 0),
        kernel[3],
    )
    distilled = "distillation_token" in checkpoint.features
    representation, classes = _dense_sizes(checkpoint, facts)
    fields = {
        "channels": kernel[2],
        "patch_size": kernel[:2],
        "hidden_dim": kernel[3],
        "num_layers": _count(checkpoint, r"block_(\d+)/.*"),
        "mlp_dim": checkpoint.checked_shape(
            "block_0/mlp/dense_1/kernel", 2, facts
        )[0],
        "num_heads": known["num_heads"],
        "class_token": prefix > distilled + registers,
        "class_attention_layers": late,
        "distillation_token": distilled,
        "register_tokens": registers,
        "norm_after_pooling": checkpoint.file.config.get(
            "norm_after_pooling", "norm_after_pooling" in checkpoint.features
        ),
        "patch_norm": "patch_norm/gamma" in checkpoint.rows,
        "norm_before_blocks": "first_norm/gamma" in checkpoint.rows,
        "num_classes": classes,
        "representation_dim": representation,
        **_constants(checkpoint, known),
        **_biases(checkpoint),
        **_block_options(checkpoint, known, facts),
    }
    fields |= _patch_stem(checkpoint, kernel[:2])
    pooling = _pooling(checkpoint, known, fields)
    fields |= {x: known[x] for x in NOT_IN_TENSORS if x in known}
    fields["pooling"] = pooling
    if root:
        width = checkpoint.checked_shape("root_conv/kernel", 4)
        fields["channels"], fields["resnet_width"] = width[2], width[3]
        fields["resnet_units"] = _units(checkpoint)
    grid, found = _position_fields(
        checkpoint, fields, facts, image_size, notes, known
    )
    found |= _windows(checkpoint, fields["num_layers"], tuple(grid))
    return _configured(checkpoint, fields | found, facts, grid, notes)


def _configured(checkpoint, fields, facts, grid=None, notes=()) -> Checkpoint:
    return dataclasses.replace(
        checkpoint, fields=fields, facts=facts, grid=grid, notes=[*notes]
    )


def _configure_mixer(checkpoint, image_size, known) -> Checkpoint:
    facts = Facts()
    kernel = checkpoint.checked_shape("patch_embed/projection/kernel", 4)
    found = [(x, y) for x, y in MIXINGS if y in checkpoint.rows]
    mixing, path = (found or MIXINGS[-1:])[0]
    tokens = checkpoint.checked_shape(path, 2)
    hidden = {
        name: checkpoint.checked_shape(
            f"block_0/{name}_mixing/dense_1/kernel", 2
        )[0]
        for name in ("token", "channel")
        if mixing == "mlp" or name == "channel"
    }
    channels = checkpoint.checked_shape(
        "block_0/channel_mixing/dense/kernel", 2
    )
    gates = mixing == "spatial_gating"
    gated = not gates and channels[1] == 2 * hidden["channel"]
    grid = _grid_of(checkpoint, tokens[0], kernel[:2], image_size)
    fields = {
        "image_size": _times(grid, kernel[:2]),
        "channels": kernel[2],
        "patch_size": kernel[:2],
        "hidden_dim": kernel[3],
        "num_layers": _count(checkpoint, r"block_(\d+)/.*"),
        "tokens_mlp_dim": hidden.get("token", 0),
        "channels_mlp_dim": channels[1] if gates else hidden["channel"],
        "mixing": mixing,
        "gated_mlp": gated,
        "pooling": checkpoint.file.config.get("pooling", "mean"),
        "num_classes": _dense_sizes(checkpoint, facts)[1],
        **_constants(checkpoint, {}),
    }
    if "affine" in checkpoint.features:
        fields["normalization"] = "affine"
    if gated:
        checkpoint.use_feature("gates_last")
        if known.get("activation") is None:
            name = known.get("architecture")
            known = _architecture_fields(checkpoint, name, known)
        fields["activation"] = known.get("activation")
    return _configured(checkpoint, fields, facts, grid)


# How a Mixer mixes tokens, and a kernel over all of them that shows it.
MIXINGS = (
    ("spatial_gating", "block_0/channel_mixing/gate/dense/kernel"),
    ("linear", "block_0/token_mixing/kernel"),
    ("mlp", "block_0/token_mixing/dense/kernel"),
)


def _configure_bit(checkpoint, image_size, known) -> Checkpoint:
    facts = Facts()
    deep = "root_conv1/kernel" in checkpoint.rows
    first, last = ("root_conv1", "root_conv3") if deep else ("root_conv",) * 2
    channels = checkpoint.checked_shape(f"{first}/kernel", 4)[2]
    width = checkpoint.checked_shape(f"{last}/kernel", 4)[3]
    fields = {
        "image_size": checkpoint.file.config.get("image_size", (None, None)),
        "channels": channels,
        "units": _units(checkpoint),
        "width": width,
        **_resnet_options(checkpoint, width),
        "pooling": checkpoint.file.config.get("pooling", "mean"),
        "num_classes": _dense_sizes(checkpoint, facts)[1],
        **_constants(checkpoint, {}),
    }
    return _configured(checkpoint, fields, facts)


def _resnet_options(checkpoint, width) -> dict:
    """Return unit, stem and normalisation of a ResNet, by its weights."""
    fields = {}
    if "stage1_unit1_conv3/kernel" not in checkpoint.rows:
        fields["unit"] = "basic"
    if "root_conv1/kernel" in checkpoint.rows:
        shape = checkpoint.checked_shape("root_conv1/kernel", 4)
        fields["stem"] = "deep" if 2 * shape[3] == width else "tiered"
    for weight, normalization in {
        "moving_mean": "batch_norm",
        "gate": "evolved",
    }.items():
        if f"encoder_norm/{weight}" in checkpoint.rows:
            fields["normalization"] = normalization
    return fields


CONFIGURE = {"mixer": _configure_mixer, "bit": _configure_bit}


def _units(checkpoint) -> tuple:
    """Count the units of each stage of a ResNet."""
    found = {
        (int(match[1]), int(match[2]))
        for path in checkpoint.rows
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
            checkpoint.file.path,
            "lacks a stage or unit of its ResNet",
            DAMAGED,
        )
    return tuple(numbers)


def _heads(checkpoint, num_heads, usual, hidden_dim) -> int:
    """Return the attention heads by the file, the argument, or the papers."""
    stored = _heads_of_file(checkpoint)
    _check_heads(checkpoint, stored, num_heads)
    found = stored or num_heads or usual or HEADS_OF_WIDTH.get(hidden_dim)
    if found:
        return found
    if hidden_dim % 64:
        refuse(
            checkpoint.file.path,
            "does not tell its number of attention heads, and a hidden_dim "
            f"of {hidden_dim} is no multiple of 64",
            "Give num_heads=...",
        )
    if "num_heads" not in checkpoint.layout.dialect.untold:
        what = f"num_heads={hidden_dim // 64}, 64 features per head"
        _say_taken(checkpoint, what)
    return hidden_dim // 64


def _check_heads(checkpoint, stored, num_heads) -> None:
    if stored and num_heads and stored != num_heads:
        refuse(
            checkpoint.file.path,
            f"has {stored} attention heads, but num_heads={num_heads}",
            "Leave out num_heads, or build the model for the file with "
            "keras_vit.checkpoints.load_checkpoint.",
        )


def _heads_of_file(checkpoint) -> int | None:
    """Count heads by kernels of rank 3 or across heads, or by the config."""
    path = "block_0/attention/qkv/kernel"
    if path not in checkpoint.rows:
        checkpoint.checked_shape(path, 2)  # says what is missing
    row = checkpoint.rows[path]
    if row.transform == "heads_qkv":
        return (*checkpoint.file.tensors[row.names[0]].shape, 0, 0)[1]
    talking = "block_0/attention/logits_projection/kernel"
    if talking in checkpoint.rows:
        return checkpoint.checked_shape(talking, 2)[0]
    distances = "block_0/attention/position_bias/rows"
    if distances in checkpoint.rows:
        width = checkpoint.checked_shape("patch_embed/projection/kernel", 4)[3]
        return width // checkpoint.checked_shape(distances, 2)[1]
    return checkpoint.file.config.get("num_heads")


def _dense_sizes(checkpoint, facts) -> tuple:
    """Return outputs of the pre-logits layer and of the head, 0 without."""
    return tuple(
        checkpoint.checked_shape(path, 2, facts)[1]
        if path in checkpoint.rows
        else 0
        for path in ("pre_logits/kernel", "predictions/kernel")
    )


def _pooling(checkpoint, known, fields) -> str:
    if "pool/probe" in checkpoint.rows:
        whole = "pool/mlp/dense/kernel" in checkpoint.rows
        return "map" if whole else "attention"
    if "averaged_heads" in checkpoint.features:
        return "prefix"
    if checkpoint.file.config.get("pooling"):
        return checkpoint.file.config["pooling"]
    if "pooling" in checkpoint.layout.constants:
        return fields["pooling"]
    if found := checkpoint.layout.find_pooling(checkpoint, fields):
        return found
    if known.get("pooling"):
        return known["pooling"]
    path, wide = "predictions/kernel", 2 * fields["hidden_dim"]
    has_head = fields["class_token"] and path in checkpoint.rows
    if has_head and checkpoint.checked_shape(path, 2)[0] == wide:
        return "token_and_mean"  # as DINOv2's linear head
    after = "norm_after_pooling" in checkpoint.features
    return "token" if fields["class_token"] and not after else "mean"


def _constants(checkpoint, known) -> dict:
    """Return what the layout fixes, unless something tells it."""
    root = "root_conv/kernel" in checkpoint.rows
    known = {**known, **checkpoint.file.config}
    fields = {
        name: known.get(name, value)
        for name, value in checkpoint.layout.constants.items()
        if root or not name.startswith("resnet_")
    }
    for path, implied in checkpoint.layout.implied.items():
        if path in checkpoint.rows or path in checkpoint.features:
            fields |= {x: known.get(x) or y for x, y in implied.items()}
    return fields


def _patch_stem(checkpoint, projected) -> dict:
    """Return the convolutions before the projection of the patches."""
    kernels = [
        checkpoint.checked_shape(path, 4)
        for path in ("stem_conv1/kernel", "stem_conv2/kernel")
        if path in checkpoint.rows
    ]
    if not kernels:
        return {}
    strides = tuple(kernel[0] for kernel in kernels)
    return {
        "channels": kernels[0][2],
        "patch_size": _times(projected, (math.prod(strides),) * 2),
        "patch_stem": strides,
        "patch_stem_dim": kernels[0][3],
    }


def _prefix_tokens(checkpoint) -> tuple[int, int]:
    """Count the tokens before the patches, and the registers of these."""
    path = "class_token/token"
    prefix = (
        checkpoint.checked_shape(path, 3)[1] if path in checkpoint.rows else 0
    )
    if "registers_alone" in checkpoint.features:
        return prefix, prefix
    others = 1 + ("distillation_token" in checkpoint.features)
    return prefix, max(prefix - others, 0)


def _class_blocks(checkpoint) -> int:
    """Count the blocks of class attention."""
    if not any(path.startswith("class_block_") for path in checkpoint.rows):
        return 0
    return _count(checkpoint, r"class_block_(\d+)/.*")


def _biases(checkpoint) -> dict:
    """Find which of the biases that files may lack are there."""
    head = {"predictions/kernel", "predictions/bias"} & set(checkpoint.rows)
    without = {"head_bias": None} if head == {"predictions/kernel"} else {}
    paths = {
        "patch_bias": "patch_embed/projection/bias",
        "qkv_bias": "block_0/attention/qkv/bias",
        "projection_bias": "block_0/attention/out/bias",
    }
    return without | {
        name: name not in checkpoint.layout.optional or path in checkpoint.rows
        for name, path in paths.items()
    }


def _shown_by_weights(checkpoint) -> dict:
    """Return which options are on, of those that have weights of their own."""
    return {
        name: any(x in path for x in row.weights for path in checkpoint.rows)
        for name, row in options_of(ViTConfig).items()
        if row.weights
        and isinstance(getattr(ViTConfig, name), bool)
        and name not in ("class_token", "relative_position_bias")
    }


def _block_options(checkpoint, known, facts) -> dict:
    """Return the options of the block that its weights show."""
    fields = _shown_by_weights(checkpoint)
    fields |= _relative_positions(checkpoint)
    hidden = checkpoint.checked_shape("block_0/mlp/dense_1/kernel", 2, facts)[0]
    first = checkpoint.checked_shape("block_0/mlp/dense/kernel", 2, facts)[1]
    fields["gated_mlp"] = first == 2 * hidden
    if "block_0/attention_norm/beta" not in checkpoint.rows:
        fields["normalization"] = "rms_norm"
    row = checkpoint.rows.get("block_0/attention/qkv/bias")
    keyless = row is not None and row.transform.endswith("query_value")
    if "grouped_qkv" in checkpoint.features:
        fields["key_value_heads"] = _key_value_heads(checkpoint, facts)
    elif keyless or "separate_qkv" in checkpoint.features:
        fields["key_bias"] = False
    scales = [f"block_0/{x}_scale/gamma" for x in ("attention", "mlp")]
    if "parallel" in checkpoint.features:
        fields["mlp_placement"] = "beside"
    elif [x in checkpoint.rows for x in scales] == [True, False]:
        fields["mlp_layer_scale"] = False
    if "block_0/attention/rotary/frequencies" in checkpoint.rows:
        fields["rope"] = "mixed"
    if "neck/projection/kernel" in checkpoint.rows:
        neck = checkpoint.checked_shape("neck/projection/kernel", 2)
        fields["neck_dim"] = neck[1]
    if "pool/mlp/dense/kernel" in checkpoint.rows:
        pooled = checkpoint.checked_shape("pool/mlp/dense/kernel", 2, facts)[1]
        fields["pool_mlp_dim"] = pooled if pooled != hidden else 0
    return fields


def _key_value_heads(checkpoint, facts) -> tuple:
    """Count the heads of keys and values in each block by their biases."""
    blocks = range(_count(checkpoint, r"block_(\d+)/.*"))
    widths = (
        checkpoint.checked_shape(f"block_{i}/attention/qkv/bias", 1, facts)[0]
        for i in blocks
    )
    head_dim = facts.hidden_dim // facts.num_heads
    return tuple((x - facts.hidden_dim) // (2 * head_dim) for x in widths)


def _count(checkpoint, pattern) -> int:
    """Count blocks or units, which are numbered without a gap from 0."""
    found = {
        int(match[1])
        for x in checkpoint.rows
        if (match := re.match(pattern, x))
    }
    missing = set(range(max(found, default=0) + 1)) - found
    if missing:
        refuse(
            checkpoint.file.path,
            f"lacks numbers {sorted(missing)[:20]} of its blocks",
            DAMAGED,
        )
    return len(found)


DEFAULT_IMAGE = 224
# Where those of each block are, and those that all blocks share.
RELATIVE_POSITIONS = ("block_0/attention/position_bias", "position_bias")


def _position_fields(
    checkpoint, fields, facts, image_size, notes, known
) -> tuple:
    """Return the grid of patches, and the fields that follow from it."""
    path = "position_embedding/embedding"
    stored = checkpoint.file.config.get("image_size")
    cell = _cell_size(fields)
    if "position_map" in checkpoint.features:
        grid = _shown_grid(checkpoint)
        _check_stored_size(checkpoint, stored, grid, cell)
        return grid, {"image_size": stored or _times(grid, cell)}
    if {"position_grid", "position_axes"} & checkpoint.features:
        grid = _shown_grid(checkpoint)
        size = stored or known.get("image_size") or _times(grid, cell)
        return grid, {"image_size": size}
    if path in checkpoint.rows:
        prefix = facts.num_prefix_tokens
        length = checkpoint.checked_shape(path, 3, facts)[1]
        grid, prefixed = _grid_with_prefix(
            checkpoint,
            length,
            prefix,
            cell,
            image_size,
            known.get("image_size"),
        )
        _check_stored_size(checkpoint, stored, grid, cell)
        if prefix and not prefixed:
            checkpoint.use_feature("prefix_without_position")
        size = _whole_size(stored or _times(grid, cell), grid, cell, notes)
        if stored:
            checkpoint.file.config["image_size"] = size
        return grid, {"image_size": size}
    placed = fields.get("rope") or fields["relative_position_bias"]
    if placed or not checkpoint.layout.has_fixed_positions:
        return _without_positions(checkpoint, fields, image_size, cell, known)
    size = stored or image_size
    if size is None:
        size = tuple(max(x, DEFAULT_IMAGE // x * x) for x in cell)
        _say_taken(checkpoint, f"image_size={size}")
    grid = size[0] // cell[0], size[1] // cell[1]
    return grid, {"image_size": size, "position_embedding": "sincos2d"}


# Tensors with a position for each row and column.
MAPS = {"position_grid": "pos_grid", "position_map": "pos_embed"}


def _shown_grid(checkpoint) -> tuple:
    """Return the grid of positions stored as one, or for each axis."""
    tensors = checkpoint.file.tensors
    for feature, name in MAPS.items():
        if feature in checkpoint.features:
            found = tensors[name].shape[1:-1]
            break
    else:
        found = tuple((*tensors[x].shape, 0, 0)[1] for x in ("pos_y", "pos_x"))
    if len(found) != 2 or 0 in found:
        refuse(
            checkpoint.file.path,
            f"holds positions of {found} patches",
            "Expected rows and columns: the file is damaged, fetch it again.",
        )
    return found


def _without_positions(checkpoint, fields, image_size, cell, known) -> tuple:
    """Return the same for a file without a position embedding."""
    if not (fields.get("rope") or fields["relative_position_bias"]):
        refuse(
            checkpoint.file.path,
            "has no position embedding: its model has rotary positions, or "
            "none at all",
            f"Give {_ways_to_tell(checkpoint)}."
            if checkpoint.layout.read_architecture
            else "Choose another file.",
        )
    size = checkpoint.file.config.get("image_size") or known.get("image_size")
    told = size or image_size
    size = told or (DEFAULT_IMAGE, DEFAULT_IMAGE)
    for table in (f"{x}/table" for x in RELATIVE_POSITIONS):
        if table in checkpoint.rows:
            grid = _grid_of_distances(checkpoint, table, size, cell, fields)
            size = told = _times(grid, cell)
    size = tuple(max(x // y * y, y) for x, y in zip(size, cell, strict=True))
    if not told:
        _say_taken(checkpoint, f"image_size={size}")
    grid = size[0] // cell[0], size[1] // cell[1]
    return grid, {"image_size": size, "position_embedding": "none"}


def _ways_to_tell(checkpoint) -> str:
    """Name the arguments and files that tell the architecture of a file."""
    config = "the config.json that belongs to the file"
    if not checkpoint.layout.read_architecture:
        return config
    name = checkpoint.layout.dialect.name
    return f'architecture="..." in {name}\'s words, or {config}'


def _grid_of_distances(checkpoint, path, size, cell, fields) -> tuple:
    """Return the grid whose distances a table of relative positions holds."""
    count = checkpoint.checked_shape(path, 2)[0] - 3 * fields["class_token"]
    side = (math.isqrt(max(count, 0)) + 1) // 2
    for grid in ((size[0] // cell[0], size[1] // cell[1]), (side, side)):
        if (2 * grid[0] - 1) * (2 * grid[1] - 1) == count:
            return grid
    _refuse_grid(checkpoint, count, cell)


def _check_stored_size(checkpoint, size, grid, cell) -> None:
    """Refuse an image size that does not make the grid of the positions."""
    if size is None:
        return
    cut = tuple(x // y for x, y in zip(size, cell, strict=True))
    padded = tuple(-(-x // y) for x, y in zip(size, cell, strict=True))
    if tuple(grid) in (cut, padded):  # A ResNet pads.
        return
    refuse(
        checkpoint.file.path,
        f"has image_size={size} by its config, of which patches of {cell} "
        f"pixels do not make the {grid[0]}x{grid[1]} positions in its tensors",
        "Take the config.json that belongs to the file, or write the right "
        "size into it; load_checkpoint(..., input_shape=...) resamples.",
    )


def _whole_size(size, grid, cell, notes) -> tuple:
    """Return the size of images of which patches leave nothing out.

    SigLIP's So400m cuts images of 384 pixels into 27 patches of 14.
    """
    whole = _times(grid, cell)
    if all(x <= y for x, y in zip(size, whole, strict=True)):
        return size  # All of it is read, or a ResNet pads it.
    notes.append(
        f"image_size={tuple(whole)} of {tuple(size)}: the original does not "
        "read what is left at the right and at the bottom beside patches of "
        f"{tuple(cell)} pixels; cut images so, or resize them to this"
    )
    return whole


def _grid_with_prefix(
    checkpoint, length, prefix, cell, image_size, told_size
) -> tuple:
    """Return the grid of patches, and whether prefix tokens have positions.

    Formats that have no such variant give every token a position.
    """
    counts = {length - prefix: True}
    if prefix and "prefix_without_position" in checkpoint.layout.variants:
        counts[length] = False
    levels = zip(
        *(
            _grids_of(checkpoint, x, cell, image_size, told_size)
            for x in counts
        ),
        strict=True,
    )
    readings, told = {}, False
    # Level by level: what is certain for one count rules out the other.
    for number, level in enumerate(levels):
        for prefixed, grids in zip(counts.values(), level, strict=True):
            readings |= dict.fromkeys(grids, prefixed)
        if readings:
            told = number < 2  # by a config or an architecture
            break
    if len(readings) == 1:
        (found,) = readings.items()
        if not told and checkpoint.layout.dialect.untold:
            what = "x".join(map(str, found[0]))
            _say_taken(checkpoint, f"{what} patches of {cell} pixels")
        return found
    if not readings:
        _refuse_grid(checkpoint, length - prefix, cell)
    shown = " or ".join(
        f"{rows}x{columns} patches with{'' if prefixed else 'out'} positions "
        f"of the {prefix} other tokens"
        for (rows, columns), prefixed in readings.items()
    )
    refuse(
        checkpoint.file.path,
        f"holds {length} positions, which can be {shown}",
        f"Give {_ways_to_tell(checkpoint)}; or load it at the size it was "
        "made for, without input_shape, and save it as a .keras file.",
    )


def _grids_of(checkpoint, count, cell, image_size, told_size=None) -> list:
    """Return the grids of so many patches, the most certain first.

    A list per source: the file, its architecture, and then a square and what
    the caller gives, of which neither is certain.
    """
    side = math.isqrt(max(count, 0))
    square = side * cell[0], side * cell[1]
    levels = [(checkpoint.file.config.get("image_size"),), (told_size,)]
    # The original code's files are of square images.
    if checkpoint.layout.container == "npz":
        levels += [(square,), (image_size,)]
    else:
        levels += [(square, image_size)]
    result = []
    for sizes in levels:
        grids = [(x[0] // cell[0], x[1] // cell[1]) for x in sizes if x]
        fitting = [grid for grid in grids if math.prod(grid) == count > 0]
        result.append(list(dict.fromkeys(fitting)))
    return result


def _grid_of(checkpoint, length, cell, image_size) -> tuple:
    """Return rows and columns of patches that all have positions."""
    for grids in _grids_of(checkpoint, length, cell, image_size):
        if grids:
            return grids[0]
    _refuse_grid(checkpoint, length, cell)


def _refuse_grid(checkpoint, length, cell) -> NoReturn:
    hint, token = "", checkpoint.layout.table.get("class_token/token")
    if token and "class_token/token" not in checkpoint.rows:
        hint = f", and there is no class token ({token[0]} is missing)"
    refuse(
        checkpoint.file.path,
        f"holds positions of {length} patches, which are no square grid{hint}",
        "Give input_shape=(height, width, channels) of the images that it "
        f"was made for; a patch is {cell[0]}x{cell[1]} pixels.",
    )


def _cell_size(fields) -> tuple:
    """Return the pixels that one token stands for."""
    stages = fields.get("resnet_units")
    stride = 1 if stages is None else 4 * 2 ** max(len(stages) - 1, 0)
    return _times((stride, stride), fields["patch_size"])


def _times(pair, factors) -> tuple:
    return pair[0] * factors[0], pair[1] * factors[1]


def _relative_positions(checkpoint) -> dict:
    """Find relative positions, of each block or of all, and their kind."""
    for place in RELATIVE_POSITIONS:
        shared = {} if "/" in place else {"relative_positions_shared": True}
        if f"{place}/table" in checkpoint.rows:
            return {"relative_position_bias": True, **shared}
        if f"{place}/rows" in checkpoint.rows:
            return {
                "relative_position_bias": True,
                "relative_position_kind": "decomposed",
            }
        path = f"{place}/hidden_weight"
        if path in checkpoint.rows:
            has_bias = f"{place}/head_bias" in checkpoint.rows
            return {
                "relative_position_bias": True,
                "relative_position_kind": "mlp" if has_bias else "mlp_swin",
                "relative_position_dim": checkpoint.checked_shape(path, 2)[1],
                **shared,
            }
    return {"relative_position_bias": False}


def _windows(checkpoint, num_layers, grid) -> dict:
    """Return the windows of blocks with relative positions of no whole grid.

    Of a grid as large as a window these show nothing; the config tells.
    """
    if not checkpoint.file.config.get(WINDOWS[0], 1):
        checkpoint.file.config.pop(WINDOWS[1], None)  # All blocks are global.
    known = {x: y for x, y in checkpoint.file.config.items() if x in WINDOWS}
    path = "block_{}/attention/position_bias/{}"
    if path.format(0, "rows") not in checkpoint.rows:
        return known
    grids = [
        tuple(
            (checkpoint.checked_shape(path.format(i, axis), 2)[0] + 1) // 2
            for axis in ("rows", "columns")
        )
        for i in range(num_layers)
    ]
    sizes = {x for found in grids if found != grid for x in found}
    some = len(known.get(WINDOWS[1], ())) < num_layers
    if not sizes and known.get(WINDOWS[0]) and some:
        sizes = {known[WINDOWS[0]], *grid}
    elif sizes:
        known = {
            WINDOWS[0]: max(sizes),
            WINDOWS[1]: tuple(i for i, x in enumerate(grids) if x == grid),
        }
    if len(sizes) > 1:
        refuse(
            checkpoint.file.path,
            f"holds relative positions within {sorted(set(grids))} patches, "
            f"in an image of {grid[0]}x{grid[1]} patches",
            "Expected those of the whole image and of windows of the size "
            f"that its config tells, {known[WINDOWS[0]]}.",
        )
    return known


def adapted_fields(
    found: dict,
    family: str,
    *,
    classes: int | None,
    input_shape: tuple | None,
    include_top: bool,
    keep_representation: bool,
    overrides: dict,
) -> dict:
    """Return the fields that were found with what a user wants otherwise."""
    check_kind(
        bool, include_top=include_top, keep_representation=keep_representation
    )
    fields = dict(found)
    if input_shape is not None:
        height, width, channels = check_input_shape(input_shape, family)
        fields |= {"image_size": (height, width), "channels": channels}
        fields |= _pixel_fields(fields)
    if classes is not None:
        fields |= _head_fields(fields, classes, keep_representation)
    if not include_top:
        fields |= {"num_classes": 0, "pooling": "none"}
        if "representation_dim" in fields:
            fields["representation_dim"] = 0
        pools = overrides.get("pooling", "none") != "none"
        if fields.get("norm_after_pooling") and not pools:
            # Its publisher's features are the tokens before that.
            fields |= {"norm_after_pooling": False, "final_norm": False}
    if overrides.get("pooling") == "avg":
        overrides = {**overrides, "pooling": "mean"}
    if (
        fields.get("pooling") == "token"
        and overrides.get("pooling") in ("mean", "max")
        and not fields.get("register_tokens")
        and not fields.get("class_attention_layers")
    ):
        # As the original does it: what pools patches has no class token.
        fields["class_token"] = False
    if overrides.get("pooling") == "token":
        fields["class_token"] = True
        fields["norm_after_pooling"] = False
    return fields | overrides


def check_input_shape(input_shape, family: str) -> tuple:
    """Return (height, width, channels) of what users give as a shape.

    Args:
        input_shape: what was given.
        family: of the models, of which "bit" takes None as a side.

    Raises:
        ValueError: when it is none, or a side is unknown or not above 0.
    """
    is_shape = isinstance(input_shape, (tuple, list)) and len(input_shape) == 3
    sizes = tuple(input_shape) if is_shape else ()
    if family == "bit":  # It takes images of any size.
        sizes = (*(x for x in sizes[:2] if x is not None), *sizes[2:])
    if not is_shape or not all(type(x) is int and x > 0 for x in sizes):
        raise ValueError(
            "input_shape must be (height, width, channels), all known and "
            "channels last: patches and position embeddings depend on it. "
            f"Received: input_shape={input_shape!r}. Give for example "
            "input_shape=(384, 384, 3)."
        )
    return tuple(input_shape)


def _pixel_fields(fields) -> dict:
    """Return mean and deviation of pixels for another number of channels."""
    names = ("pixel_mean", "pixel_std")
    return {
        name: (float(np.mean(fields[name])),) * fields["channels"]
        for name in names
        if fields.get(name) and len(fields[name]) != fields["channels"]
    }


def _head_fields(fields, classes, keep_representation) -> dict:
    if type(classes) is not int or classes < 0:
        raise ValueError(
            "classes must be the number of classes, or 0 for features. "
            f"Received: classes={classes!r}."
        )
    found: dict = {"num_classes": classes}
    if not classes and fields.get("pooling") == "prefix":
        # Features of two heads are the mean of what they see.
        found["pooling"] = "prefix_mean"
    is_new = classes != fields["num_classes"]
    if is_new and fields.get("head_bias", 0.0) is None:
        found["head_bias"] = 0.0
    if is_new and not keep_representation and fields.get("representation_dim"):
        found["representation_dim"] = 0
    return found
