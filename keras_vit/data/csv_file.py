"""Images and labels that a CSV file lists, with a line of column names.

Axes: N images, K classes.
"""

import csv
import logging
import os
import pathlib
import posixpath
import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from keras_vit.data.config import DataConfig
from keras_vit.data.dataset import (
    PARTS,
    SPLITS,
    Dataset,
    Examples,
    check_not_cut,
    complete,
    listing,
)
from keras_vit.data.image_folders import SUFFIXES, files_there, stored
from keras_vit.io.stores import is_address, of_store, on_disk, whole_address

__all__ = [
    "Labels",
    "are_numbers",
    "is_missing",
    "open_csv",
    "read_columns",
    "read_labels",
    "read_numbers",
]

LOGGER = logging.getLogger(__name__)
# What spreadsheets and pandas write for a value that is missing; "none" may
# be a class.
MISSING = {"", "nan", "null", "<na>", "n/a", "#n/a"}
# Between several labels, and whether it is often inside of names as well.
SEPARATORS = {"|": False, ";": False, ",": True, " ": True}
LIST = re.compile(r"\[(.*)\]|\((.*)\)|\{(.*)\}", re.DOTALL)
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", re.IGNORECASE)
WHOLE = re.compile(r"(\d+)\.0*")  # as pandas writes 3 beside a missing value
# ImageNet-21k has 21,843. A class takes memory in the last layer, used or not.
MAX_CLASSES = 1_000_000
LONGEST_LABEL = 20  # digits, of which some may be zeros in front
NUM_NAMED = 5  # classes that a message names
# More numbers than these, with a quarter of those below the largest unused,
# are a quantity, as an age.
FEW_NUMBERS = 10
UNUSED = 0.25
AS_CLASSES = "If each value is a class all the same, give --data.label_kind one"


class Labels(NamedTuple):
    """What the labels of a file are.

    Args:
        names: of the K classes, or of the K columns of numbers.
        labels: int32 (N,); uint8 (N, K) of images with several; or float64
            (N, K), numbers.
        notes: what was found out of them.
    """

    names: tuple[str, ...]
    labels: np.ndarray
    notes: tuple[str, ...] = ()


def is_missing(value: str | None) -> bool:
    """Return whether a cell has no value.

    Example:
        >>> is_missing("NaN"), is_missing("none")
        (True, False)
    """
    return (value or "").strip().lower() in MISSING


def read_labels(
    values: Sequence[str],
    lines: Sequence[int],
    config: DataConfig,
    path: str,
) -> Labels:
    """Read a column of labels.

    Args:
        values: N cells, none of which is missing.
        lines: their lines in the file, for messages.
        config: whose `label_kind` and `label_separator` are used.
        path: of the file, for messages.

    Raises:
        ValueError: for numbers that are no classes.
    """
    kind, separator = config.label_kind, config.label_separator
    several = None
    if separator is not None:
        several = [_split(value, separator) for value in values]
        what = f"separated by {separator!r}"
    elif kind != "one":
        several, what = _found_several(values)
    if several is not None:
        return _several(several, what)
    if kind == "several":
        raise ValueError(
            f"{path!r} has no image with several labels: they are separated by "
            "'|', ';', ',' or a space, or a list as '[0, 3]'. Received: "
            f"{values[0]!r}. Give --data.label_separator."
        )
    return _one(values, lines, kind, path)


def _split(value: str, separator: str) -> list[str]:
    found = LIST.fullmatch(value)
    inside = next(filter(None, found.groups()), "") if found else value
    parts = (x.strip().strip("'\"").strip() for x in inside.split(separator))
    return [x for x in dict.fromkeys(parts) if x]


def _found_several(values):
    """Split labels that are several, and say what tells; else (None, "")."""
    if all(LIST.fullmatch(x) for x in values):
        return [_split(x, ",") for x in values], "written as lists"
    single = set(values)
    for separator, in_names in SEPARATORS.items():
        if not any(separator in x for x in single):
            continue
        split = {x: _split(x, separator) for x in single}
        # A class "white shark" has no class "white" beside it as a rule.
        tells = (
            len(parts) > 1 and single.issuperset(parts)
            for parts in split.values()
        )
        if not in_names or any(tells):
            return [split[x] for x in values], f"separated by {separator!r}"
    return None, ""


