"""Writes the weights of a model in the formats of others."""

import json
import os
import tempfile
from pathlib import Path

import keras
import numpy as np

from keras_vit.checkpoints.configs import hugging_face_config
from keras_vit.checkpoints.containers.metadata import our_metadata
from keras_vit.checkpoints.containers.npz import write_npz
from keras_vit.checkpoints.containers.safetensors import write_safetensors
from keras_vit.checkpoints.formats.formats_table import FORMATS, Format
from keras_vit.checkpoints.formats.naming import row_of
from keras_vit.checkpoints.formats.transforms import TRANSFORMS
from keras_vit.checkpoints.holding import features_for, objections
from keras_vit.checkpoints.target import Target, target_of

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
