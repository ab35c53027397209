"""Writes weights in the formats of others."""

import collections
import dataclasses
import json
from pathlib import Path
from typing import NoReturn

import keras
import numpy as np

from keras_vit.checkpoints.dialects.exported_config import (
    class_attention_problems,
    parallel_problems,
    timm_config,
    timm_problems,
)
from keras_vit.checkpoints.dialects.formats_table import FORMATS, Format
from keras_vit.checkpoints.dialects.hugging_face_export import (
    NO_PLACE,
    companions,
    hugging_face_config,
    kind_problems,
    processor_config,
    renamer,
)
from keras_vit.checkpoints.engine.matching import Target, target_of
from keras_vit.checkpoints.engine.objections import (
    missing_features,
    missing_paths,
    missing_rows,
    other_constants,
    unknown_fields,
    unspoken,
    wrong_grid,
    wrong_groups,
    wrong_layers,
    wrong_neck,
    wrong_pooling,
    wrong_positions,
)
from keras_vit.checkpoints.engine.recognition import row_of
from keras_vit.checkpoints.engine.transforms import TRANSFORMS
from keras_vit.checkpoints.files.npz import write_npz
from keras_vit.checkpoints.files.record import KEY, write_record
from keras_vit.checkpoints.files.safetensors import write_safetensors
from keras_vit.io.atomic_files import replacing

__all__ = ["save_checkpoint"]


def save_checkpoint(
    model: keras.Model, path, *, format: str, class_names=None
) -> None:
    """Writes the weights of a model for the code of others to read.

    The file appears under its name only when it is complete, and
    `load_checkpoint` builds the same model from it. What stands around the
    model of the others' code stays with this package: their readers return
    logits where the model has a softmax, and take scaled pixels where it
    scales them itself (the config.json of timm and the preprocessor_config.json
    of transformers tell them how).

    Args:
        model: a model of keras_vit.
        path: path of the file; of a folder for "hugging_face", which gets
            `config.json`, `preprocessor_config.json` and `model.safetensors`
            of the class of transformers that computes the same: ViT, DeiT,
            BiT, DINOv2, DINOv3, SigLIP, CLIP, BEiT or AIMv2.
            "timm" writes a folder for `timm.create_model("local-dir:...")`
            when the path has no suffix, else a file for whoever builds the
            model with arguments of their own; that config.json is in its
            metadata as `timm_config`, where timm has such a model.
        format: "google" (ViT and hybrids for the original code), "mixer",
            "bit", "big_vision", "timm", "hugging_face", "torchvision", or
            "keras" (`.keras` or `.weights.h5`).
        class_names: sequence of str, the names of the classes, for the
            config.json of timm and transformers.

    Raises:
        ValueError: for an unknown format, or one that cannot hold the model
            without changing what it computes; the message names the options
            and the formats that can.
        OSError: when the file cannot be written.

    Example:

    >>> keras_vit.checkpoints.save_checkpoint(
    ...     model, "vit_base", format="timm")
    >>> theirs = timm.create_model("local-dir:vit_base", pretrained=True)
    """
    path = Path(path)
    if format == "keras":
        save = model.save if path.suffix == ".keras" else model.save_weights
        with replacing(path) as temporary:
            save(temporary)
        return
    target = target_of(model)
    chosen = _choose(target, format, path)
    _check_names(class_names, target.config["num_classes"])
    features = _features_for(chosen, target.config)
    WRITERS[chosen.container](path, chosen, target, features, class_names)


def _check_names(names, num_classes) -> None:
    if names is not None and len(set(names)) != num_classes:
        raise ValueError(
            "class_names must be a different name for each of "
            f"{num_classes} classes. Received: {len(names)} names, "
            f"{len(set(names))} of them different."
        )


def _features_for(format: Format, config: dict) -> set:
    """Variants of a format's table that a model is written with."""
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
        and format.name == "timm",
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
        "prefix_without_position": (class_token and format.name == "big_vision")
        or (config.get("register_tokens") and format.name == "timm"),
    }
    if format.family == "mixer":
        wanted |= {
            "affine": config["normalization"] == "affine",
            "gates_last": config["gated_mlp"],
            "spatial_gating": config["mixing"] == "spatial_gating",
            "gammas": False,
        }
    found = {feature for feature, on in wanted.items() if on}
    if not format.kind:
        return found
    # What else differs shows when the folder is read again.
    found |= {"gates"} if config["gated_mlp"] else set()
    return found & set(format.variants)


def _objections(format: Format, target: Target) -> list:
    """Why a format cannot hold a model; each reason follows "it "."""
    if not target.config:
        return ["needs a model that was not built on an input tensor"]
    features = _features_for(format, target.config)
    if format.kind:
        return _objections_of_kind(format, target, features)
    return [
        *unknown_fields(format, target),
        *other_constants(format, target.config),
        *missing_rows(format, target, features),
        *missing_features(format, features),
        *wrong_pooling(format, target.config),
        *wrong_layers(format, target.config),
        *wrong_groups(format, target.config),
        *wrong_neck(format, target.config),
        *wrong_positions(format, target.config),
        *wrong_grid(format, target.grid),
        *class_attention_problems(format, target),
        *parallel_problems(format, target),
    ]


def _objections_of_kind(format, target, features) -> list:
    """Those of a folder that is read again before it is written."""
    problems = [
        *unspoken(target),
        *missing_rows(format, target, features),
        *wrong_positions(format, target.config),
        *wrong_groups(format, target.config),
        *wrong_neck(format, target.config),
    ]
    if problems:
        return problems
    return kind_problems(format, target, _shapes(format, target, features))


