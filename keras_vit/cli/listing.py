"""The catalogue as a table, as JSON and as Markdown."""

import dataclasses
import io
import itertools
import json
import sys
from collections.abc import Sequence

from keras_vit.checkpoints.public.published import Entry

__all__ = ["FORMATS", "as_json", "as_markdown", "as_table"]

COLUMNS = ("weights", "classes", "pixels", "MiB", "top-1 %", "measured by")


def as_table(entries: Sequence[Entry]) -> str:
    """For a terminal, of its width.

    Args:
        entries: of the catalogue.

    Returns:
        str.

    Example:
        >>> print(as_table(catalog.entries("ViT_B16")))
    """
    from rich.console import Console
    from rich.table import Table

    table = Table(*COLUMNS)
    for entry in entries:
        table.add_row(*_cells(entry, entry.key))
    # A file or a pipe has no width: nothing needs to be cut short.
    on_terminal = sys.stdout.isatty()
    output = io.StringIO()
    width = None if on_terminal else 200
    Console(file=output, width=width, force_terminal=on_terminal).print(table)
    return output.getvalue()


def as_json(entries: Sequence[Entry]) -> str:
    """For programs: a list of objects with the fields of Entry and its key.

    Args:
        entries: of the catalogue.

    Returns:
        str.

    Example:
        >>> json.loads(as_json(catalog.entries("ViT_B16")))[0]["key"]
        'ViT_B16/augreg_imagenet21k'
    """
    objects = [{"key": x.key, **dataclasses.asdict(x)} for x in entries]
    return json.dumps(objects, indent=2) + "\n"


def as_markdown(entries: Sequence[Entry]) -> str:
    """For docs/weights.md: a table a model.

    Args:
        entries: of the catalogue, by model.

    Returns:
        str.

    Example:
        >>> print(as_markdown(catalog.entries("ViT_B16")))
    """
    lines = []
    by_model = itertools.groupby(entries, key=lambda entry: entry.model)
    for model, group in by_model:
        lines += [
            f"### {model}",
            "",
            _row(COLUMNS),
            _row("-" * 3 for _ in COLUMNS),
        ]
        lines += [_row(_cells(entry, f"`{entry.name}`")) for entry in group]
        lines.append("")
    return "\n".join(lines)


def _row(cells):
    return f"| {' | '.join(cells)} |"


def _cells(entry, name):
    size = entry.approximate_mebibytes
    # "who: which of their models", of which the row tells the latter.
    notes = [(entry.top1_source or "").partition(": ")[0]]
    if entry.head_is_zero:
        notes.append("the head is zero")
    if not entry.address_verified:
        notes.append("address not verified")
    return (
        name,
        str(entry.classes or "none"),
        str(entry.image_size or "any"),
        "" if size is None else f"{size:.0f}",
        "" if entry.top1 is None else f"{entry.top1:g}",
        "; ".join(note for note in notes if note),
    )


FORMATS = {"table": as_table, "json": as_json, "markdown": as_markdown}
