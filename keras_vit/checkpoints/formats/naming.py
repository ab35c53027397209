"""Matches names against the patterns of a table."""

import dataclasses
import functools
import re
from collections.abc import Iterable

__all__ = ["Row", "paths_of", "row_of"]

DIGITS = {"uu": r"\d\d+"}
NUMBER = r"0|[1-9]\d{0,3}"


@dataclasses.dataclass(frozen=True)
class Row:
    """Where one weight of ours is in a file.

    Args:
        names: tuple of str, the tensors in the file.
        transform: str, name of the transform from them to ours.
    """

    names: tuple
    transform: str


def row_of(path: str, table: dict) -> Row | None:
    """The row for one weight of ours.

    Args:
        path: str, path of our weight.
        table: dict, see `rows`.

    Returns:
        The `Row`, its placeholders filled in; None when the table has none.
    """
    for pattern in table:
        if match := expression(pattern).fullmatch(path):
            return filled(table[pattern], numbers(match.groupdict()))
    return None


def paths_of(names: Iterable, table: dict) -> tuple[dict, list]:
    """The weights of ours that tensors of a file belong to.

    Args:
        names: str, names in the file.
        table: dict, see `rows`.

    Returns:
        (dict from our path to `Row`, list of names that no row knows). A
        path is there when at least one of its tensors is.
    """
    found, unknown = {}, []
    for name in names:
        path = path_of(name, table)
        if path is None:
            unknown.append(name)
        elif row := row_of(path, table):
            found[path] = row
    return found, unknown


def path_of(name, table):
    for ours, (theirs, _) in table.items():
        for pattern in as_tuple(theirs):
            if match := expression(pattern).fullmatch(name):
                return ours.format(**numbers(match.groupdict()))
    return None


def filled(row, values):
    theirs, transform = row
    names = tuple(name.format(**values) for name in as_tuple(theirs))
    return Row(names, transform)


def as_tuple(theirs):
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


def numbers(groups):
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
