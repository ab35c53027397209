"""Writes weights in the formats of others, or says why they cannot.

Each reason why a layout cannot hold a model follows "it ".
"""

import collections
import dataclasses
import json
import math
import os
import tempfile
from pathlib import Path
from typing import NoReturn

import keras
import numpy as np

from keras_vit.checkpoints.dialects import LAYOUTS
from keras_vit.checkpoints.engine.configure import configure
from keras_vit.checkpoints.engine.keras_files import (
    check_class_names,
    write_class_names,
)
from keras_vit.checkpoints.engine.layout import (
    NO_PLACE,
    TRANSFORMS,
    Layout,
    matches,
    row_of,
)
from keras_vit.checkpoints.engine.matching import ModelWeights, weights_of
from keras_vit.checkpoints.engine.recognition import recognise
from keras_vit.checkpoints.files.npz import write_npz
from keras_vit.checkpoints.files.safetensors import write_safetensors
from keras_vit.checkpoints.files.tensors import (
    RECORD_KEY,
    Tensor,
    TensorFile,
    unrecorded,
    write_record,
)
from keras_vit.io.atomic_files import replacing, write_json
from keras_vit.io.checks import check_kind
from keras_vit.models.options import (
    AROUND,
    OPTIONS_OF_WEIGHTS,
    PLACES,
    TRAINING,
)
from keras_vit.trained_as import TrainedAs

__all__ = ["save_checkpoint"]


def save_checkpoint(
    model: keras.Model, path, *, format: str, class_names=None
) -> None:
    """Write the weights of a model for the code of others to read.

    The file appears under its name only when it is complete, and
    `load_checkpoint` builds the same model from it. What stands around the
    model of the others' code stays with this package: their readers return
    logits where the model has a softmax, and take scaled pixels where it
    scales them itself (the JSON files of a folder tell them how).

    Args:
        model: a model of keras_vit.
        path: path of the file, or of a folder for formats with a config.json:
            of those that have both, a path without a suffix is a folder.
        format: str, one of those that `help(keras_vit.checkpoints)` and
            docs/formats.md list, or "keras" (`.keras` or `.weights.h5`).
        class_names: sequence of str, the names of the classes, in place of
            those that the model was trained on.

    Raises:
        ValueError: for an unknown format, or one that cannot hold the model
            without changing what it computes, or the names; the message names
            the options and the formats that can.
        OSError: when the file cannot be written.

    Example:

    >>> keras_vit.checkpoints.save_checkpoint(
    ...     model, "vit_base.weights.h5", format="keras")
    """
    check_kind(str | os.PathLike, path=path)
    path = Path(path)
    if class_names is not None:
        check_kind(tuple[str, ...], class_names=class_names)
    if format == "keras":
        return _save_keras(model, path, class_names)
    target = weights_of(model)
    chosen, is_folder = _choose(target, format, path)
    if class_names is None:
        names = target.trained_as.class_names
        # Formats have a place for each name once.
        names = names if names and len(set(names)) == len(names) else None
    else:
        names = tuple(class_names)
        known = target.trained_as.but(class_names=names)
        target = dataclasses.replace(target, trained_as=known)
    _check_names(names, target.config["num_classes"])
    if class_names is not None and chosen.container == "npz":
        _check_room(target)
    features = _features_for(chosen, target.config)
    if is_folder:
        _write_folder(path, chosen, target, features, names)
    else:
        write = WRITERS[chosen.container]
        write(path, chosen, target, features, names)


def _save_keras(model, path, class_names) -> None:
    check_class_names(model, class_names)
    is_model = path.suffix == ".keras"
    if class_names is not None and not is_model:
        raise ValueError(
            "Files of weights alone have no place for class names. Received: "
            f"{len(class_names)} class_names and path={str(path)!r}. Give the "
            "path the suffix .keras, or leave class_names out."
        )
    with replacing(path) as temporary:
        (model.save if is_model else model.save_weights)(temporary)
        if class_names is not None:
            write_class_names(temporary, class_names)


def _check_names(names, num_classes) -> None:
    if names is not None and len(set(names)) != num_classes:
        raise ValueError(
            "class_names must be a different name for each of "
            f"{num_classes} classes. Received: {len(names)} names, "
            f"{len(set(names))} of them different."
        )


