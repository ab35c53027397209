"""Which format can hold which model."""

import re

from keras_vit.checkpoints.formats.formats_table import Format
from keras_vit.checkpoints.formats.naming import row_of
from keras_vit.checkpoints.target import Target

__all__ = ["features_for", "objections"]

# Pooling that a model with a head gets when it is built from such a file.
POOLINGS = {
    "google": ("token", "mean"),
    "big_vision": ("token", "mean", "map"),
    "hugging_face": ("token", "prefix"),
    "timm": ("token", "mean", "map", "prefix"),
    "torchvision": ("token",),
}


def features_for(format: Format, config: dict) -> set:
    """Variants of a format's table that a model is written with.

    Args:
        format: a `Format`.
        config: dict of the model's config.

    Returns:
        set of features.
    """
    pooling = config.get("pooling")
    class_token = config.get("class_token")
    wanted = {
        "distillation_token": config.get("distillation_token"),
        "averaged_heads": pooling == "prefix" and config["num_classes"],
        "norm_after_pooling": config.get("norm_after_pooling"),
        "root_only": config.get("resnet_units") == (),
        "prefix_without_position": class_token and format.name == "big_vision",
    }
    return {feature for feature, on in wanted.items() if on}


def objections(format: Format, target: Target) -> list:
    """Why a format cannot hold a model.

    Args:
        format: a `Format` of the model's family.
        target: the model.

    Returns:
        list of str, each following "it "; empty when it can.
    """
    if not target.config:
        return ["needs a model that was not built on an input tensor"]
    features = features_for(format, target.config)
    return [
        *constants(format, target.config),
        *missing_rows(format, target, features),
        *missing_features(format, features),
        *wrong_pooling(format, target.config),
        *wrong_layers(format, target.config),
    ]


def constants(format, config) -> list:
    hybrid = config.get("resnet_units") is not None
    return [
        f"fixes {name}={value!r}, the model has {config[name]!r}"
        for name, value in format.constants.items()
        if name not in format.settable
        and (hybrid or not name.startswith("resnet_"))
        and config[name] != value
    ]


def missing_rows(format, target, features) -> list:
    table = format.rows(features)
    missing = [x for x in target.variables if row_of(x, table) is None]
    unread = [
        x
        for x in target.variables
        if any(re.fullmatch(y, x) for y in format.unwritable)
    ]
    missing += [x for x in unread if x not in missing]
    return [f"has no place for {', '.join(missing[:3])}"] if missing else []


def missing_features(format, features) -> list:
    allowed = set(format.variants)
    if format.name == "google":
        allowed.add("root_only")  # named as in the others of its hybrids
    lacking = sorted(features - allowed)
    return [f"has no {', '.join(lacking)}"] if lacking else []


def wrong_pooling(format, config) -> list:
    pooling, allowed = config["pooling"], POOLINGS.get(format.name)
    if allowed is None or "class_token" not in config:
        return []
    if not config["num_classes"]:
        return []
    if pooling not in allowed:
        return [f"pools by {' or '.join(allowed)}, the model by {pooling}"]
    flax = format.name in ("google", "big_vision")
    if flax and pooling != "token" and config["class_token"]:
        return [f"has no class token with pooling {pooling!r}"]
    return []


def wrong_layers(format, config) -> list:
    problems = []
    both = config.get("representation_dim") and config["num_classes"]
    if format.name == "hugging_face" and both:
        problems.append("has a pre-logits layer or a head, not both")
    if format.name == "hugging_face" and config.get("class_token") is False:
        problems.append("always has a class token")
    sincos = config.get("position_embedding") == "sincos2d"
    if sincos and format.name != "big_vision":
        problems.append("needs learned position embeddings")
    if sincos and config["class_token"]:
        problems.append("has sincos2d positions without a class token only")
    return problems
