"""The labels of a CSV file: one class per image, several, or numbers.

Axes: N images, K classes.
"""

import logging
import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from keras_vit.data.config import DataConfig

__all__ = [
    "Labels",
    "are_numbers",
    "is_missing",
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
