"""Opening data sets: by name, from a folder of classes, or from a CSV file."""

import csv
import dataclasses
import logging
import os
import pathlib

import numpy as np

from keras_vit.checks import check_installed
from keras_vit.data.broken_images import (
    NUM_NAMED,
    listing,
    without_broken_images,
)
from keras_vit.data.config import DataConfig
from keras_vit.data.dataset import Dataset, Examples, complete
from keras_vit.data.digits import open_digits
from keras_vit.data.fractals import open_fractals
from keras_vit.data.hugging_face import open_hugging_face
from keras_vit.data.readers import (
    chosen_reader,
    data_packages,
    hide_accelerators,
)
from keras_vit.data.seeds import order
from keras_vit.data.shards import open_shards
from keras_vit.data.tfds import open_tfds
from keras_vit.data.vtab import open_vtab
from keras_vit.files import printable

__all__ = [
    "SUFFIXES",
    "image_files",
    "open_dataset",
    "other_files",
    "read_by",
]

LOGGER = logging.getLogger(__name__)
PARTS = ("train", "validation", "test")
# Names that tensorflow-datasets does not have, up to the first slash.
OWN_NAMES = {
    "digits": open_digits,
    "fractals": open_fractals,
    "hf:": open_hugging_face,
    "vtab": open_vtab,
}
SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff")
# What the folder of a split may be called, and the split in a CSV file.
SPLITS = {
    "train": ("train", "training"),
    "validation": ("validation", "val", "valid"),
    "test": ("test", "testing"),
}
# ImageNet-21k has 21,843. A class takes memory in the last layer, used or not.
MAX_CLASSES = 1_000_000
LONGEST_LABEL = 20  # digits, of which some may be zeros in front


def open_dataset(config: DataConfig) -> Dataset:
    """Opens the images and labels that a config names.

    Args:
        config: where they are, and which of them are for what.

    Returns:
        A `Dataset` whose parts are `Examples`, or None where there are none.
        Large splits by name are read from their files as they are needed.

    Raises:
        ValueError: when data is missing, empty, of one class, or broken; see
            `DataConfig`.

    Example:
        >>> digits = open_dataset(DataConfig(name="digits"))
        >>> len(digits.train), len(digits.validation), len(digits.test)
        (1258, 180, 359)
    """
    what = f"The data set {config.name!r}" if config.name else "This reader"
    check_installed(what, *data_packages(config))
    reader = chosen_reader(config.reader)
    hide_accelerators(reader)
    if config.folder:
        dataset = _open_folder(config)
    elif config.csv:
        dataset = _open_csv(config)
    elif config.shards:
        dataset = open_shards(config)
    else:
        base = (config.name or "").split("/")[0]
        dataset = OWN_NAMES.get(base, open_tfds)(config)
    _check_names(dataset)
    _check_classes(dataset)
    dataset = read_by(reader, dataset)
    dataset = without_broken_images(dataset, config.check_images)
    return _limited(dataset, config)


def read_by(reader: str, dataset: Dataset) -> Dataset:
    """Lets all parts be read by a reader.

    Raises:
        ValueError: for the test images of VTAB, which TensorFlow alone reads.
    """
    parts = {}
    for split in PARTS:
        examples = getattr(dataset, split)
        if isinstance(examples, Examples):
            parts[split] = dataclasses.replace(examples, reader=reader)
        elif examples is not None and reader != examples.reader:
            raise ValueError(
                f"{examples.source} is read from its files by TensorFlow. "
                f"Received: data.reader={reader!r}. Set it to tensorflow."
            )
    return dataclasses.replace(dataset, **parts)


def _check_names(dataset: Dataset) -> None:
    """Raises a ValueError for paths that TensorFlow cannot open."""
    for part in (dataset.train, dataset.validation, dataset.test):
        if getattr(part, "kind", None) != "path" or part.labels is None:
            continue
        odd = [x for x in part.contents if not _is_utf8(x)]
        if odd:
            raise ValueError(
                f"{len(odd)} file(s) have names that are no UTF-8: "
                f"{', '.join(map(printable, odd[:NUM_NAMED]))}. Rename them, "
                "or their folders."
            )


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _check_classes(dataset: Dataset) -> None:
    labels = dataset.train.labels
    if labels is None or labels.ndim == 2:
        return
    found = np.unique(labels)
    if len(found) < 2:
        raise ValueError(
            "A classifier needs at least two classes: all "
            f"{len(labels)} training images of {dataset.name!r} are "
            f"{dataset.class_names[found[0]]!r}."
        )


def _limited(dataset: Dataset, config: DataConfig) -> Dataset:
    """Keeps max_examples of each part, chosen at random."""
    limit = config.max_examples
    parts = {}
    for split in PARTS:
        examples = getattr(dataset, split)
        if limit is not None and examples is not None and len(examples) > limit:
            kept = order(config.split_seed, 0, len(examples))[:limit]
            parts[split] = examples.subset(np.sort(kept))
    return dataclasses.replace(dataset, **parts)


def _open_folder(config: DataConfig) -> Dataset:
    """Opens root/{train,val,test}/class/* or root/class/*.

    Classes are the names of the folders in alphabetical order. Images may be
    in any depth below. What has no folder of its own is cut off the training
    images.
    """
    root = pathlib.Path(config.folder or "").expanduser()
    if not root.is_dir():
        raise ValueError(f"There is no folder {str(root)!r} (folder=).")
    folders = {path.name.lower(): path for path in _subfolders(root)}
    train, validation, test = (
        next((folders[name] for name in names if name in folders), None)
        for names in SPLITS.values()
    )
    if train is None and (validation or test):
        raise ValueError(
            f"{str(root)!r} has folders of splits but none named 'train'."
        )
    names = _folder_classes(train or root)
    parts = [
        folder and _read_folder(folder, names, config)
        for folder in (train or root, validation, test)
    ]
    left = other_files(root)
    return Dataset(
        *complete(parts, config),
        class_names=names,
        name=root.name,
        other_files=left,
    )