def _several(several, what: str) -> Labels:
    found = {name for names in several for name in names}
    names = tuple(sorted(found, key=_order))
    number = {name: label for label, name in enumerate(names)}
    labels = np.zeros((len(several), len(names)), np.uint8)
    for row, given in zip(labels, several, strict=True):
        row[[number[name] for name in given]] = 1
    count = sum(len(x) > 1 for x in several)
    note = (
        f"{count:,} of {len(several):,} images have several labels, {what}. "
        "If they are one class each, give --data.label_kind one"
    )
    return Labels(names, labels, (note,))


def _order(name: str) -> tuple:
    """Sort numbers as numbers, before names."""
    return (0, int(name), name) if name.isdecimal() else (1, 0, name)


def _one(values, lines, kind, path) -> Labels:
    notes = ()
    if kind == "auto":
        whole = [WHOLE.fullmatch(value) for value in values]
        if any(whole):
            pairs = list(zip(values, whole, strict=True))
            if all(x or value.isdecimal() for value, x in pairs):
                values = [x[1] if x else value for value, x in pairs]
                notes = ("numbers as '3.0' are taken for classes as '3'",)
        _check_negative(values, lines, path)
    if not all(value.isdecimal() for value in values):
        names = tuple(sorted(set(values)))
        number = {name: label for label, name in enumerate(names)}
        labels = np.array([number[value] for value in values], np.int32)
        return Labels(names, labels, notes)
    _check_largest(values, lines, path)
    labels = np.array([int(value) for value in values], np.int32)
    _log_empty_classes(labels, path)
    return Labels(tuple(map(str, range(labels.max() + 1))), labels, notes)


def _check_negative(values, lines, path) -> None:
    for line, value in zip(lines, values, strict=True):
        if value.startswith("-") and value[1:].isdecimal():
            raise ValueError(
                f"{path!r} has the label {value!r} in line {line}: "
                "numbers of classes start at 0."
            )


def _check_largest(values, lines, path) -> None:
    """Raise a ValueError for numbers that are no classes, as keys of rows."""
    # By their lengths first: Python reads no number of thousands of digits.
    largest = max(values, key=lambda x: (len(x.lstrip("0")), x.lstrip("0")))
    if len(largest) > LONGEST_LABEL or int(largest) >= MAX_CLASSES:
        raise ValueError(
            f"{path!r} has the label {largest!r} in line "
            f"{lines[list(values).index(largest)]}: numbers of classes count "
            f"from 0, and there are {MAX_CLASSES:,} at most. Give names in "
            "their place."
        )


def _log_empty_classes(labels, path) -> None:
    empty = np.setdiff1d(np.arange(labels.max()), labels)
    if len(empty):
        more = " ..." if len(empty) > NUM_NAMED else ""
        LOGGER.warning(
            "%r has no images of %d of %d classes: %s%s. Each takes a place in "
            "the last layer: give names in place of numbers to leave them out.",
            path,
            len(empty),
            labels.max() + 1,
            ", ".join(map(str, empty[:NUM_NAMED])),
            more,
        )


def are_numbers(values: Sequence[str]) -> bool:
    """Return whether the labels of a column are a quantity, and no classes.

    Numbers with fractions are, and so are more than ten whole ones of which a
    quarter of those below the largest is unused, as of ages.

    Example:
        >>> are_numbers(["0.5", "3"]), are_numbers(["0", "1", "2.0"])
        (True, False)
    """
    different = set(values)
    if not all(NUMBER.fullmatch(x) for x in different):
        return False
    whole = {x for x in different if x.isdecimal() or WHOLE.fullmatch(x)}
    if len(whole) < len(different):
        # Whole numbers below 0 are a mistake in numbers of classes.
        rest = different - whole
        return not all(x.lstrip("+-").isdecimal() for x in rest)
    used = {float(x) for x in whole}
    if len(used) <= FEW_NUMBERS:
        return False
    size = max(used) + 1
    return size <= MAX_CLASSES and len(used) < (1 - UNUSED) * size


