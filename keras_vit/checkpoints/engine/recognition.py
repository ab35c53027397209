"""Recognises the format of a file by the names of its tensors."""

import dataclasses
import functools
import re
from collections.abc import Iterable

import numpy as np

from keras_vit.checkpoints.dialects.formats_table import FORMATS, Format
from keras_vit.checkpoints.engine.transforms import TRANSFORMS, Facts
from keras_vit.checkpoints.files.tensors import (
    DAMAGED,
    TensorFile,
    check_dtype,
    refuse,
    unstacked,
)

__all__ = [
    "Row",
    "Source",
    "listed",
    "matches",
    "paths_of",
    "recognise",
    "row_of",
]

DIGITS = {"uu": r"\d\d+"}
NUMBER = r"0|[1-9]\d{0,3}"


@dataclasses.dataclass(frozen=True)
class Row:
    """Where one weight of ours is in a file: tensors, and their transform."""

    names: tuple
    transform: str


def row_of(path: str, table: dict) -> Row | None:
    """The row for one weight of ours, its placeholders filled in, or None."""
    for pattern in table:
        if match := expression(pattern).fullmatch(path):
            theirs, transform = table[pattern]
            values = _numbers(match.groupdict())
            names = tuple(name.format(**values) for name in _as_tuple(theirs))
            return Row(names, transform)
    return None


def paths_of(names: Iterable, table: dict) -> tuple[dict, list]:
    """Finds the weights of ours that tensors of a file belong to.

    Returns:
        (dict from our path to `Row`, list of names that no row knows). A
        path is there when at least one of its tensors is.
    """
    found, unknown = {}, []
    for name in names:
        paths = _paths_of(name, table)
        if not paths:
            unknown.append(name)
        for path in paths:
            if row := row_of(path, table):
                found[path] = row
    return found, unknown


def _paths_of(name, table) -> list:
    """Our weights that one tensor is for; of most there is one."""
    return [
        ours.format(**_numbers(match.groupdict()))
        for ours, (theirs, _) in table.items()
        for pattern in _as_tuple(theirs)
        if (match := expression(pattern).fullmatch(name))
    ]


def _as_tuple(theirs):
    return (theirs,) if isinstance(theirs, str) else theirs


@functools.cache
def expression(pattern):
    """Regular expression of a pattern with placeholders."""
    parts = re.split(r"\{(\w+)\}", pattern)
    parts[::2] = map(re.escape, parts[::2])
    parts[1::2] = [
        f"(?P<{key}>{DIGITS.get(key, NUMBER)})" for key in parts[1::2]
    ]
    return re.compile("".join(parts))


def _numbers(groups):
    """All placeholders from those that a pattern had."""
    values: dict = {key: int(text) for key, text in groups.items()}
    for key in ("s", "u"):
        if f"{key}0" in values:
            values[key] = values[f"{key}0"] + 1
        elif 2 * key in values:
            values[key] = values[2 * key]
        if key in values:
            values[f"{key}0"] = values[key] - 1
            values[2 * key] = f"{values[key]:02d}"
    return values