def _features_for(layout: Layout, config: dict) -> set:
    """Return the variants of a table that a model is written with."""
    pooling = config.get("pooling")
    class_token = config.get("class_token")
    wanted = {
        "distillation_token": config.get("distillation_token"),
        "averaged_heads": pooling == "prefix" and config["num_classes"],
        "norm_after_pooling": config.get("norm_after_pooling"),
        "root_only": config.get("resnet_units") == (),
        "patch_stem": config.get("patch_stem"),
        "registers": config.get("register_tokens") and class_token,
        "registers_alone": config.get("register_tokens") and not class_token,
        # As EVA, BEiT and DINOv3 have them.
        "query_value_biases": config.get("qkv_bias")
        and config.get("key_bias") is False,
        "relative_tables": config.get("relative_position_bias")
        and config["relative_position_kind"] == "table"
        and config["key_bias"]
        and "relative_tables" in layout.variants,
        "grouped_qkv": config.get("key_value_heads"),
        "gammas": config.get("layer_scale_init") is not None
        and (
            config.get("rope")
            or config.get("key_value_heads")
            or not config.get("mlp_layer_scale", True)
            or config.get("key_bias") is False
            or config.get("class_attention_layers")
        ),
        "parallel": config.get("mlp_placement") == "beside",
        "mlp_bias": config.get("mlp_placement") == "beside"
        and not config["qkv_bias"],
        "fused_output": config.get("mlp_placement") == "beside"
        and config["differential_attention"],
        "prefix_without_position": config.get(layout.unpositioned),
    }
    if layout.family == "mixer":
        wanted |= {
            "affine": config["normalization"] == "affine",
            "gates_last": config["gated_mlp"],
            "spatial_gating": config["mixing"] == "spatial_gating",
            "gammas": False,
        }
    found = {feature for feature, on in wanted.items() if on}
    if not layout.model_class:
        return found
    # What else differs shows when the folder is read again.
    found |= {"gates"} if config["gated_mlp"] else set()
    return found & set(layout.variants)


def _find_problems(layout: Layout, target: ModelWeights) -> list:
    """Return why a layout cannot hold a model."""
    if not target.config:
        return ["needs a model that was not built on an input tensor"]
    features = _features_for(layout, target.config)
    if layout.model_class:
        return _problems_of_class(layout, target, features)
    return [
        *_unknown_fields(layout, target),
        *_other_constants(layout, target.config),
        *_missing_rows(layout, target, features),
        *_missing_features(layout, features),
        *_wrong_pooling(layout, target.config),
        *_wrong_layers(layout, target.config),
        *_wrong_groups(layout, target.config),
        *_wrong_neck(layout, target.config),
        *_wrong_head(layout, target, features),
        *_wrong_positions(layout, target.config),
        *_wrong_grid(layout, target.grid),
        *layout.find_problems(layout, target),
    ]


def _problems_of_class(layout, target, features) -> list:
    """Return those of a folder that is read again before it is written."""
    problems = [
        *_unrecorded_fields(target),
        *_missing_rows(layout, target, features),
        *_wrong_positions(layout, target.config),
        *_wrong_groups(layout, target.config),
        *_wrong_neck(layout, target.config),
        *_wrong_head(layout, target, features),
    ]
    problems = problems or layout.find_problems(layout, target)
    if problems:
        return problems
    try:
        found = _read_again(layout, target, features)
    except ValueError as error:
        return [f"would not be read again: {str(error).rstrip('.')}"]
    known, places = {**target.defaults, **found}, PLACES[target.family]
    return [
        f"would be read with {name}={known[name]!r} in place of "
        f"{target.config[name]!r}"
        for name in target.defaults
        if places.get(name) != TRAINING
        and name not in NOT_READ_AGAIN
        and known[name] != target.config[name]
    ]


# Told by the record, by a file for images, or of no influence.
NOT_READ_AGAIN = {*AROUND, "pixel_mean", "pixel_std", "layer_scale_init"}


def _read_again(layout, target, features) -> dict:
    """Return the fields of the config that a folder would be read with."""
    shapes = _shapes(layout, target, features)
    files = layout.dialect.folder_files(layout, target, features, None)
    tensors = {
        name: Tensor(shape, np.dtype("float32"), _never_read)
        for name, shape in shapes.items()
    }
    fields = layout.dialect.read_config("config.json", files["config.json"])
    checkpoint = recognise(TensorFile("it", tensors, fields))
    if checkpoint.layout is not layout:
        raise ValueError("its pooling and num_classes are of another class.")
    return configure(checkpoint).fields


