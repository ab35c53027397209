"""Why a format cannot hold a model; each reason follows "it "."""

import math

from keras_vit.checkpoints.dialects.hugging_face_export import (
    HUGGING_FACE_ACTIVATIONS,
    NO_PLACE,
)
from keras_vit.checkpoints.engine.fields_table import (
    EXPORTED,
    FEATURES,
    OPTIONS,
    POOLINGS,
)
from keras_vit.checkpoints.engine.recognition import matches, row_of
from keras_vit.checkpoints.files.record import unrecorded

__all__ = [
    "missing_features",
    "missing_paths",
    "missing_rows",
    "other_constants",
    "unknown_fields",
    "unspoken",
    "wrong_grid",
    "wrong_groups",
    "wrong_layers",
    "wrong_neck",
    "wrong_pooling",
    "wrong_positions",
]


def unspoken(target) -> list:
    """Fields that no record can tell."""
    return [
        f"has no words for {name}={target.config[name]!r}"
        for name in unrecorded(target.config)
    ]


def unknown_fields(format, target) -> list:
    """Fields that no row of the table knows, or that no record can tell."""
    problems = unspoken(target)
    for name, default in target.defaults.items():
        row, value = EXPORTED[target.family].get(name), target.config[name]
        known = row and (row.formats is None or format.name in row.formats)
        if value != default and not known:
            problems.append(f"has no place for {name}={value!r}")
    return problems


def other_constants(format, config) -> list:
    hybrid = config.get("resnet_units") is not None
    return [
        f"fixes {name}={value!r}, the model has {config[name]!r}"
        for name, value in format.constants.items()
        if name not in format.settable
        and (hybrid or not name.startswith("resnet_"))
        and config[name] != value
    ]


def missing_paths(format, target, features) -> list:
    table = format.rows(features)
    return [
        path
        for path in target.variables
        if row_of(path, table) is None or matches(path, format.unwritable)
    ]


def missing_rows(format, target, features) -> list:
    missing = missing_paths(format, target, features)
    if not missing:
        return []
    options = {y for x in missing for word, y in OPTIONS.items() if word in x}
    named = f" ({', '.join(sorted(options))})" if options else ""
    return [f"{NO_PLACE} {', '.join(missing[:3])}{named}"]


def missing_features(format, features) -> list:
    allowed = set(format.variants)
    if format.name == "google":
        allowed.add("root_only")  # named as in the others of its hybrids
    lacking = sorted(features - allowed)
    return [f"has no {FEATURES.get(feature, feature)}" for feature in lacking]


def wrong_pooling(format, config) -> list:
    pooling, token = config["pooling"], config.get("class_token")
    allowed = POOLINGS[format.name, format.family]
    if pooling == "none" and not config["num_classes"]:
        allowed = ("none",)
    if pooling not in allowed:
        names = " or ".join(map(repr, allowed))
        return [f"has pooling={names}, the model {pooling!r}"]
    without = {"google": ("mean",), "big_vision": ("mean", "map", "none")}
    if token and pooling in without.get(format.name, ()):
        return [f"has no class_token with pooling={pooling!r}"]
    return _wrong_for_two_tokens(format, config)


def _wrong_for_two_tokens(format, config) -> list:
    """DeiT's two tokens are pooled in one way, by two heads or without one."""
    pooling, distilled = config["pooling"], config.get("distillation_token")
    deit = "prefix" if config["num_classes"] else "prefix_mean"
    if pooling.startswith("prefix") and not (distilled and pooling == deit):
        return [f"has pooling={deit!r} of a distillation_token only"]
    timm = distilled and format.name == "timm"
    if timm and pooling not in (deit, "none"):
        return [
            f"has pooling={deit!r} beside a distillation_token, the model "
            f"{pooling!r}"
        ]
    return []


def wrong_layers(format, config) -> list:
    problems = []
    activation = config.get("activation", "gelu")
    if format.name == "hugging_face" and (
        activation not in HUGGING_FACE_ACTIVATIONS
    ):
        problems.append(f"has no hidden_act for activation={activation!r}")
    if len(config.get("patch_stem") or (0, 0)) != 2:
        problems.append(
            "has a patch_stem of two convolutions, the model "
            f"{len(config['patch_stem'])}"
        )
    both = config.get("representation_dim") and config["num_classes"]
    if format.name == "hugging_face" and both:
        problems.append("has representation_dim or num_classes, not both")
    if format.name == "hugging_face" and config.get("class_token") is False:
        problems.append("always has class_token=True")
    problems += [
        f"always has {name}=True"
        for name in ("patch_bias", "qkv_bias")
        if config.get(name) is False and name not in format.optional
    ]
    if config.get("num_classes") and config.get("head_bias", 0.0) is None:
        problems.append("always has a bias of the classification layer")
    return problems


def wrong_groups(format, config) -> list:
    """timm's shared keys have biases, and one of its tensors shows them."""
    groups = config.get("key_value_heads")
    if groups and "grouped_qkv" not in format.variants:
        return [f"has no place for key_value_heads={groups}"]
    if groups and not config["qkv_bias"]:
        return [f"has qkv_bias=True with key_value_heads={groups}"]
    return []


def wrong_neck(format, config) -> list:
    """Windows and a neck are those of SAM, which is another model of timm."""
    lacking = [x for x in format.needs if not config.get(x)]
    if lacking:
        return [f"has no model without {', '.join(lacking)}"]
    if config.get("window_size") and not format.needs:
        return [f"has no place for window_size={config['window_size']}"]
    return []


def wrong_positions(format, config) -> list:
    problems = []
    if config.get("rope") == "mixed":
        problems.append("is not written with rope='mixed'")
    placed = config.get("rope") or config.get("relative_position_bias")
    none = config.get("position_embedding") == "none"
    if none and not placed:
        problems.append("needs position_embedding='learned'")
    sincos = config.get("position_embedding") == "sincos2d"
    if sincos and format.name != "big_vision":
        problems.append("needs position_embedding='learned'")
    if sincos and config["class_token"]:
        problems.append(
            "has position_embedding='sincos2d' without class_token only"
        )
    return problems


def wrong_grid(format, grid) -> list:
    """Readers of these files take a square number for a square grid."""
    if format.container != "npz" or not grid or grid[0] == grid[1]:
        return []
    if math.isqrt(math.prod(grid)) ** 2 != math.prod(grid):
        return []
    return [
        f"cannot tell a grid of {grid[0]}x{grid[1]} (image_size) from a square "
        "one"
    ]
