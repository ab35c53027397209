"""What a run is trained on, file by file and as a table.

The list is written as images.csv.gz into the run folder before the first step:
name, size in bytes, sha256 of the contents, class and part of each image, in
the order in which they are numbered. A run that is resumed compares it. The
table, data.txt, has parts, classes, and what looks wrong.

Axes: N images, K classes.
"""

import collections
import csv
import dataclasses
import gzip
import io
import os
import pathlib
import zlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from keras_vit.data.config import DataConfig
from keras_vit.data.dataset import (
    LEFT_OUT,
    PARTS,
    SPLITS,
    Dataset,
    Examples,
    content_hashes,
    of_classes,
    skipped_files,
)
from keras_vit.io.atomic_files import as_cell, of_cell, printable, replacing
from keras_vit.io.stores import of_store
from keras_vit.io.tables import markdown_table

__all__ = [
    "MANIFEST",
    "OVERVIEW",
    "Image",
    "changes",
    "list_images",
    "overview",
    "read_manifest",
    "with_classes",
    "write_manifest",
]

MANIFEST = "images.csv.gz"
COLUMNS = ("name", "size", "sha256", "label", "part")
NUM_NAMED = 3  # Images that a message names of each kind.
LARGEST_RATIO = 100  # to which it unpacks; digests hardly pack at all
OVERVIEW = "data.txt"
NUM_CLASSES = 20  # that are all shown; of more the smallest and largest
NUM_EXTREMES = 5
STATISTICS = {
    "smallest": np.min,
    "mean": np.mean,
    "largest": np.max,
    "deviation": np.std,
}
PART_NAMES = {name for names in SPLITS.values() for name in names}
SEVERAL = "|"  # between the classes of an image that has several


class Image(NamedTuple):
    """A line of the list.

    Args:
        name: path below the folder of the data; or source and number.
        size: bytes of the file; of an image in memory of its pixels.
        sha256: of these bytes, in hexadecimal.
        label: name of the class, or names or numbers with "|" between them.
        part: "train", "validation" or "test".
    """

    name: str
    size: int
    sha256: str
    label: str
    part: str


def list_images(dataset: Dataset, config: DataConfig) -> list[Image] | None:
    """List the images of all parts, in their order.

    Args:
        dataset: a `Dataset`.
        config: its `DataConfig`; names are relative to its folder or file.

    Returns:
        The images; None of data whose contents are not at hand: in shards, in
        stores, of tensorflow-datasets in files, and batches of your own.
    """
    parts = {part: getattr(dataset, part) for part in PARTS}
    parts = {part: x for part, x in parts.items() if x is not None}
    if any(
        not isinstance(x, Examples) or x.kind == "record"
        for x in parts.values()
    ):
        return None
    root = _root(config)
    return [
        Image(name, size, value, label, part)
        for part, examples in parts.items()
        for name, size, value, label in zip(
            _names(examples, root),
            _sizes(examples),
            content_hashes(examples),
            _labels(examples.labels, dataset),
            strict=True,
        )
    ]


def _root(config: DataConfig) -> str | None:
    """Return the folder that names are relative to."""
    if config.folder and not of_store(config.folder):
        return os.path.expanduser(config.folder)
    if config.csv and not of_store(config.csv):
        return os.path.dirname(os.path.expanduser(config.csv)) or "."
    return None


def _names(examples, root) -> list[str]:
    names = [examples.name_of(i) for i in range(len(examples))]
    if root is None or examples.kind != "path":
        return names
    return [pathlib.Path(os.path.relpath(x, root)).as_posix() for x in names]


def _sizes(examples) -> list[int]:
    if examples.kind == "array":
        return [int(np.prod(examples.contents.shape[1:]))] * len(examples)
    if examples.kind == "encoded":
        return [len(x) for x in examples.contents]
    return [
        os.path.getsize(x) if os.path.isfile(x) else 0
        for x in examples.contents
    ]


def _labels(labels, dataset) -> list[str]:
    if dataset.task == "regression":
        return [SEVERAL.join(map(repr, row)) for row in labels.tolist()]
    labels = of_classes(labels)
    if labels.ndim == 1:
        return [dataset.class_names[label] for label in labels]
    names = np.array(dataset.class_names, object)
    return [SEVERAL.join(names[row > 0]) for row in labels]


def write_manifest(path: pathlib.Path, images: Sequence[Image]) -> None:
    """Write a list of images; the same list gives the same bytes."""
    text = io.StringIO(newline="")
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(COLUMNS)
    rows.writerows(map(as_cell, image) for image in images)
    with replacing(path) as temporary, temporary.open("wb") as file:
        # Without the time and the name, which differ each time.
        with gzip.GzipFile("", "wb", fileobj=file, mtime=0) as packed:
            packed.write(text.getvalue().encode())


def read_manifest(path: pathlib.Path) -> list[Image]:
    """Read a list of images.

    Raises:
        ValueError: naming the file, when it is none.
    """
    most = 2**20 + LARGEST_RATIO * path.stat().st_size
    try:
        with gzip.open(path) as file:
            text = file.read(most + 1)
        if len(text) > most:
            raise ValueError(f"it unpacks to more than {most:,} bytes")
        _, *rows = csv.reader(io.StringIO(text.decode(), newline=""))
        cells = [map(of_cell, row) for row in rows]
        return [Image(name, int(size), *rest) for name, size, *rest in cells]
    except (
        *(OSError, EOFError, zlib.error),
        *(ValueError, TypeError, csv.Error),
    ) as error:
        raise ValueError(
            f"{str(path)!r} is no list of images: {error}. Put the file back, "
            "or remove it to go on without a comparison."
        ) from error


