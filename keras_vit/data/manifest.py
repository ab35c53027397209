"""The list of the images of a run: what it was trained on, file by file.

It is written as images.csv.gz into the run folder before the first step: name,
size in bytes, sha256 of the contents, class and part of each image, in the
order in which they are numbered. A run that is resumed compares it.
"""

import collections
import csv
import dataclasses
import gzip
import io
import os
import pathlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from keras_vit.data.config import DataConfig
from keras_vit.data.content_hashes import content_hashes
from keras_vit.data.dataset import PARTS, Dataset, Examples, of_classes
from keras_vit.io.atomic_files import as_cell, of_cell, replacing
from keras_vit.io.stores import of_store

__all__ = [
    "MANIFEST",
    "Image",
    "changes",
    "list_images",
    "read_manifest",
    "with_classes",
    "write_manifest",
]

MANIFEST = "images.csv.gz"
COLUMNS = ("name", "size", "sha256", "label", "part")
NUM_NAMED = 3  # Images that a message names of each kind.
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
    try:
        with gzip.open(path, "rt", newline="", encoding="utf-8") as file:
            _, *rows = csv.reader(file)
        cells = [map(of_cell, row) for row in rows]
        return [Image(name, int(size), *rest) for name, size, *rest in cells]
    except (OSError, EOFError, ValueError, TypeError, csv.Error) as error:
        raise ValueError(
            f"{str(path)!r} is no list of images: {error}. Put the file back, "
            "or remove it to go on without a comparison."
        ) from None


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
