"""Finds the format of a file by the names of its tensors."""

import dataclasses
import math
import re

from keras_vit.checkpoints.containers.errors import refuse
from keras_vit.checkpoints.containers.stack import unstacked
from keras_vit.checkpoints.containers.tensors import TensorFile, check_dtype
from keras_vit.checkpoints.formats.formats_table import FORMATS
from keras_vit.checkpoints.formats.naming import paths_of
from keras_vit.checkpoints.formats.source import Source

__all__ = ["listed", "recognise"]

# Where the parameters are in files of Flax and torch, tried in turn.
PREFIXES = (
    "params/img/",
    "opt/target/",
    "params/",
    "img/",
    "module.",
    "_orig_mod.",
    "model.",
    "state_dict.",
)


def recognise(file: TensorFile, subtree: str = "") -> Source:
    """Finds the format of a file by the names in it.

    Args:
        file: the `TensorFile`.
        subtree: str, the part of a file of several models to take, such as
            "img".

    Returns:
        A `Source`.

    Raises:
        ValueError: for an unknown format, for tensors that the format does
            not know, and for weights of which a part is missing.
    """
    tensors, dropped = parameters(file, subtree)
    for format in FORMATS:
        renamed = with_aliases(file, tensors, format)
        if any(set(mark) <= set(renamed) for mark in format.marks):
            return source_of(file, unstacked(file, renamed), format, dropped)
    shown = ", ".join(list(file.tensors)[:5]) or "nothing"
    refuse(
        file.path,
        f"is of no known format: it holds {len(file.tensors)} tensors "
        f"({shown[:300]} ...)",
        f"Known are {', '.join(sorted({x.name for x in FORMATS}))} and "
        "Keras's own files. Is it another model's, or a file of the "
        "optimiser?",
    )


def parameters(file, subtree):
    """(tensors without their common prefix, names outside of it)."""
    prefixes = PREFIXES
    if subtree:
        inner = f"{subtree.strip('/')}/"
        prefixes = (f"params/{inner}", f"opt/target/{inner}", inner)
    for prefix in prefixes:
        inside = {
            name.removeprefix(prefix): tensor
            for name, tensor in file.tensors.items()
            if name.startswith(prefix)
        }
        if inside:
            outside = [x for x in file.tensors if not x.startswith(prefix)]
            return inside, outside
    if subtree:
        tops = sorted({name.split("/")[0] for name in file.tensors})
        refuse(
            file.path,
            f"has no part {subtree!r}",
            f"At the top it holds {tops[:20]}.",
        )
    return file.tensors, []


def with_aliases(file, tensors, format):
    """The tensors under the names of the format's table."""
    renamed = {}
    for name, tensor in tensors.items():
        for pattern, replacement in format.aliases:
            if match := re.fullmatch(pattern, name):
                name = match.expand(replacement)
        if name in renamed:
            refuse(file.path, "is there under two names", DAMAGED, name)
        renamed[name] = tensor
    return renamed


DAMAGED = "Expected each tensor once: the file was put together wrongly."


def source_of(file, tensors, format, outside) -> Source:
    """Maps the tensors to weights, and refuses what does not fit."""
    inside = dataclasses.replace(file, tensors=tensors)
    ignored = [x for x in tensors if matches(x, format.ignored)]
    strangers = [x for x in outside if not matches(x, format.ignored)]
    features = features_of(tensors, format)
    names = [name for name in tensors if name not in ignored]
    rows, unknown = paths_of(names, format.rows(features))
    missing = [
        name
        for row in rows.values()
        for name in row.names
        if name not in tensors
    ]
    missing += halves(rows)
    refuse_unsupported(file, format, unknown)
    refuse_unless_complete(file, format, missing, unknown + strangers)
    for row in rows.values():
        for name in row.names:
            check_dtype(file.path, name, tensors[name].dtype)
    dropped = ignored + [x for x in outside if x not in strangers]
    return Source(inside, format, features, rows, dropped)


def halves(rows) -> list:
    """Kernels without bias, and biases without kernel, of optional layers."""
    missing = []
    for layer in ("predictions", "pre_logits"):
        pair = {f"{layer}/kernel", f"{layer}/bias"}
        if len(pair & set(rows)) == 1:
            missing += [f"what is {path} here" for path in pair - set(rows)]
    return missing


def refuse_unsupported(file, format, unknown):
    for pattern, what in format.unsupported.items():
        found = [name for name in unknown if re.fullmatch(pattern, name)]
        if found:
            refuse(
                file.path,
                f"holds {what} ({listed(found)}), which the models here do "
                "not have",
                "Without it the file's numbers would not come out, so it is "
                "not loaded: choose another file.",
            )


def refuse_unless_complete(file, format, missing, unused) -> None:
    """Raises one ValueError that lists what is missing and what is unused."""
    if missing or unused:
        refuse(
            file.path,
            f"does not fit as a {format.name} file. Missing: "
            f"{listed(missing)}. Unused: {listed(unused)}",
            "Loading it in part would give a model that looks right and is "
            "not: fetch the file again, or use one of this architecture.",
        )


def listed(names) -> str:
    """Names for a message, the first 20 of them."""
    names = sorted(names)
    more = f" and {len(names) - 20} more" if len(names) > 20 else ""
    return (", ".join(str(name)[:120] for name in names[:20]) or "none") + more


def matches(name, patterns) -> bool:
    return any(re.fullmatch(pattern, name) for pattern in patterns)


def features_of(tensors, format) -> set:
    """Which variants of the table a file follows."""
    features = {
        feature for feature, name in format.signs.items() if name in tensors
    }
    position = format.table.get("position_embedding/embedding", ("", ""))[0]
    token = format.table.get("class_token/token", ("", ""))[0]
    if position in tensors and token in tensors:
        length = (*tensors[position].shape, 0, 0)[1]
        prefix = 2 if "distillation_token" in features else 1
        if not is_square(length - prefix) and is_square(length):
            features.add("prefix_without_position")
    return features


def is_square(number) -> bool:
    return number > 0 and math.isqrt(number) ** 2 == number