def _never_read():
    raise ValueError("There are no values yet.")


def _unrecorded_fields(target) -> list:
    return [
        f"has no words for {name}={target.config[name]!r}"
        for name in unrecorded(target.config)
    ]


def _unknown_fields(layout, target) -> list:
    """Return fields that no row knows, or that no record can tell."""
    problems, places = _unrecorded_fields(target), PLACES[target.family]
    for name, default in target.defaults.items():
        value, place = target.config[name], places.get(name)
        known = place == TRAINING or place and name in layout.options
        if value != default and not known:
            problems.append(f"{NO_PLACE} {name}={value!r}")
    return problems


def _other_constants(layout, config) -> list:
    hybrid = config.get("resnet_units") is not None
    return [
        f"fixes {name}={value!r}, the model has {config[name]!r}"
        for name, value in layout.constants.items()
        if name not in layout.settable
        and (hybrid or not name.startswith("resnet_"))
        and config[name] != value
    ]


def _missing_paths(layout, target, features) -> list:
    table = layout.rows(features)
    return [
        path
        for path in target.variables
        if row_of(path, table) is None or matches(path, layout.unwritable)
    ]


def _missing_rows(layout, target, features) -> list:
    missing = _missing_paths(layout, target, features)
    if not missing:
        return []
    options = {
        y
        for x in missing
        for word, y in OPTIONS_OF_WEIGHTS.items()
        if word in x
    }
    named = f" ({', '.join(sorted(options))})" if options else ""
    return [f"{NO_PLACE} {', '.join(missing[:3])}{named}"]


# What variants of tables are there for.
FEATURES = {
    "averaged_heads": "pooling='prefix'",
    "registers": "register_tokens",
    "registers_alone": "register_tokens",
    "affine": "normalization='affine'",
    "gates_last": "gated_mlp",
    "spatial_gating": "mixing='spatial_gating'",
    "root_only": "resnet_units=()",
    "query_value_biases": "key_bias=False",
    "grouped_qkv": "key_value_heads",
    "gammas": "layer_scale_init",
    "parallel": "mlp_placement='beside'",
    "mlp_bias": "mlp_placement='beside' with qkv_bias=False",
    "fused_output": "differential_attention with mlp_placement='beside'",
}


def _missing_features(layout, features) -> list:
    lacking = sorted(features - set(layout.variants))
    return [f"has no {FEATURES.get(feature, feature)}" for feature in lacking]


def _wrong_pooling(layout, config) -> list:
    pooling, token = config["pooling"], config.get("class_token")
    allowed = layout.poolings
    if pooling == "none" and not config["num_classes"]:
        allowed = ("none",)
    if pooling not in allowed:
        names = " or ".join(map(repr, allowed))
        return [f"has pooling={names}, the model {pooling!r}"]
    if token and pooling in layout.poolings_without_token:
        return [f"has no class_token with pooling={pooling!r}"]
    return _wrong_for_two_tokens(config)


def _wrong_for_two_tokens(config) -> list:
    """Refuse what pools two tokens, but of DeiT with or without its heads."""
    pooling, distilled = config["pooling"], config.get("distillation_token")
    allowed = "prefix" if config["num_classes"] else "prefix_mean"
    if pooling.startswith("prefix") and not (distilled and pooling == allowed):
        return [f"has pooling={allowed!r} of a distillation_token only"]
    return []


def _wrong_layers(layout, config) -> list:
    problems = []
    if len(config.get("patch_stem") or (0, 0)) != 2:
        problems.append(
            "has a patch_stem of two convolutions, the model "
            f"{len(config['patch_stem'])}"
        )
    problems += [
        f"always has {name}=True"
        for name in ("patch_bias", "qkv_bias", "projection_bias")
        if config.get(name) is False and name not in layout.optional
    ]
    return problems


def _wrong_head(layout, target, features) -> list:
    """Refuse a head without a bias where it would get one of zeros."""
    config = target.config
    bare = config.get("num_classes") and config.get("head_bias", 0.0) is None
    if bare and "predictions/bias" in layout.rows(features):
        return ["always has a bias of the head, the model head_bias=None"]
    return []