def other_files(root: pathlib.Path) -> tuple[str, ...]:
    """Names and logs the files below a folder that are taken for no images."""
    left = sorted(
        str(path)
        for path in root.rglob("*")
        if not path.name.startswith(".")
        and path.suffix.lower() not in SUFFIXES
        and path.is_file()
    )
    if left:
        LOGGER.warning(
            "%s in %r are left out: images are %s.",
            listing([os.path.relpath(x, root) for x in left]),
            str(root),
            ", ".join(SUFFIXES),
        )
    return tuple(left)


def _subfolders(folder: pathlib.Path) -> list[pathlib.Path]:
    """The folders in a folder, without hidden ones, sorted by name."""
    return sorted(
        path
        for path in folder.iterdir()
        if path.is_dir() and not path.name.startswith(".")
    )


def _folder_classes(folder: pathlib.Path) -> tuple[str, ...]:
    names = tuple(path.name for path in _subfolders(folder))
    if len(names) < 2:
        found = f" ({', '.join(map(repr, names))})" if names else ""
        raise ValueError(
            f"A classifier needs at least two classes: {str(folder)!r} has "
            f"{len(names)} folder(s){found}. Expected one folder per class."
        )
    return names


def _read_folder(folder: pathlib.Path, names, config: DataConfig) -> Examples:
    unknown = {path.name for path in _subfolders(folder)} - set(names)
    if unknown:
        raise ValueError(
            f"{str(folder)!r} has classes that the training images lack: "
            f"{', '.join(map(repr, sorted(unknown)))}."
        )
    paths = {name: image_files(folder / name) for name in names}
    empty = [name for name, images in paths.items() if not images]
    if empty:
        raise ValueError(
            f"No images ({', '.join(SUFFIXES)}) in the folder(s) of "
            f"{', '.join(map(repr, empty))} in {str(folder)!r}. Remove the "
            "folders, or put images into them."
        )
    labels = [[label] * len(paths[name]) for label, name in enumerate(names)]
    return Examples(
        np.array(sum(paths.values(), []), object),
        np.array(sum(labels, []), np.int32),
        kind="path",
        source=str(folder),
        on_broken_image=config.on_broken_image,
    )


def image_files(folder: pathlib.Path) -> list[str]:
    """Paths of the images anywhere below a folder, sorted."""
    if not folder.is_dir():
        return []
    return sorted(
        str(path)
        for path in folder.rglob("*")
        if path.suffix.lower() in SUFFIXES and not path.name.startswith(".")
    )


def _open_csv(config: DataConfig) -> Dataset:
    """Opens a CSV file of paths and labels, with a line of column names.

    Paths are relative to the file. Labels are names of classes, or whole
    numbers from 0, which then are the classes. A column "split" of train,
    validation or test says what a line is for; what has no lines is cut off
    the training images.
    """
    path = pathlib.Path(config.csv or "").expanduser()
    rows = _csv_rows(path, config)
    names, labels = _csv_labels(rows, config, path)
    examples = Examples(
        np.array(_csv_images(rows, config, path), object),
        labels,
        kind="path",
        source=str(path),
        on_broken_image=config.on_broken_image,
    )
    splits = np.array([_csv_split(row, path) for row in rows])
    parts = [
        examples.subset(np.flatnonzero(splits == split))
        if (splits == split).any()
        else None
        for split in SPLITS
    ]
    if parts[0] is None:
        raise ValueError(f"{str(path)!r} has no lines of the split 'train'.")
    return Dataset(*complete(parts, config), class_names=names, name=path.stem)


def _csv_rows(path: pathlib.Path, config: DataConfig) -> list[dict]:
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


def _csv_labels(rows, config: DataConfig, path: pathlib.Path):
    """Names of the classes, and the class of each row."""
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
    if len(set(values)) < 2:
        raise ValueError(
            "A classifier needs at least two classes: every label of "
            f"{str(path)!r} is {values[0]!r}."
        )
    if all(value.isdecimal() for value in values):
        _check_largest(values, path)
        labels = np.array([int(value) for value in values], np.int32)
        _say_what_is_empty(labels, path)
        return tuple(map(str, range(labels.max() + 1))), labels
    names = tuple(sorted(set(values)))
    number = {name: label for label, name in enumerate(names)}
    return names, np.array([number[value] for value in values], np.int32)


def _say_what_is_empty(labels, path):
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
    """Raises a ValueError for numbers that are no classes, as keys of rows."""
    # By their lengths first: Python reads no number of thousands of digits.
    largest = max(values, key=lambda x: (len(x.lstrip("0")), x.lstrip("0")))
    if len(largest) > LONGEST_LABEL or int(largest) >= MAX_CLASSES:
        raise ValueError(
            f"{str(path)!r} has the label {largest!r} in line "
            f"{values.index(largest) + 2}: numbers of classes count from 0, "
            f"and there are {MAX_CLASSES:,} at most. Give names in their place."
        )


def _csv_images(rows, config: DataConfig, path: pathlib.Path) -> list[str]:
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


def _csv_split(row: dict, path: pathlib.Path) -> str:
    value = (row.get("split") or "train").strip().lower()
    for split, names in SPLITS.items():
        if value in names:
            return split
    raise ValueError(
        f"{str(path)!r} has an unknown split {value!r}; expected 'train', "
        "'validation' or 'test'."
    )