def changes(old: Sequence[Image], new: Sequence[Image]) -> list[str]:
    """Say how a list of images differs from an earlier one.

    Returns:
        A text for each kind of difference, with the first images; [] for
        none.

    Example:
        >>> changes(read_manifest(path), list_images(dataset, config))
        ["40 added ('bee/new0.png', 'bee/new1.png', 'bee/new2.png' ...)"]
    """
    if list(old) == list(new):
        return []
    before, now = _by_name(old), _by_name(new)
    gone = [image for image in old if image.name not in now]
    come = [image for image in new if image.name not in before]
    renamed = _renamed(gone, come)
    shared = [name for name in before if name in now]
    found = {
        "renamed": [f"{x} is now {y}" for x, y in renamed.items()],
        "added": [x.name for x in come if x.name not in renamed.values()],
        "removed": [x.name for x in gone if x.name not in renamed],
    }
    for field, kind in OTHERWISE.items():
        found[kind] = [
            name
            for name in shared
            if _values(before[name], field) != _values(now[name], field)
        ]
    texts = [_counted(x, kind) for kind, x in found.items() if x]
    return texts or ["the same images in another order"]


# What of an image may change, in words.
OTHERWISE = {
    "sha256": "with other contents",
    "label": "of another class",
    "part": "in another part",
}


def _by_name(images) -> dict[str, list[Image]]:
    """Collect the lines of each image; a CSV file may have several."""
    found: dict[str, list[Image]] = collections.defaultdict(list)
    for image in images:
        found[image.name].append(image)
    return found


def _values(images, field: str) -> list[str]:
    return sorted(getattr(image, field) for image in images)


def _renamed(gone, come) -> dict[str, str]:
    """Return the old names to the new ones of images of equal contents."""
    places = collections.defaultdict(list)
    for image in reversed(come):
        places[image.sha256].append(image.name)
    return {
        image.name: places[image.sha256].pop()
        for image in gone
        if places[image.sha256]
    }


def _counted(names, kind: str) -> str:
    names = sorted(set(names))
    more = " ..." if len(names) > NUM_NAMED else ""
    named = ", ".join(map(repr, names[:NUM_NAMED]))
    return f"{len(names):,} {kind} ({named}{more})"


def with_classes(
    dataset: Dataset, names: Sequence[str], what: str = ""
) -> Dataset:
    """Return a data set whose classes are in the order of some names.

    So each row of a trained head stays that of its class.

    Args:
        dataset: a `Dataset`.
        names: its classes, in another order.
        what: begins the message of an error.

    Raises:
        ValueError: when it has other classes.
    """
    missing = [x for x in names if x not in dataset.class_names]
    new = [x for x in dataset.class_names if x not in names]
    if missing or new:
        kinds = {"missing": missing, "new": new}
        listed = " and ".join(
            f"{', '.join(map(repr, x))} {'is' if len(x) == 1 else 'are'} {kind}"
            for kind, x in kinds.items()
            if x
        )
        what = f"{what} " if what else ""
        raise ValueError(
            f"{what}A run keeps its classes, as each has a row of the trained "
            f"head: {listed}. Rename them back, or begin a new run, which may "
            "start from the weights of this one with --model.weights."
        )
    place = np.array([names.index(x) for x in dataset.class_names])
    if (place == np.arange(len(place))).all():
        return dataset
    parts: dict[str, Any] = {}
    for part in PARTS:
        examples = getattr(dataset, part)
        if examples is not None:
            labels = examples.labels
            moved = (
                place[labels].astype(labels.dtype)
                if labels.ndim == 1
                else labels[:, np.argsort(place)]
            )
            parts[part] = dataclasses.replace(examples, labels=moved)
    return dataclasses.replace(dataset, class_names=tuple(names), **parts)


def overview(
    dataset: Dataset,
    images: Sequence[Image] | None,
    *,
    unlabelled: bool = False,
) -> str:
    """Return a table of the images of each class and part, and remarks.

    Args:
        dataset: a `Dataset`.
        images: of `list_images`; without it no contents are compared.
        unlabelled: whether classes are not read, where there are any.

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
    # All of one class, which has no name.
    unlabelled = unlabelled or tuple(dataset.class_names) == ("",)
    names = () if unlabelled else dataset.class_names
    task = dataset.task if names else "none, without labels"
    lines = [f"Data: {dataset.name or 'unnamed'}", f"Task: {task}", ""]
    if dataset.task == "regression" and names:
        counts = {}
        lines += _numbers(names, parts, sizes)
    else:
        lines += _table(names, counts, sizes)
    kinds = {
        "left out": _left_out(dataset),
        "note": list(dataset.notes),
        "look at": [
            *(_lacking(names, counts) if names else ()),
            *_called_as_parts(names),
            *_copies(images or (), with_classes=bool(names)),
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
    header = [f"{len(names):,} classes" if names else "", *counts]
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


def _copies(images: Sequence[Image], *, with_classes: bool) -> list[str]:
    """Count images of equal contents: of several parts, of several classes."""
    groups = collections.defaultdict(list)
    for image in images:
        if image.sha256:
            groups[image.sha256].append(image)
    several = [x for x in groups.values() if len(x) > 1]
    found = []
    kinds = {"part": "parts", **({"label": "classes"} if with_classes else {})}
    for field, where in kinds.items():
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