def _choose(target: Target, name: str, path: Path) -> Format:
    """The format of a name for the family of a model, if it can hold it."""
    formats = [x for x in FORMATS if x.container and x.family == target.family]
    reasons = [(_objections(x, target), x) for x in formats]
    named = [x for x in reasons if x[1].public_name == name]
    if not named:
        named = [([f"is for other families than {target.family}"], FORMATS[0])]
    problems, chosen = min(named, key=lambda x: _distance(*x, target))
    is_folder = name == "timm" and (path.is_dir() or not path.suffix)
    hint = ""
    if is_folder and not problems:
        problems = timm_problems(target)
        hint = (
            " 'timm' can in a file, such as "
            f"{str(path.with_suffix('.safetensors'))!r}: whoever reads it "
            "builds the model with arguments of their own."
        )
    if problems:
        able = {x.public_name: None for wrong, x in reasons if not wrong}
        _refuse(target.name, name, problems, [*able, "keras"], hint)
    if is_folder:
        return dataclasses.replace(chosen, container="timm_folder")
    return chosen


def _distance(problems, format, target) -> tuple:
    """How far a model is from a format; of several classes one is nearest."""
    lacks = problems and target.config and target.family == format.family
    features = _features_for(format, target.config) if lacks else set()
    missing = missing_paths(format, target, features) if lacks else []
    has_no_place = NO_PLACE in "".join(problems)
    return len(missing), has_no_place, len(problems), bool(format.kind)


def _refuse(model, name, problems, able, hint) -> NoReturn:
    known = {x.public_name for x in FORMATS if x.container}
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


def _file_arrays(format: Format, target: Target, features: set):
    """Pairs of name and array in the layout of a format, one at a time."""
    folded = _folded_tokens(format, target, features)
    yield from _tensors(
        format,
        target,
        features,
        lambda path: folded[path] if path in folded else target.read(path),
    )


def _tensors(format, target, features, read):
    """Pairs of name and array; what several weights are parts of is joined."""
    table = format.rows(features)
    rows = {path: row_of(path, table) for path in target.variables}
    names = [name for row in rows.values() if row for name in row.names]
    awaited, parts = collections.Counter(names), collections.defaultdict(list)
    for path, row in rows.items():
        if row is None:  # `_choose` has made sure of it
            raise ValueError(f"{format.name} has no row for {path}.")
        transform = TRANSFORMS[row.transform]
        saved = transform.save(read(path), target.facts)
        for name, part in zip(row.names, saved, strict=True):
            parts[name].append((transform.place, part))
            if len(parts[name]) == awaited[name]:
                yield name, _joined(parts.pop(name), transform.axis)
    yield from companions(format, target).items()


def _joined(parts, axis) -> np.ndarray:
    """The parts of a tensor, pairs of place and array, in their places."""
    found = [array for _, array in sorted(parts, key=lambda x: x[0])]
    return np.concatenate(found, axis) if found[1:] else found[0]


def _folded_tokens(format, target, features) -> dict:
    """Adds the positions of prefix tokens to the tokens themselves.

    Where a format has no positions for them; the model computes the same.
    """
    position, token = "position_embedding/embedding", "class_token/token"
    row = format.rows(features).get(position, ("", ""))
    without = {"prefix_without_position"} & features
    without = without or row[1] == "around_registers"
    if not without or position not in target.variables:
        return {}
    table, tokens = target.read(position), target.read(token)
    prefix = tokens.shape[1]
    tokens = tokens + table[:, :prefix]
    table[:, :prefix] = 0
    return {position: table, token: tokens}


def _shapes(format, target, features) -> dict:
    """The shapes of all tensors that are written, by their names."""
    rename = renamer(format, target, features)

    def read(path):  # One byte repeated: it takes no memory.
        return np.broadcast_to(np.uint8(0), target.shape(path))

    found = _tensors(format, target, features, read)
    return {rename(name): array.shape for name, array in found}


def _write_numpy(path, format, target, features, class_names) -> None:
    record = write_record(target.config)
    with replacing(path) as temporary:
        write_npz(temporary, _file_arrays(format, target, features), record)


def _write_torch(path, format, target, features, class_names) -> None:
    shapes = _shapes(format, target, features)
    metadata = {"format": "pt", KEY: write_record(target.config)}
    if format.name == "timm" and not timm_problems(target):
        # For whoever has the file alone, and wants the folder's config.json.
        metadata["timm_config"] = json.dumps(timm_config(target, class_names))
    arrays = _file_arrays(format, target, features)
    with replacing(path) as temporary:
        write_safetensors(temporary, shapes, arrays, metadata)


def _write_hugging_face(path, format, target, features, class_names) -> None:
    path.mkdir(parents=True, exist_ok=True)
    file = path / "model.safetensors"
    _write_torch(file, format, target, features, class_names)
    config = hugging_face_config(format, target, features, class_names)
    _write_json(path / "config.json", config)
    _write_json(path / "preprocessor_config.json", processor_config(target))


def _write_timm(path, format, target, features, class_names) -> None:
    path.mkdir(parents=True, exist_ok=True)
    file = path / "model.safetensors"
    _write_torch(file, format, target, features, class_names)
    _write_json(path / "config.json", timm_config(target, class_names))


def _write_json(path, content) -> None:
    text = json.dumps(content, indent=2, sort_keys=True)
    with replacing(path) as temporary:
        temporary.write_text(text + "\n")


WRITERS = {
    "npz": _write_numpy,
    "safetensors": _write_torch,
    "folder": _write_hugging_face,
    "timm_folder": _write_timm,
}