def _wrong_groups(layout, config) -> list:
    """Refuse shared keys without biases, which a tensor shows."""
    groups = config.get("key_value_heads")
    if groups and "grouped_qkv" not in layout.variants:
        return [f"has no place for key_value_heads={groups}"]
    if groups and not config["qkv_bias"]:
        return [f"has qkv_bias=True with key_value_heads={groups}"]
    return []


def _wrong_neck(layout, config) -> list:
    """Refuse windows and a neck but in the layouts of SAM."""
    lacking = [x for x in layout.needs if not config.get(x)]
    if lacking:
        return [f"has no model without {', '.join(lacking)}"]
    if config.get("window_size") and not layout.needs:
        return [f"has no place for window_size={config['window_size']}"]
    return []


def _wrong_positions(layout, config) -> list:
    problems = []
    if config.get("rope") == "mixed":
        problems.append("is not written with rope='mixed'")
    placed = config.get("rope") or config.get("relative_position_bias")
    none = config.get("position_embedding") == "none"
    if none and not placed:
        problems.append("needs position_embedding='learned'")
    sincos = config.get("position_embedding") == "sincos2d"
    if sincos and not layout.has_fixed_positions:
        problems.append("needs position_embedding='learned'")
    if sincos and config["class_token"]:
        problems.append(
            "has position_embedding='sincos2d' without class_token only"
        )
    return problems


def _wrong_grid(layout, grid) -> list:
    """Refuse grids that readers take for a square one."""
    if layout.container != "npz" or not grid or grid[0] == grid[1]:
        return []
    if math.isqrt(math.prod(grid)) ** 2 != math.prod(grid):
        return []
    return [
        f"cannot tell a grid of {grid[0]}x{grid[1]} (image_size) from a square "
        "one"
    ]


def _choose(target: ModelWeights, name: str, path: Path) -> tuple:
    """Return the layout of a name that can hold a model, and if in a folder."""
    layouts = [x for x in LAYOUTS if x.container and x.family == target.family]
    reasons = [(_find_problems(x, target), x) for x in layouts]
    named = [x for x in reasons if x[1].public_name == name]
    if not named:
        named = [([f"is for other families than {target.family}"], LAYOUTS[0])]
    problems, chosen = min(named, key=lambda x: _distance(*x, target))
    is_folder, hint = chosen.container == "folder", ""
    if chosen.container == "either":
        is_folder = path.is_dir() or not path.suffix
    if is_folder and not problems:
        problems = chosen.dialect.folder_problems(target)
        hint = (
            f" {name!r} can in a file, such as "
            f"{str(path.with_suffix('.safetensors'))!r}: whoever reads it "
            "builds the model with arguments of their own."
        )
    if problems:
        able = {x.public_name: None for wrong, x in reasons if not wrong}
        _refuse(target.name, name, problems, [*able, "keras"], hint)
    return chosen, is_folder


def _distance(problems, layout, target) -> tuple:
    """Return how far a model is from a layout; of several one is nearest."""
    lacks = problems and target.config and target.family == layout.family
    features = _features_for(layout, target.config) if lacks else set()
    missing = _missing_paths(layout, target, features) if lacks else []
    has_no_place = NO_PLACE in "".join(problems)
    return len(missing), has_no_place, len(problems), bool(layout.model_class)


def _refuse(model, name, problems, able, hint) -> NoReturn:
    known = {x.public_name for x in LAYOUTS if x.container}
    known = sorted(known | {"keras"})
    if name not in known:
        raise ValueError(
            f"Unknown format: {name!r}. Expected one of {known}; {model!r} can "
            f"be written as {able}."
        )
    raise ValueError(
        f"The format {name!r} cannot hold {model!r}: it "
        f"{'; it '.join(problems)}. Formats that can: {able}.{hint}"
    )


def _file_arrays(layout: Layout, target: ModelWeights, features: set):
    """Yield pairs of name and array as a layout has them, one at a time."""
    folded = _folded_tokens(layout, target, features)
    yield from _tensors(
        layout,
        target,
        features,
        lambda path: folded[path] if path in folded else target.read(path),
    )


