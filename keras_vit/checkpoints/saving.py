"""What is written beside tensors, so that others can build the model."""

import json
import os
import re
import tempfile
from pathlib import Path

import keras
import numpy as np

from keras_vit.checkpoints.containers.npz import write_npz
from keras_vit.checkpoints.containers.safetensors import (
    our_metadata,
    write_safetensors,
)
from keras_vit.checkpoints.formats.formats_table import FORMATS, Format
from keras_vit.checkpoints.formats.recognition import row_of
from keras_vit.checkpoints.formats.transforms import TRANSFORMS
from keras_vit.checkpoints.matching import Target, target_of

__all__ = [
    "features_for",
    "hugging_face_config",
    "objections",
    "save_checkpoint",
]

ACTIVATIONS = {"gelu": "gelu", "gelu_tanh": "gelu_pytorch_tanh"}


def hugging_face_config(target: Target, features: set) -> dict:
    """The `config.json` of transformers for a model.

    Args:
        target: the model.
        features: set of str, the variants of the table.

    Returns:
        dict.
    """
    config = target.config
    family = bit_config if target.family == "bit" else vit_config
    labels = {str(i): f"LABEL_{i}" for i in range(config["num_classes"])}
    return {
        **family(config, features),
        "id2label": labels,
        "label2id": {label: int(i) for i, label in labels.items()},
        "num_channels": config["channels"],
        "torch_dtype": "float32",
    }


def vit_config(config, features) -> dict:
    name = "DeiT" if config["distillation_token"] else "ViT"
    hybrid = config["resnet_units"] is not None
    name = "ViTHybrid" if hybrid else name
    head = "ForImageClassification" if config["num_classes"] else "Model"
    if "averaged_heads" in features:
        head += "WithTeacher"
    told = {
        "architectures": [name + head],
        "model_type": "vit-hybrid" if hybrid else name.lower(),
        "hidden_size": config["hidden_dim"],
        "num_hidden_layers": config["num_layers"],
        "num_attention_heads": config["num_heads"],
        "intermediate_size": config["mlp_dim"],
        "image_size": one_or_two(config["image_size"]),
        "patch_size": one_or_two(config["patch_size"]),
        "layer_norm_eps": config["layer_norm_epsilon"],
        "hidden_act": ACTIVATIONS.get(
            config["activation"], config["activation"]
        ),
        "hidden_dropout_prob": config["dropout_rate"],
        "attention_probs_dropout_prob": config["attention_dropout_rate"],
        "qkv_bias": True,
        "pooler_act": "tanh",
        "pooler_output_size": config["representation_dim"]
        or config["hidden_dim"],
    }
    if hybrid:
        told["backbone_config"] = resnet_config(
            config["resnet_width"],
            config["resnet_units"],
            layer_type="bottleneck",
            global_padding="same",
            embedding_dynamic_padding=True,
        )
    return told


def bit_config(config, features) -> dict:
    return {
        "architectures": ["BitForImageClassification"],
        **resnet_config(
            config["width"],
            config["units"],
            layer_type="preactivation",
            global_padding=None,
            embedding_dynamic_padding=False,
        ),
    }


def resnet_config(width, units, **options) -> dict:
    """Fields of transformers' BitConfig."""
    sizes = [4 * width * 2**stage for stage in range(len(units))]
    return {
        "model_type": "bit",
        "embedding_size": width,
        "hidden_sizes": sizes,
        "depths": list(units),
        "num_groups": 32,
        "hidden_act": "relu",
        **options,
    }


def one_or_two(size):
    return size[0] if size[0] == size[1] else list(size)


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


def save_checkpoint(model: keras.Model, path, *, format: str) -> None:
    """Writes the weights of a model for the code of others to read.

    The file appears under its name only when it is complete.

    Args:
        model: a model of keras_vit.
        path: path of the file; of a folder for "hugging_face", which gets
            `config.json` and `model.safetensors`.
        format: "google" (ViT and hybrids for the original code), "mixer",
            "bit", "big_vision", "timm", "hugging_face", "torchvision", or
            "keras" (`.keras` or `.weights.h5`).

    Raises:
        ValueError: for an unknown format, or one that cannot hold the model
            without changing what it computes; the message names those that
            can.
        OSError: when the file cannot be written.

    Example:

    >>> keras_vit.checkpoints.save_checkpoint(
    ...     model, "vit_base.safetensors", format="timm")
    """
    if format == "keras":
        save = model.save if str(path).endswith(".keras") else None
        (save or model.save_weights)(path)
        return
    target = target_of(model)
    chosen = choose(target, format)
    features = features_for(chosen, target.config)
    WRITERS[chosen.container](Path(path), chosen, target, features)


