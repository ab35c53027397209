"""Images listed in a CSV file."""

import csv
import pathlib

import numpy as np

from keras_vit.data.config import DataConfig
from keras_vit.data.dataset import Dataset
from keras_vit.data.examples import Examples
from keras_vit.data.folders import SPLITS
from keras_vit.data.tfds_source import complete

__all__ = ["open_csv"]


def open_csv(config: DataConfig) -> Dataset:
    """Opens a CSV file of paths and labels, with a line of column names.

    Paths are relative to the file. Labels are names of classes, or whole
    numbers from 0, which then are the classes. A column "split" of train,
    validation or test says what a line is for.

    Args:
        config: a `DataConfig` with csv; image_key and label_key name the
            columns.

    Returns:
        A `Dataset`; what the file has no lines for is cut off the training
        images.

    Raises:
        ValueError: for a missing file, column or image, an empty label, or
            fewer than two classes.
    """
    path = pathlib.Path(config.csv or "").expanduser()
    rows = _rows(path, config)
    names, labels = _labels(rows, config, path)
    images = _paths(rows, config, path)
    examples = Examples(
        np.array(images, object),
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
    if parts[0] is None:
        raise ValueError(f"{str(path)!r} has no lines of the split 'train'.")
    return Dataset(*complete(parts, config), class_names=names, name=path.stem)


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


def _labels(
    rows, config: DataConfig, path
) -> tuple[tuple[str, ...], np.ndarray]:
    values = [(row[config.label_key] or "").strip() for row in rows]
    if "" in values:
        raise ValueError(
            f"{str(path)!r} has no label in line {values.index('') + 2}."
        )
    negative = [value for value in values if _is_negative(value)]
    if negative:
        raise ValueError(
            f"{str(path)!r} has the label {negative[0]!r} in line "
            f"{values.index(negative[0]) + 2}: numbers of classes start at 0."
        )
    if all(value.isdecimal() for value in values):
        labels = np.array([int(value) for value in values], np.int32)
        names = tuple(map(str, range(labels.max() + 1)))
    else:
        names = tuple(sorted(set(values)))
        number = {name: label for label, name in enumerate(names)}
        labels = np.array([number[value] for value in values], np.int32)
    if len(set(values)) < 2:
        raise ValueError(
            "A classifier needs at least two classes: every label of "
            f"{str(path)!r} is {values[0]!r}."
        )
    return names, labels


def _is_negative(value: str) -> bool:
    return value.startswith("-") and value[1:].isdecimal()


def _paths(rows, config: DataConfig, path: pathlib.Path) -> list[str]:
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


def _split(row: dict, path: pathlib.Path) -> str:
    value = (row.get("split") or "train").strip().lower()
    for split, names in SPLITS.items():
        if value in names:
            return split
    raise ValueError(
        f"{str(path)!r} has an unknown split {value!r}; expected 'train', "
        "'validation' or 'test'."
    )