@dataclasses.dataclass
class Configured:
    """The config of the model that a file holds.

    Args:
        fields: dict, arguments of the config of the family.
        facts: `Facts` for the transforms.
        grid: (rows, columns) of the patches, None without positions.
        notes: list of str, what was assumed because the file cannot tell.
    """

    fields: dict
    facts: Facts
    grid: tuple | None = None
    notes: list = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class Source:
    """An opened file of a known format; its arrays are read on demand.

    Args:
        file: the `TensorFile`, its names those of the format's table.
        format: the `Format` that the names belong to.
        features: set of str, the variants of the table that hold here.
        rows: dict from our path to its `Row`.
        dropped: names in the file that hold no weight of the model.
        configured: the config, where the file holds one of ours.
    """

    file: TensorFile
    format: Format
    features: set
    rows: dict
    dropped: list
    configured: Configured | None = None

    def follow(self, feature: str) -> None:
        """Takes the rows of one more variant of the format's table."""
        self.features = self.features | {feature}
        table = self.format.rows(self.features)
        for path in self.rows:
            if row := row_of(path, table):
                self.rows[path] = row

    def shape_of(self, path: str, facts: Facts) -> tuple:
        """Shape of one weight, in our layout, without reading it."""
        row = self.rows[path]
        # One byte repeated: transforms of it take next to no memory.
        arrays = [
            np.broadcast_to(np.uint8(0), self.file.tensors[name].shape)
            for name in row.names
        ]
        return self._transformed(row, arrays, facts).shape

    def checked_shape(
        self, path: str, rank: int, facts: Facts | None = None
    ) -> tuple:
        """The shape of a weight that must be there and be of a rank."""
        if path not in self.rows:
            refuse(self.file.path, f"has no weight for {path}", DAMAGED)
        found = self.shape_of(path, facts or Facts())
        if len(found) != rank or 0 in found:
            refuse(
                self.file.path,
                f"has shape {found} in our layout, expected {rank} sizes "
                "above 0",
                DAMAGED,
                ", ".join(self.rows[path].names),
            )
        return found

    def read(self, path: str, facts: Facts) -> np.ndarray:
        """Reads one weight as float32, in our layout."""
        row = self.rows[path]
        arrays = [self.file.read(name) for name in row.names]
        return self._transformed(row, arrays, facts)

    def _transformed(self, row, arrays, facts):
        try:
            return TRANSFORMS[row.transform].load(arrays, facts)
        except (ValueError, IndexError) as error:
            shapes = {name: self.file.tensors[name].shape for name in row.names}
            raise ValueError(
                f"{self.file.path!r}: the shapes {shapes} are not those of a "
                f"{self.format.name} file ({error}). Check that num_heads="
                f"{facts.num_heads} is right, or fetch the file again."
            ) from error


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
    "timm_model.",
)


def recognise(file: TensorFile, subtree: str = "") -> Source:
    """Finds the format of a file by the names in it.

    Args:
        file: an opened file.
        subtree: str, the part of a file of several models to take, such as
            "img".

    Raises:
        ValueError: for an unknown format, for tensors that the format does
            not know, and for weights of which a part is missing.
    """
    tensors, dropped = _parameters(file, subtree)
    for format in FORMATS:
        renamed = _with_aliases(file, tensors, format)
        if any(set(mark) <= set(renamed) for mark in format.marks):
            return _source_of(file, unstacked(file, renamed), format, dropped)
    shown = ", ".join(list(file.tensors)[:5]) or "nothing"
    says = file.metadata.get("config.json")
    refuse(
        file.path,
        f"is of no known format: it holds {len(file.tensors)} tensors "
        f"({shown[:300]} ...)"
        + (f", and its config.json says {says}" if says else ""),
        f"Known are {', '.join(sorted({x.name for x in FORMATS}))} and "
        "Keras's own files. Is it another model's, or a file of the "
        "optimiser?",
    )


def _parameters(file, subtree):
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


def _with_aliases(file, tensors, format):
    """The tensors under the names of the format's table."""
    renamed = {}
    for name, tensor in tensors.items():
        for pattern, replacement in format.aliases:
            if match := re.fullmatch(pattern, name):
                name = match.expand(replacement)
        if name in renamed:
            refuse(
                file.path,
                "is there under two names",
                "Expected each tensor once: the file was put together wrongly.",
                name,
            )
        renamed[name] = tensor
    return renamed