def choose(target: Target, name: str) -> Format:
    """The format of a name for the family of a model, if it can hold it."""
    reasons = {
        x.name: objections(x, target)
        for x in FORMATS
        if x.family == target.family and x.container
    }
    able = [x for x, objection in reasons.items() if not objection]
    known = sorted({x.name for x in FORMATS if x.container} | {"keras"})
    if name not in known:
        raise ValueError(
            f"Unknown format: {name!r}. Expected one of {known}; "
            f"{target.name!r} can be written as {[*able, 'keras']}."
        )
    problems = reasons.get(
        name, [f"is for other families than {target.family}"]
    )
    if problems:
        raise ValueError(
            f"The format {name!r} cannot hold {target.name!r}: it "
            f"{'; it '.join(problems)}. Formats that can: "
            f"{[*able, 'keras']}."
        )
    return next(
        x for x in FORMATS if (x.name, x.family) == (name, target.family)
    )


def file_arrays(format: Format, target: Target, features: set):
    """Pairs of name and array in the layout of a format, one at a time."""
    table = format.rows(features)
    folded = folded_tokens(target, features)
    for path in target.variables:
        row = row_of(path, table)
        if row is None:  # `choose` has made sure of it
            raise ValueError(f"{format.name} has no row for {path}.")
        array = folded[path] if path in folded else target.read(path)
        parts = TRANSFORMS[row.transform].save(array, target.facts)
        yield from zip(row.names, parts, strict=True)


def folded_tokens(target, features) -> dict:
    """Adds the positions of prefix tokens to the tokens themselves.

    Where a format has no positions for them; the model computes the same.
    """
    position, token = "position_embedding/embedding", "class_token/token"
    if "prefix_without_position" not in features:
        return {}
    table, tokens = target.read(position), target.read(token)
    prefix = tokens.shape[1]
    tokens = tokens + table[:, :prefix]
    table[:, :prefix] = 0
    return {position: table, token: tokens}


def file_shapes(format, target, features) -> dict:
    """Shapes of `file_arrays`, without the arrays."""
    table, shapes = format.rows(features), {}
    for path in target.variables:
        if row := row_of(path, table):
            array = np.broadcast_to(np.uint8(0), target.shape(path))
            parts = TRANSFORMS[row.transform].save(array, target.facts)
            for name, part in zip(row.names, parts, strict=True):
                shapes[name] = part.shape
    return shapes


def write_numpy(path, format, target, features) -> None:
    whole(path, lambda x: write_npz(x, file_arrays(format, target, features)))


def write_torch(path, format, target, features) -> None:
    rename = renamer(format, target, features)
    shapes = {
        rename(name): shape
        for name, shape in file_shapes(format, target, features).items()
    }
    metadata = {"format": "pt", **our_metadata(target.config)}
    whole(
        path,
        lambda x: write_safetensors(
            x, shapes, file_arrays(format, target, features), metadata
        ),
    )


def renamer(format, target, features):
    """Hugging Face puts the model in front of all names but the heads'."""
    if format.name != "hugging_face" or not target.config["num_classes"]:
        return lambda name: name
    distilled = "distillation_token" in features
    prefix = {"vit": "deit." if distilled else "vit.", "bit": "bit."}
    prefix = prefix[target.family]
    return lambda name: name if "classifier" in name else prefix + name


def write_folder(path, format, target, features) -> None:
    config = hugging_face_config(target, features)
    path.mkdir(parents=True, exist_ok=True)
    write_torch(path / "model.safetensors", format, target, features)
    text = json.dumps(config, indent=2, sort_keys=True)
    whole(path / "config.json", lambda x: Path(x).write_text(text + "\n"))


WRITERS = {
    "npz": write_numpy,
    "safetensors": write_torch,
    "folder": write_folder,
}


def whole(path: Path, write) -> None:
    """Writes beside the file, then renames: it is there whole or not."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    os.close(handle)
    try:
        write(name)
        Path(name).replace(path)
    finally:
        Path(name).unlink(missing_ok=True)
