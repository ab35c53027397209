"""The config of the model that a file holds, from its tensors."""

import re
import warnings
from pathlib import Path

from keras_vit.checkpoints.dialects.architectures import (
    OPTIONS,
    PIXELS,
    fields_of_file,
)
from keras_vit.checkpoints.engine.block_options import (
    biases,
    block_options,
    class_blocks,
    count,
    patch_stem,
    prefix_tokens,
)
from keras_vit.checkpoints.engine.grids import (
    grid_of,
    position_fields,
    times,
    windows,
)
from keras_vit.checkpoints.engine.recognition import Configured, Source
from keras_vit.checkpoints.engine.transforms import Facts
from keras_vit.checkpoints.files.tensors import DAMAGED, refuse

__all__ = ["UNTOLD", "configure"]

# Fields of the config that no tensor tells.
UNTOLD = (
    *("activation", "layer_norm_epsilon", "num_heads", "pooling"),
    *(*PIXELS, *OPTIONS),
)
# Fields of what stands around the original's model, from a record.
AROUND = ("classifier_activation", "include_preprocessing")
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
        told = {**source.file.config, **dict(given)}
        told |= {"architecture": architecture} if architecture else {}
        configured = CONFIGURE[family](source, image_size, told)
    configured.notes.extend(source.file.notes)
    fields = configured.fields
    fields |= {x: y for x, y in source.file.config.items() if x in AROUND}
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
    width = source.checked_shape("patch_embed/projection/kernel", 4)[3]
    told = {}
    name = name or source.file.config.get("architecture")
    # What only a record of ours tells: the model is known, and is ours.
    is_ours = AROUND[0] in source.file.config
    if source.format.name == "timm" and not (is_ours and name is None):
        known = {*given, *source.file.config}
        known |= {"num_heads"} if num_heads else set()
        told = fields_of_file(
            source.file.path,
            source.file.tensors,
            width,
            name,
            known,
        )
    elif source.format.name != "timm" and name is not None:
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
    if "resampling" in told:
        source.file.config.setdefault("resampling", told["resampling"])
    heads = _heads(source, num_heads, told.get("num_heads"), width)
    return {**told, "num_heads": heads}


def _configure_vit(source, told, image_size) -> Configured:
    notes = []
    kernel = source.checked_shape("patch_embed/projection/kernel", 4)
    root = "root_conv/kernel" in source.rows
    prefix, registers = prefix_tokens(source)
    late = class_blocks(source)
    facts = Facts(
        told["num_heads"],
        0 if late else prefix,
        told.get("pool_num_heads", 0),
        kernel[3],
    )
    distilled = "distillation_token" in source.features
    representation, classes = _dense_sizes(source, facts)
    fields = {
        "channels": kernel[2],
        "patch_size": kernel[:2],
        "hidden_dim": kernel[3],
        "num_layers": count(source, r"block_(\d+)/.*"),
        "mlp_dim": source.checked_shape("block_0/mlp/dense_1/kernel", 2, facts)[
            0
        ],
        "num_heads": told["num_heads"],
        "class_token": prefix > distilled + registers,
        "class_attention_layers": late,
        "distillation_token": distilled,
        "register_tokens": registers,
        "norm_after_pooling": source.file.config.get(
            "norm_after_pooling", "norm_after_pooling" in source.features
        ),
        "patch_norm": "patch_norm/gamma" in source.rows,
        "norm_before_blocks": "first_norm/gamma" in source.rows,
        "num_classes": classes,
        "representation_dim": representation,
        **_constants(source, told),
        **biases(source),
        **block_options(source, told, facts),
    }
    fields |= patch_stem(source, kernel[:2])
    fields["pooling"] = _pooling(source, told, fields)
    fields |= {x: told[x] for x in (*PIXELS, *OPTIONS) if x in told}
    if root:
        width = source.checked_shape("root_conv/kernel", 4)
        fields["channels"], fields["resnet_width"] = width[2], width[3]
        fields["resnet_units"] = _units(source)
    grid, found = position_fields(
        source, fields, facts, image_size, notes, told
    )
    found |= windows(source, fields["num_layers"], tuple(grid))
    return Configured(fields | found, facts, grid, notes)


