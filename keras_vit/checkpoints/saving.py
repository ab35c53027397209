"""Writes weights in the formats of others."""

import json
import math
from pathlib import Path

import keras
import numpy as np

from keras_vit.checkpoints.containers.npz import write_npz
from keras_vit.checkpoints.containers.safetensors import (
    our_metadata,
    write_safetensors,
)
from keras_vit.checkpoints.formats.formats_table import FORMATS, Format
from keras_vit.checkpoints.formats.recognition import matches, row_of
from keras_vit.checkpoints.formats.transforms import TRANSFORMS
from keras_vit.checkpoints.matching import Target, target_of
from keras_vit.files import replacing

__all__ = ["save_checkpoint"]


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
    path = Path(path)
    if format == "keras":
        save = model.save if path.suffix == ".keras" else model.save_weights
        with replacing(path) as temporary:
            save(temporary)
        return
    target = target_of(model)
    chosen = _choose(target, format)
    features = _features_for(chosen, target.config)
    WRITERS[chosen.container](path, chosen, target, features)


ACTIVATIONS = {"gelu": "gelu", "gelu_tanh": "gelu_pytorch_tanh"}


def _hugging_face_config(target: Target, features: set) -> dict:
    """The `config.json` of transformers for a model."""
    config = target.config
    family = _bit_config if target.family == "bit" else _vit_config
    labels = {str(i): f"LABEL_{i}" for i in range(config["num_classes"])}
    return {
        **family(config, features),
        "id2label": labels,
        "label2id": {label: int(i) for i, label in labels.items()},
        "num_channels": config["channels"],
        "torch_dtype": "float32",
    }