def _source_of(file, tensors, format, outside) -> Source:
    """Maps the tensors to weights, and refuses what does not fit."""
    inside = dataclasses.replace(file, tensors=tensors)
    ignored = [x for x in tensors if matches(x, format.ignored)]
    strangers = [x for x in outside if not matches(x, format.ignored)]
    features = _features_of(tensors, format)
    names = [name for name in tensors if name not in ignored]
    rows, unknown = paths_of(names, format.rows(features))
    missing = [
        name
        for row in rows.values()
        for name in row.names
        if name not in tensors
    ]
    missing += _missing_of_pairs(rows, format)
    _refuse_unsupported(file, format, unknown + strangers)
    if missing or strangers or unknown:
        refuse(
            file.path,
            f"does not fit as a {format.name} file. Missing: "
            f"{listed(missing)}. Unused: {listed(unknown + strangers)}",
            "Loading it in part would give a model that looks right and is "
            f"not. {_taken_for(format, tensors)}; {_cure(file, missing)}",
        )
    for row in rows.values():
        for name in row.names:
            check_dtype(file.path, name, tensors[name].dtype)
    dropped = ignored + [x for x in outside if x not in strangers]
    return Source(inside, format, features, rows, dropped)


def _missing_of_pairs(rows, format) -> list:
    """Kernels without bias, and biases without kernel, of optional layers."""
    missing = []
    for layer in ("predictions", "pre_logits"):
        if f"{layer}/bias" not in format.table:
            continue
        pair = {f"{layer}/kernel", f"{layer}/bias"}
        if len(pair & set(rows)) == 1:
            missing += [f"what is {path} here" for path in pair - set(rows)]
    return missing


FAMILIES = {
    "vit": "a Vision Transformer",
    "mixer": "an MLP-Mixer",
    "bit": "a BiT",
}


def _taken_for(format, tensors) -> str:
    marks = next(x for x in format.marks if set(x) <= set(tensors))
    return (
        f"It is taken for {FAMILIES[format.family]} in {format.name} format "
        f"because it holds {' and '.join(marks)}"
    )


def _cure(file, missing) -> str:
    says = file.metadata.get("config.json")
    quoted = f" (its config.json says {says})" if says else ""
    cause = (
        "the file may be in order and of an architecture that the models here "
        f"do not have{quoted}"
    )
    if missing:
        return f"{cause}, or cut off: choose another, or fetch the file again."
    return f"{cause}: choose another one."


def _refuse_unsupported(file, format, unknown):
    """Names all that the models here do not have, not only the first."""
    found = {}
    for pattern, what in format.unsupported.items():
        names = [name for name in unknown if re.fullmatch(pattern, name)]
        if names:
            found.setdefault(what, []).extend(names)
    if not found:
        return
    named = [name for names in found.values() for name in names]
    rest = [name for name in unknown if name not in named]
    if rest:
        found["tensors of unknown use"] = rest
    obstacles = [f"{what} ({_shortly(x)})" for what, x in found.items()]
    refuse(
        file.path,
        f"holds {'; '.join(obstacles)}, which the models here do not have",
        "Without it the file's numbers would not come out, so it is not "
        "loaded: choose another file.",
    )


def _shortly(names) -> str:
    """One name for what is alike in all blocks."""
    alike = {re.sub(r"\d+", "*", name): name for name in reversed(names)}
    shown = [x if len(names) == len(alike) else y for y, x in alike.items()]
    return listed(shown)


def listed(names) -> str:
    """Names for a message, the first 20 of them."""
    names = sorted(names)
    more = f" and {len(names) - 20} more" if len(names) > 20 else ""
    return (", ".join(str(name)[:120] for name in names[:20]) or "none") + more


def matches(name, patterns) -> bool:
    """Whether one of the regular expressions matches the whole name."""
    return any(re.fullmatch(pattern, name) for pattern in patterns)


def _features_of(tensors, format) -> set:
    """Which variants of the table a file follows."""
    features = {
        feature for feature, name in format.signs.items() if name in tensors
    }
    token = format.table.get("class_token/token", ("", ""))[0]
    if "registers" in features and token not in tensors:
        features = features - {"registers"} | {"registers_alone"}
    return features