def _configure_mixer(source, image_size, told) -> Configured:
    facts = Facts()
    kernel = source.checked_shape("patch_embed/projection/kernel", 4)
    found = [(x, y) for x, y in MIXINGS if y in source.rows]
    mixing, path = (found or MIXINGS[-1:])[0]  # What is missing is told next.
    tokens = source.checked_shape(path, 2)
    hidden = {
        name: source.checked_shape(f"block_0/{name}_mixing/dense_1/kernel", 2)[
            0
        ]
        for name in ("token", "channel")
        if mixing == "mlp" or name == "channel"
    }
    channels = source.checked_shape("block_0/channel_mixing/dense/kernel", 2)
    gates = mixing == "spatial_gating"
    gated = not gates and channels[1] == 2 * hidden["channel"]
    grid = grid_of(source, tokens[0], kernel[:2], image_size)
    fields = {
        "image_size": times(grid, kernel[:2]),
        "channels": kernel[2],
        "patch_size": kernel[:2],
        "hidden_dim": kernel[3],
        "num_layers": count(source, r"block_(\d+)/.*"),
        "tokens_mlp_dim": hidden.get("token", 0),
        "channels_mlp_dim": channels[1] if gates else hidden["channel"],
        "mixing": mixing,
        "gated_mlp": gated,
        "pooling": source.file.config.get("pooling", "mean"),
        "num_classes": _dense_sizes(source, facts)[1],
        **_constants(source, {}),
    }
    if "affine" in source.features:
        fields["normalization"] = "affine"
    if gated:
        source.follow("gates_last")
        fields["activation"] = _activation_of_gates(source, told)
    return Configured(fields, facts, grid)


# How a Mixer mixes tokens, and a kernel over all of them that shows it.
MIXINGS = (
    ("spatial_gating", "block_0/channel_mixing/gate/dense/kernel"),
    ("linear", "block_0/token_mixing/kernel"),
    ("mlp", "block_0/token_mixing/dense/kernel"),
)


def _activation_of_gates(source, told) -> str:
    """That of a gMixer, of which timm has two, or what something tells."""
    names = (told.get("architecture"), Path(source.file.path).name)
    is_gmixer = any("gmixer_" in (x or "") for x in names)
    if told.get("activation") is None and not is_gmixer:
        refuse(
            source.file.path,
            "has gated MLPs and does not tell their activation",
            "Put the config.json that belongs to it beside it, or give "
            'activation="silu", as timm\'s gMixers have it.',
        )
    return told.get("activation") or "silu"


def _configure_bit(source, image_size, told) -> Configured:
    facts = Facts()
    deep = "root_conv1/kernel" in source.rows
    first, last = ("root_conv1", "root_conv3") if deep else ("root_conv",) * 2
    channels = source.checked_shape(f"{first}/kernel", 4)[2]
    width = source.checked_shape(f"{last}/kernel", 4)[3]
    fields = {
        "image_size": source.file.config.get("image_size", (None, None)),
        "channels": channels,
        "units": _units(source),
        "width": width,
        **_resnet_options(source, width),
        "pooling": source.file.config.get("pooling", "mean"),
        "num_classes": _dense_sizes(source, facts)[1],
        **_constants(source, {}),
    }
    return Configured(fields, facts)


def _resnet_options(source, width) -> dict:
    """Unit, stem and normalisation of a ResNet, by its weights."""
    fields = {}
    if "stage1_unit1_conv3/kernel" not in source.rows:
        fields["unit"] = "basic"
    if "root_conv1/kernel" in source.rows:
        shape = source.checked_shape("root_conv1/kernel", 4)
        fields["stem"] = "deep" if 2 * shape[3] == width else "tiered"
    for weight, normalization in {
        "moving_mean": "batch_norm",
        "gate": "evolved",
    }.items():
        if f"encoder_norm/{weight}" in source.rows:
            fields["normalization"] = normalization
    return fields


CONFIGURE = {"mixer": _configure_mixer, "bit": _configure_bit}


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
    """Heads by kernels of rank 3 or across heads, or by the config beside."""
    path = "block_0/attention/qkv/kernel"
    if path not in source.rows:
        source.checked_shape(path, 2)  # says what is missing
    row = source.rows[path]
    if row.transform == "heads_qkv":
        return (*source.file.tensors[row.names[0]].shape, 0, 0)[1]
    talking = "block_0/attention/logits_projection/kernel"
    if talking in source.rows:
        return source.checked_shape(talking, 2)[0]
    distances = "block_0/attention/position_bias/rows"
    if distances in source.rows:
        width = source.checked_shape("patch_embed/projection/kernel", 4)[3]
        return width // source.checked_shape(distances, 2)[1]
    return source.file.config.get("num_heads")


def _dense_sizes(source, facts) -> tuple:
    """Outputs of the pre-logits layer and of the head, 0 where absent."""
    return tuple(
        source.checked_shape(path, 2, facts)[1] if path in source.rows else 0
        for path in ("pre_logits/kernel", "predictions/kernel")
    )


def _pooling(source, told, fields) -> str:
    if "pool/probe" in source.rows:
        whole = "pool/mlp/dense/kernel" in source.rows
        return "map" if whole else "attention"
    if "averaged_heads" in source.features:
        return "prefix"
    if source.file.config.get("pooling"):
        return source.file.config["pooling"]
    if "pooling" in source.format.constants:
        return fields["pooling"]
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
    has_head = fields["class_token"] and path in source.rows
    if has_head and source.checked_shape(path, 2)[0] == wide:
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
        if path in source.rows or path in source.features:
            fields |= {x: known.get(x) or y for x, y in implied.items()}
    return fields