def _tensors(layout, target, features, read):
    """Yield pairs of name and array, parts of one tensor joined."""
    table = layout.rows(features)
    rows = {path: row_of(path, table) for path in target.variables}
    names = [name for row in rows.values() if row for name in row.names]
    awaited, parts = collections.Counter(names), collections.defaultdict(list)
    for path, row in rows.items():
        if row is None:  # `_choose` has made sure of it
            raise ValueError(f"{layout.name} has no row for {path}.")
        transform = TRANSFORMS[row.transform]
        saved = transform.save(read(path), target.facts)
        for name, part in zip(row.names, saved, strict=True):
            parts[name].append((transform.place, part))
            if len(parts[name]) == awaited[name]:
                yield name, _joined(parts.pop(name), transform.axis)
    yield from layout.dialect.companions(layout, target).items()


def _joined(parts, axis) -> np.ndarray:
    """Join the parts of a tensor, pairs of place and array, by their places."""
    found = [array for _, array in sorted(parts, key=lambda x: x[0])]
    return np.concatenate(found, axis) if found[1:] else found[0]


def _folded_tokens(layout, target, features) -> dict:
    """Add the positions of prefix tokens to the tokens themselves.

    Where a format has no positions for them; the model computes the same.
    """
    position, token = "position_embedding/embedding", "class_token/token"
    row = layout.rows(features).get(position, ("", ""))
    without = {"prefix_without_position"} & features
    without = without or row[1] == "around_registers"
    if not without or position not in target.variables:
        return {}
    table, tokens = target.read(position), target.read(token)
    prefix = tokens.shape[1]
    tokens = tokens + table[:, :prefix]
    table[:, :prefix] = 0
    return {position: table, token: tokens}


def _shapes(layout, target, features) -> dict:
    """Return the shapes of all tensors that are written, by their names."""
    rename = layout.dialect.rename(layout, target, features)

    def read(path):  # One byte repeated: it takes no memory.
        return np.broadcast_to(np.uint8(0), target.shape(path))

    found = _tensors(layout, target, features, read)
    return {rename(name): array.shape for name, array in found}


def _write_numpy(path, layout, target, features, class_names) -> None:
    record = _record(target)
    if len(record) > MAX_COMMENT:
        known = target.trained_as.but(class_names=None)
        record = _record(dataclasses.replace(target, trained_as=known))
    with replacing(path) as temporary:
        write_npz(temporary, _file_arrays(layout, target, features), record)


MAX_COMMENT = 2**16 - 1  # bytes, of a zip archive


def _check_room(target) -> None:
    if len(_record(target)) > MAX_COMMENT:
        raise ValueError(
            f"An .npz file has room for {MAX_COMMENT:,} bytes of names. "
            f"Received: {len(target.trained_as.class_names)} class_names. "
            "Take a folder of another format, or leave class_names out."
        )


def _record(target) -> str:
    return write_record(target.config, target.trained_as.to_fields())


def _write_torch(
    path, layout, target, features, class_names, told=None
) -> None:
    shapes = _shapes(layout, target, features)
    known = target.trained_as.to_fields()
    record = write_record(target.config, known, told)
    metadata = {"format": "pt", RECORD_KEY: record}
    metadata |= layout.dialect.metadata(target, class_names)
    arrays = _file_arrays(layout, target, features)
    with replacing(path) as temporary:
        write_safetensors(temporary, shapes, arrays, metadata)


def _write_folder(path, layout, target, features, class_names) -> None:
    path.mkdir(parents=True, exist_ok=True)
    file = path / "model.safetensors"
    files = layout.dialect.folder_files(layout, target, features, class_names)
    told = _told(layout.dialect, files)
    _write_torch(file, layout, target, features, class_names, told)
    for name, content in files.items():
        text = json.dumps(content, indent=2, sort_keys=True)
        with replacing(path / name) as temporary:
            temporary.write_text(text + "\n")


def _told(dialect, files) -> dict:
    """Return what the JSON files say of images and classes, when read."""
    with tempfile.TemporaryDirectory() as folder:
        for name, content in files.items():
            write_json(Path(folder, name), content)
        found = dialect.read_trained_as(Path(folder), files["config.json"])
    return TrainedAs(**found).to_fields()


WRITERS = {
    "npz": _write_numpy,
    "safetensors": _write_torch,
    "either": _write_torch,
}