def read_numbers(
    rows: Sequence[Sequence[str]],
    lines: Sequence[int],
    names,
    path: str,
    *,
    found: bool = False,
) -> Labels:
    """Read columns of numbers, which a model is to predict.

    Args:
        rows: N rows of K cells.
        lines: as of `read_labels`.
        names: of the K columns.
        path: as of `read_labels`.
        found: whether nobody asked for numbers.

    Raises:
        ValueError: for a cell that is no number.
    """
    for line, row in zip(lines, rows, strict=True):
        odd = [x for x in row if not NUMBER.fullmatch(x)]
        if odd:
            raise ValueError(
                f"Line {line} of {path!r} has {odd[0]!r} in a column of "
                "numbers. Write a number, or give --data.label_kind one for "
                "classes."
            )
    labels = np.array([[float(x) for x in row] for row in rows])
    listed = ", ".join(map(repr, names))
    note = f"a number is learned of each image: {listed}"
    return Labels(names, labels, (f"{note}. {AS_CLASSES}" if found else note,))


def read_columns(
    rows: Sequence[Sequence[str]], lines: Sequence[int], names, path: str
) -> Labels:
    """Read a column for each class, of 0 and 1.

    Args:
        rows: N rows of K cells.
        lines: as of `read_labels`.
        names: of the K columns.
        path: as of `read_labels`.

    Returns:
        One class per image where each row has one 1, else several.

    Raises:
        ValueError: for another value.
    """
    for line, row in zip(lines, rows, strict=True):
        odd = [x for x in row if x not in COLUMN_VALUES]
        if odd:
            raise ValueError(
                f"Line {line} of {path!r} has {odd[0]!r} in a column of a "
                "class. Expected 0 or 1."
            )
    labels = np.array([[COLUMN_VALUES[x] for x in row] for row in rows])
    note = f"each of {len(names):,} columns is a class"
    if (labels.sum(axis=1) == 1).all():
        return Labels(names, labels.argmax(axis=1).astype(np.int32), (note,))
    count = (labels.sum(axis=1) > 1).sum()
    note += f"; {count:,} of {len(rows):,} images have several"
    return Labels(names, labels.astype(np.uint8), (note,))


COLUMN_VALUES = {
    **dict.fromkeys(("0", "0.0", "false", "False", "FALSE"), 0),
    **dict.fromkeys(("1", "1.0", "true", "True", "TRUE"), 1),
}


# A column of parts may be called so where all its values are parts.
SPLIT_COLUMNS = ("split", "part", "set", "subset", "partition")


class Row(NamedTuple):
    """A line of the file.

    Args:
        line: its number, 2 for the first one below the names.
        cells: name of the column to its text, without spaces around it.
    """

    line: int
    cells: dict[str, str]


def open_csv(config: DataConfig, *, to_evaluate: bool = False) -> Dataset:
    """Open a CSV file of paths and labels, with a line of column names.

    Paths are relative to the file or to image_root. Labels are names of
    classes, or whole numbers from 0, which then are the classes; several for
    an image, as "a|b" or "[0, 3]"; columns of 0 and 1; or numbers to predict,
    in one column or several. A column of parts
    or of folds says what a line is for; what has no lines is cut off the
    training images, with all lines of an image in one part.

    Args:
        config: whose CSV file is opened.
        to_evaluate: whether there need be no training images, nor two
            classes.

    Raises:
        ValueError: when the file cannot be read, has no such columns, or has
            lines without a label or an image.
    """
    given = os.path.expanduser(config.csv or "")
    path = pathlib.Path(on_disk(given))
    rows = _rows(path, config)
    rows, notes = _with_labels(rows, config, str(path))
    files = _files(rows, config, given, path)
    rows, files, found = _with_files(rows, files, config, given, path)
    notes += found
    names, labels, found = _labels(rows, config, str(path))
    notes += found
    splits, found = _splits(rows, config, str(path))
    notes += found
    if not to_evaluate:
        if "train" not in splits:
            raise ValueError(
                f"{str(path)!r} has no lines of the split 'train'. To score a "
                "model on its images: keras-vit evaluate MODEL FILE."
            )
        _check_classes(names, labels, splits, str(path))
    in_store = of_store(given)
    if in_store:
        examples = stored(files, labels, whole_address(given), config)
    else:
        examples = Examples(
            np.array(files, object),
            labels,
            kind="path",
            source=str(path),
            on_broken_image=config.on_broken_image,
        )
    parts = [
        examples.subset(np.flatnonzero(splits == split))
        if (splits == split).any()
        else None
        for split in PARTS
    ]
    if config.fold_of_column:
        check_not_cut(config, f"fold {config.fold} is validated on")
    else:
        by = "position" if in_store else config.split_by
        parts = complete(parts, config, by, names)
    return Dataset(
        *parts,
        class_names=names,
        name=path.stem,
        notes=tuple(notes),
        task="regression" if labels.dtype.kind == "f" else None,
    )