def _vit_config(config, features) -> dict:
    name = "DeiT" if config["distillation_token"] else "ViT"
    hybrid = config["resnet_units"] is not None
    name = "ViTHybrid" if hybrid else name
    head = "ForImageClassification" if config["num_classes"] else "Model"
    if "averaged_heads" in features:
        head += "WithTeacher"
    fields = {
        "architectures": [name + head],
        "model_type": "vit-hybrid" if hybrid else name.lower(),
        "hidden_size": config["hidden_dim"],
        "num_hidden_layers": config["num_layers"],
        "num_attention_heads": config["num_heads"],
        "intermediate_size": config["mlp_dim"],
        "image_size": _one_or_two(config["image_size"]),
        "patch_size": _one_or_two(config["patch_size"]),
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
        fields["backbone_config"] = _resnet_config(
            config["resnet_width"],
            config["resnet_units"],
            layer_type="bottleneck",
            global_padding="same",
            embedding_dynamic_padding=True,
        )
    return fields


def _bit_config(config, features) -> dict:
    return {
        "architectures": ["BitForImageClassification"],
        **_resnet_config(
            config["width"],
            config["units"],
            layer_type="preactivation",
            global_padding=None,
            embedding_dynamic_padding=False,
        ),
    }


def _resnet_config(width, units, **options) -> dict:
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


def _one_or_two(size):
    return size[0] if size[0] == size[1] else list(size)


# Pooling that a model with a head gets when it is built from such a file.
POOLINGS = {
    "google": ("token", "mean"),
    "big_vision": ("token", "mean", "map"),
    "hugging_face": ("token", "prefix"),
    "timm": ("token", "mean", "map", "prefix"),
    "torchvision": ("token",),
}


def _features_for(format: Format, config: dict) -> set:
    """Variants of a format's table that a model is written with."""
    pooling = config.get("pooling")
    class_token = config.get("class_token")
    wanted = {
        "distillation_token": config.get("distillation_token"),
        "averaged_heads": pooling == "prefix" and config["num_classes"],
        "norm_after_pooling": config.get("norm_after_pooling"),
        "root_only": config.get("resnet_units") == (),
        "registers": config.get("register_tokens") and class_token,
        "registers_alone": config.get("register_tokens") and not class_token,
        "prefix_without_position": (class_token and format.name == "big_vision")
        or (config.get("register_tokens") and format.name == "timm"),
    }
    return {feature for feature, on in wanted.items() if on}


def _objections(format: Format, target: Target) -> list:
    """Why a format cannot hold a model; each reason follows "it "."""
    if not target.config:
        return ["needs a model that was not built on an input tensor"]
    features = _features_for(format, target.config)
    return [
        *_constants(format, target.config),
        *_missing_rows(format, target, features),
        *_missing_features(format, features),
        *_wrong_pooling(format, target.config),
        *_wrong_layers(format, target.config),
        *_wrong_grid(format, target.grid),
    ]


def _constants(format, config) -> list:
    hybrid = config.get("resnet_units") is not None
    return [
        f"fixes {name}={value!r}, the model has {config[name]!r}"
        for name, value in format.constants.items()
        if name not in format.settable
        and (hybrid or not name.startswith("resnet_"))
        and config[name] != value
    ]


def _missing_rows(format, target, features) -> list:
    table = format.rows(features)
    missing = [
        path
        for path in target.variables
        if row_of(path, table) is None or matches(path, format.unwritable)
    ]
    return [f"has no place for {', '.join(missing[:3])}"] if missing else []


def _missing_features(format, features) -> list:
    allowed = set(format.variants)
    if format.name == "google":
        allowed.add("root_only")  # named as in the others of its hybrids
    lacking = sorted(features - allowed)
    return [f"has no {', '.join(lacking)}"] if lacking else []


def _wrong_pooling(format, config) -> list:
    pooling, allowed = config["pooling"], POOLINGS.get(format.name)
    if not (allowed and "class_token" in config and config["num_classes"]):
        return []
    if pooling not in allowed:
        return [f"pools by {' or '.join(allowed)}, the model by {pooling}"]
    flax = format.name in ("google", "big_vision")
    if flax and pooling != "token" and config["class_token"]:
        return [f"has no class token with pooling {pooling!r}"]
    return []


def _wrong_layers(format, config) -> list:
    problems = []
    both = config.get("representation_dim") and config["num_classes"]
    if format.name == "hugging_face" and both:
        problems.append("has a pre-logits layer or a head, not both")
    if format.name == "hugging_face" and config.get("class_token") is False:
        problems.append("always has a class token")
    problems += [
        f"always has the biases of {name}"
        for name in ("patch_bias", "qkv_bias")
        if config.get(name) is False and name not in format.optional
    ]
    if config.get("num_classes") and config.get("head_bias", 0.0) is None:
        problems.append("always has a bias of the classification layer")
    sincos = config.get("position_embedding") == "sincos2d"
    if sincos and format.name != "big_vision":
        problems.append("needs learned position embeddings")
    if sincos and config["class_token"]:
        problems.append("has sincos2d positions without a class token only")
    return problems


def _wrong_grid(format, grid) -> list:
    """Readers of these files take a square number for a square grid."""
    if format.container != "npz" or not grid or grid[0] == grid[1]:
        return []
    if math.isqrt(math.prod(grid)) ** 2 != math.prod(grid):
        return []
    return [f"cannot tell a grid of {grid[0]}x{grid[1]} from a square one"]


def _choose(target: Target, name: str) -> Format:
    """The format of a name for the family of a model, if it can hold it."""
    reasons = {
        x.name: _objections(x, target)
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
    other = f"is for other families than {target.family}"
    problems = reasons.get(name, [other])
    if problems:
        raise ValueError(
            f"The format {name!r} cannot hold {target.name!r}: it "
            f"{'; it '.join(problems)}. Formats that can: "
            f"{[*able, 'keras']}."
        )
    return next(
        x for x in FORMATS if (x.name, x.family) == (name, target.family)
    )


def _file_arrays(format: Format, target: Target, features: set):
    """Pairs of name and array in the layout of a format, one at a time."""
    table = format.rows(features)
    folded = _folded_tokens(target, features)
    for path in target.variables:
        row = row_of(path, table)
        if row is None:  # `_choose` has made sure of it
            raise ValueError(f"{format.name} has no row for {path}.")
        array = folded[path] if path in folded else target.read(path)
        parts = TRANSFORMS[row.transform].save(array, target.facts)
        yield from zip(row.names, parts, strict=True)


def _folded_tokens(target, features) -> dict:
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


def _file_shapes(format, target, features) -> dict:
    """Shapes of `_file_arrays`, without the arrays."""
    table, shapes = format.rows(features), {}
    for path in target.variables:
        if row := row_of(path, table):
            array = np.broadcast_to(np.uint8(0), target.shape(path))
            parts = TRANSFORMS[row.transform].save(array, target.facts)
            for name, part in zip(row.names, parts, strict=True):
                shapes[name] = part.shape
    return shapes


def _write_numpy(path, format, target, features) -> None:
    with replacing(path) as temporary:
        write_npz(temporary, _file_arrays(format, target, features))


def _write_torch(path, format, target, features) -> None:
    rename = _renamer(format, target, features)
    shapes = {
        rename(name): shape
        for name, shape in _file_shapes(format, target, features).items()
    }
    metadata = {"format": "pt", **our_metadata(target.config)}
    arrays = _file_arrays(format, target, features)
    with replacing(path) as temporary:
        write_safetensors(temporary, shapes, arrays, metadata)


def _renamer(format, target, features):
    """Hugging Face puts the model in front of all names but the heads'."""
    if format.name != "hugging_face" or not target.config["num_classes"]:
        return lambda name: name
    distilled = "distillation_token" in features
    prefix = {"vit": "deit." if distilled else "vit.", "bit": "bit."}
    prefix = prefix[target.family]
    return lambda name: name if "classifier" in name else prefix + name


def _write_folder(path, format, target, features) -> None:
    config = _hugging_face_config(target, features)
    path.mkdir(parents=True, exist_ok=True)
    _write_torch(path / "model.safetensors", format, target, features)
    text = json.dumps(config, indent=2, sort_keys=True)
    with replacing(path / "config.json") as temporary:
        temporary.write_text(text + "\n")


WRITERS = {
    "npz": _write_numpy,
    "safetensors": _write_torch,
    "folder": _write_folder,
}
