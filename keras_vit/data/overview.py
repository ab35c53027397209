"""What a data set holds, as a table: parts, classes, and what looks wrong.

Axes: N images, K classes.
"""

import collections
from collections.abc import Sequence
from typing import Any

import numpy as np

from keras_vit.data.dataset import (
    LEFT_OUT,
    PARTS,
    SPLITS,
    Dataset,
    of_classes,
    skipped_files,
)
from keras_vit.data.manifest import Image
from keras_vit.io.atomic_files import printable
from keras_vit.io.tables import markdown_table

__all__ = ["OVERVIEW", "overview"]

OVERVIEW = "data.txt"
NUM_CLASSES = 20  # that are all shown; of more the smallest and largest
NUM_EXTREMES = 5
NUM_NAMED = 3
STATISTICS = {
    "smallest": np.min,
    "mean": np.mean,
    "largest": np.max,
    "deviation": np.std,
}
PART_NAMES = {name for names in SPLITS.values() for name in names}


def overview(dataset: Dataset, images: Sequence[Image] | None) -> str:
    """Return a table of the images of each class and part, and remarks.

    Args:
        dataset: a `Dataset`.
        images: of `list_images`; without it no contents are compared.

    Returns:
        Lines for a terminal and for data.txt in a run folder.

    Example:
        >>> print(overview(dataset, list_images(dataset, config)))
    """
    parts: dict[str, Any] = {
        part: getattr(dataset, part)
        for part in PARTS
        if getattr(dataset, part) is not None
    }
    counts = {
        part: _counts(x, len(dataset.class_names)) for part, x in parts.items()
    }
    sizes = {part: _size(x) for part, x in parts.items()}
    lines = [f"Data: {dataset.name or 'unnamed'}", f"Task: {dataset.task}", ""]
    if dataset.task == "regression":
        counts = {}
        lines += _numbers(dataset.class_names, parts, sizes)
    else:
        lines += _table(dataset.class_names, counts, sizes)
    kinds = {
        "left out": _left_out(dataset),
        "note": list(dataset.notes),
        "look at": [
            *_lacking(dataset.class_names, counts),
            *_called_as_parts(dataset.class_names),
            *_copies(images or ()),
        ],
    }
    remarks = [f"{kind}: {x}" for kind, found in kinds.items() for x in found]
    return "\n".join(
        map(printable, [*lines, *([""] * bool(remarks)), *remarks])
    )


def _size(examples) -> int | None:
    """Return the number of images; None of batches of your own."""
    known = getattr(examples, "source", None) is not None
    return len(examples) if known else None


def _counts(examples, num_classes: int) -> np.ndarray | None:
    """Return the images of each class, int (K,); None where it is unknown."""
    labels = getattr(examples, "labels", None)
    if labels is None:
        return None
    labels = of_classes(labels)
    if labels.ndim == 2:
        return (labels > 0).sum(axis=0)
    return np.bincount(labels, minlength=num_classes)


def _table(names, counts, sizes) -> list[str]:
    known = {part: x for part, x in counts.items() if x is not None}
    rows: list[list] = [["all images", *sizes.values()]]
    if known:
        total = np.sum([*known.values()], axis=0)
        shown = np.arange(len(names))
        if len(names) > NUM_CLASSES:
            order = np.argsort(total, kind="stable")
            shown = np.r_[order[:NUM_EXTREMES], order[-NUM_EXTREMES:]]
        rows += [
            [names[i], *(None if x is None else x[i] for x in counts.values())]
            for i in shown
        ]
        if len(shown) < len(names):
            rest = [f"... {len(names) - len(shown):,} classes between"]
            rows.insert(1 + NUM_EXTREMES, rest + [None] * len(counts))
    header = [f"{len(names):,} classes", *counts]
    return markdown_table(header, rows, numbers=[*counts], padded=True)


def _numbers(names, parts, sizes) -> list[str]:
    """Return a table of the numbers of each column in each part."""
    labels = [examples.labels for examples in parts.values()]  # (N, K) each
    rows: list[list] = [["all images", *sizes.values()]]
    rows += [
        [f"{name}, {what}", *(f"{find(x[:, i]):.6g}" for x in labels)]
        for i, name in enumerate(names)
        for what, find in STATISTICS.items()
    ]
    header = [f"{len(names):,} numbers", *parts]
    return markdown_table(header, rows, numbers=[*parts], padded=True)


def _left_out(dataset: Dataset) -> list[str]:
    return [
        f"{found['count']:,} {LEFT_OUT[kind]}, as {found['files'][0]!r}"
        for kind, found in skipped_files(dataset).items()
    ]


def _lacking(names, counts) -> list[str]:
    """Name the classes of which a part has nothing."""
    found = []
    for part, numbers in counts.items():
        missing = [] if numbers is None else np.flatnonzero(numbers == 0)
        if len(missing):
            listed = _named([names[i] for i in missing])
            found.append(f"{part} has no images of {listed}")
    return found


def _called_as_parts(names) -> list[str]:
    odd = [name for name in names if name.lower() in PART_NAMES]
    return [f"a class is called {name!r}, as a part of data is" for name in odd]


def _copies(images: Sequence[Image]) -> list[str]:
    """Count images of equal contents: of several parts, of several classes."""
    groups = collections.defaultdict(list)
    for image in images:
        if image.sha256:
            groups[image.sha256].append(image)
    several = [x for x in groups.values() if len(x) > 1]
    found = []
    for field, where in (("part", "parts"), ("label", "classes")):
        split = [
            group
            for group in several
            if len({getattr(image, field) for image in group}) > 1
        ]
        if split:
            one, *rest = split[0]
            other = next(
                x for x in rest if getattr(x, field) != getattr(one, field)
            )
            found.append(
                f"{len(split):,} image(s) are in several {where} with the same "
                f"contents, as {one.name!r} ({getattr(one, field)}) and "
                f"{other.name!r} ({getattr(other, field)})"
            )
    copies = sum(map(len, several)) - len(several)
    if copies:
        names = [image.name for image in several[0]]
        found.append(f"{copies:,} image(s) repeat others, as {_named(names)}")
    return found


def _named(names) -> str:
    more = len(names) - NUM_NAMED
    rest = f" and {more:,} more" if more > 0 else ""
    return ", ".join(map(repr, names[:NUM_NAMED])) + rest