def _rows(path: pathlib.Path, config: DataConfig) -> list[Row]:
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.DictReader(file, skipinitialspace=True)
            columns = reader.fieldnames or []
            found = list(reader)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ValueError(
            f"{str(path)!r} cannot be read as a CSV file: {error}"
        ) from error
    keys = {"image_key": config.image_key, "split_key": config.split_key}
    if config.fold_of_column:
        keys["fold_key"] = config.fold_key
    for field, key in keys.items():
        if key is not None and key not in columns:
            raise _no_column(path, field, key, columns)
    if not found:
        raise ValueError(f"{str(path)!r} lists no images.")
    rows = [
        Row(line, {x: (row[x] or "").strip() for x in columns})
        for line, row in enumerate(found, start=2)
    ]
    if not _label_columns(rows, config):
        raise _no_column(path, "label_key", config.label_key, columns)
    return rows


def _no_column(path, field, key, columns) -> ValueError:
    return ValueError(
        f"{str(path)!r} has no column {field}={key!r}. Its first line names "
        f"{', '.join(map(repr, columns)) or 'nothing'}."
    )


def _label_columns(rows: Sequence[Row], config: DataConfig) -> tuple[str, ...]:
    """Name the column of the labels, or those of 0 and 1; () for neither."""
    columns = rows[0].cells
    if config.label_key in columns:
        return (config.label_key,)
    asked = tuple(x.strip() for x in config.label_key.split(","))
    if len(asked) > 1 and all(x in columns for x in asked):
        return asked
    if config.label_key != "label":
        return ()
    used = {config.image_key, config.fold_key, config.split_key, *SPLIT_COLUMNS}
    rest = tuple(
        x
        for x in columns
        if x not in used and all(row.cells[x] in COLUMN_VALUES for row in rows)
    )
    return rest if len(rest) > 1 else ()


def _with_labels(rows, config: DataConfig, path: str):
    """Leave out the lines without a label, where that is asked for."""
    columns = _label_columns(rows, config)
    gaps = [
        [row.cells[x] for x in columns if is_missing(row.cells[x])]
        for row in rows
    ]
    kept = [row for row, gap in zip(rows, gaps, strict=True) if not gap]
    if len(kept) == len(rows):
        return rows, []
    first = next(i for i, gap in enumerate(gaps) if gap)
    count = f"{len(rows) - len(kept):,} of {len(rows):,} lines"
    if config.on_missing_label == "stop" or not kept:
        raise ValueError(
            f"{path!r} has no label in line {rows[first].line} but "
            f"{gaps[first][0]!r}, as in {count}. Add it, or give "
            "--data.on_missing_label skip to leave such lines out."
        )
    return kept, [f"without a label, left out: {count}"]


def _files(rows, config: DataConfig, given: str, path) -> list[str]:
    """Return the path or address of the image of each line."""
    suffix = config.image_suffix or ""
    if suffix and not suffix.startswith("."):
        suffix = f".{suffix}"
    names = [row.cells[config.image_key] for row in rows]
    names = [x if x.endswith(suffix) else f"{x}{suffix}" for x in names]
    if of_store(given):
        root = config.image_root or posixpath.dirname(whole_address(given))
        if not is_address(root):
            root = f"{posixpath.dirname(whole_address(given))}/{root}"
        return [f"{root.rstrip('/')}/{posixpath.normpath(x)}" for x in names]
    root = path.parent
    if config.image_root is not None:
        root = root / os.path.expanduser(config.image_root)
        if not root.is_dir():
            raise ValueError(
                f"There is no folder {str(root)!r}. Received: image_root="
                f"{config.image_root!r}. It is relative to the CSV file."
            )
    return [str(root / name) for name in names]


