"""Images and labels that a CSV file lists, with a line of column names."""

import csv
import logging
import os
import pathlib
import posixpath

import numpy as np

from keras_vit.data.config import DataConfig
from keras_vit.data.dataset import SPLITS, Dataset, Examples, complete
from keras_vit.data.stored_images import check_listed, stored
from keras_vit.io.stores import of_store, on_disk, whole_address

__all__ = ["open_csv"]

LOGGER = logging.getLogger(__name__)
# ImageNet-21k has 21,843. A class takes memory in the last layer, used or not.
MAX_CLASSES = 1_000_000
LONGEST_LABEL = 20  # digits, of which some may be zeros in front
NUM_NAMED = 5  # Classes that a message names.


def open_csv(config: DataConfig, *, to_evaluate: bool = False) -> Dataset:
    """Open a CSV file of paths and labels, with a line of column names.

    Paths are relative to the file. Labels are names of classes, or whole
    numbers from 0, which then are the classes. A column "split" of train,
    validation or test says what a line is for; what has no lines is cut off
    the training images.
    """
    given = os.path.expanduser(config.csv or "")
    path = pathlib.Path(on_disk(given))
    rows = _rows(path, config)
    names, labels = _labels(rows, config, path, to_evaluate)
    if of_store(given):
        examples = _stored(rows, labels, whole_address(given), config)
    else:
        examples = Examples(
            np.array(_images(rows, config, path), object),
            labels,
            kind="path",
            source=str(path),
            on_broken_image=config.on_broken_image,
        )
    splits = np.array([_split(row, path) for row in rows])
    parts = [
        examples.subset(np.flatnonzero(splits == split))
        if (splits == split).any()
        else None
        for split in SPLITS
    ]
    if parts[0] is None and not to_evaluate:
        raise ValueError(f"{str(path)!r} has no lines of the split 'train'.")
    by = "position" if of_store(given) else config.split_by
    parts = complete(parts, config, by, names)
    return Dataset(*parts, class_names=names, name=path.stem)


def _rows(path: pathlib.Path, config: DataConfig) -> list[dict]:
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.DictReader(file, skipinitialspace=True)
            columns = reader.fieldnames or []
            rows = list(reader)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ValueError(
            f"{str(path)!r} cannot be read as a CSV file: {error}"
        ) from error
    for field in ("image_key", "label_key"):
        if getattr(config, field) not in columns:
            raise ValueError(
                f"{str(path)!r} has no column {field}="
                f"{getattr(config, field)!r}. Its first line names "
                f"{', '.join(map(repr, columns)) or 'nothing'}."
            )
    if not rows:
        raise ValueError(f"{str(path)!r} lists no images.")
    return rows


def _labels(rows, config: DataConfig, path: pathlib.Path, to_evaluate):
    """Return the names of the classes, and the class of each row."""
    values = [(row[config.label_key] or "").strip() for row in rows]
    if "" in values:
        raise ValueError(
            f"{str(path)!r} has no label in line {values.index('') + 2}."
        )
    for line, value in enumerate(values, start=2):
        if value.startswith("-") and value[1:].isdecimal():
            raise ValueError(
                f"{str(path)!r} has the label {value!r} in line {line}: "
                "numbers of classes start at 0."
            )
    if len(set(values)) < 2 and not to_evaluate:
        raise ValueError(
            "A classifier needs at least two classes: every label of "
            f"{str(path)!r} is {values[0]!r}."
        )
    if all(value.isdecimal() for value in values):
        _check_largest(values, path)
        labels = np.array([int(value) for value in values], np.int32)
        _log_empty_classes(labels, path)
        return tuple(map(str, range(labels.max() + 1))), labels
    names = tuple(sorted(set(values)))
    number = {name: label for label, name in enumerate(names)}
    return names, np.array([number[value] for value in values], np.int32)


def _log_empty_classes(labels, path):
    empty = np.setdiff1d(np.arange(labels.max()), labels)
    if len(empty):
        more = " ..." if len(empty) > NUM_NAMED else ""
        LOGGER.warning(
            "%r has no images of %d of %d classes: %s%s. Each takes a place in "
            "the last layer: give names in place of numbers to leave them out.",
            str(path),
            len(empty),
            labels.max() + 1,
            ", ".join(map(str, empty[:NUM_NAMED])),
            more,
        )


def _check_largest(values, path):
    """Raise a ValueError for numbers that are no classes, as keys of rows."""
    # By their lengths first: Python reads no number of thousands of digits.
    largest = max(values, key=lambda x: (len(x.lstrip("0")), x.lstrip("0")))
    if len(largest) > LONGEST_LABEL or int(largest) >= MAX_CLASSES:
        raise ValueError(
            f"{str(path)!r} has the label {largest!r} in line "
            f"{values.index(largest) + 2}: numbers of classes count from 0, "
            f"and there are {MAX_CLASSES:,} at most. Give names in their place."
        )


def _images(rows, config: DataConfig, path: pathlib.Path) -> list[str]:
    images = [
        path.parent / (row[config.image_key] or "").strip() for row in rows
    ]
    for line, image in enumerate(images, start=2):
        if not image.is_file():
            raise ValueError(
                f"Line {line} of {str(path)!r}: there is no file "
                f"{str(image)!r}. Paths are relative to the CSV file."
            )
    return [str(image) for image in images]


def _stored(rows, labels, address: str, config: DataConfig) -> Examples:
    folder = posixpath.dirname(address)
    files = [
        posixpath.normpath((row[config.image_key] or "").strip())
        for row in rows
    ]
    files = [f"{folder}/{file}" for file in files]
    check_listed(files, address)
    return stored(files, labels, address, config)


def _split(row: dict, path: pathlib.Path) -> str:
    value = (row.get("split") or "train").strip().lower()
    for split, names in SPLITS.items():
        if value in names:
            return split
    raise ValueError(
        f"{str(path)!r} has an unknown split {value!r}; expected 'train', "
        "'validation' or 'test'."
    )