def _with_files(rows, files, config: DataConfig, given: str, path):
    """Leave out the lines whose files are absent, where that is asked for."""
    in_store = of_store(given)
    there = files_there(files) if in_store else map(os.path.isfile, files)
    there = list(there)
    if all(there):
        return rows, files, []
    absent = [i for i, is_there in enumerate(there) if not is_there]
    names = [files[i] for i in absent]
    if not config.skip_missing or not any(there):
        root = "image_root" if config.image_root else "the CSV file"
        raise ValueError(
            f"Line {rows[absent[0]].line} of {str(given or path)!r}: there is "
            f"no file {names[0]!r}, as in {len(absent):,} of {len(rows):,} "
            f"lines. Paths are relative to {root}; --data.image_root gives "
            f"another folder.{_suffix_hint(names[0])} To leave such lines out, "
            "give --data.skip_missing true."
        )
    kept = [i for i, is_there in enumerate(there) if is_there]
    note = f"no such files, left out: {listing(names)}"
    return [rows[i] for i in kept], [files[i] for i in kept], [note]


def _suffix_hint(file: str) -> str:
    found = [x for x in SUFFIXES if os.path.isfile(f"{file}{x}")]
    return f" Give --data.image_suffix {found[0]}." if found else ""


def _labels(rows, config: DataConfig, path: str) -> Labels:
    columns = _label_columns(rows, config)
    lines = [row.line for row in rows]
    cells = [[row.cells[x] for x in columns] for row in rows]
    if config.label_kind == "number":
        return read_numbers(cells, lines, columns, path)
    if config.label_kind == "auto" and config.label_separator is None:
        table = zip(*cells, strict=True)
        if any(are_numbers(column) for column in table):
            return read_numbers(cells, lines, columns, path, found=True)
    if len(columns) > 1:
        return read_columns(cells, lines, columns, path)
    values = [row.cells[column] for row in rows for column in columns]
    return read_labels(values, lines, config, path)


def _check_classes(names, labels, splits, path: str) -> None:
    """Raise a ValueError for one class, and for those that training lacks."""
    if labels.dtype.kind == "f":
        return
    many = labels.ndim == 2
    used = labels.any(axis=0).sum() if many else len(np.unique(labels))
    if used < 2:
        first = np.flatnonzero(labels.any(axis=0))[:1] if many else labels[:1]
        name = names[first[0]] if len(first) else ""
        raise ValueError(
            f"A classifier needs at least two classes: every label of {path!r} "
            f"is {name!r}."
        )
    known = _used(labels, splits == "train")
    for part in PARTS[1:]:
        lacking = _used(labels, splits == part) - known
        if lacking:
            listed = ", ".join(repr(names[i]) for i in sorted(lacking)[:5])
            raise ValueError(
                f"The {part} lines of {path!r} have classes that the training "
                f"lines lack: {listed}. A model cannot learn them: give images "
                "of them to train on, or remove these lines."
            )


def _used(labels, rows) -> set[int]:
    if labels.ndim == 2:
        return set(np.flatnonzero(labels[rows].any(axis=0)).tolist())
    return set(labels[rows].tolist())


def _splits(rows, config: DataConfig, path: str):
    """Return the part of each line, and what was found out of it."""
    if config.fold_of_column:
        return _folds(rows, config, path)
    notes = []
    columns = rows[0].cells
    key = config.split_key
    for column in SPLIT_COLUMNS if key is None else ():
        if column in columns and (
            column == "split"
            or all(_part_of(row.cells[column]) for row in rows)
        ):
            key = column
            break
    if config.fold_key in columns:
        notes.append(
            f"the column {config.fold_key!r} is not used; --data.fold 0 makes "
            "a fold the validation part"
        )
    if key is None:
        return np.array(["train"] * len(rows)), notes
    parts = [_part_of(row.cells[key] or "train") for row in rows]
    if None in parts:
        value = rows[parts.index(None)].cells[key].lower()
        raise ValueError(
            f"{path!r} has an unknown split {value!r} in the column {key!r}; "
            "expected 'train', 'validation' or 'test'."
        )
    return np.array(parts), [*notes, f"parts are those of the column {key!r}"]


def _part_of(value: str) -> str | None:
    names = (part for part, x in SPLITS.items() if value.lower() in x)
    return next(names, None)


def _folds(rows, config: DataConfig, path: str):
    values = [row.cells[config.fold_key] for row in rows]
    # As pandas writes them beside missing values.
    chosen = [x.removesuffix(".0") == str(config.fold) for x in values]
    if all(chosen) or not any(chosen):
        raise ValueError(
            f"The column {config.fold_key!r} of {path!r} has the folds "
            f"{', '.join(map(repr, sorted(set(values))))}. Received: fold="
            f"{config.fold}. Give one of several."
        )
    parts = np.where(chosen, "validation", "train")
    return parts, [f"fold {config.fold} is the validation part"]
