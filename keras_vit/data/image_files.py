"""Finding images that cannot be read before a run starts."""

import csv
import dataclasses
import logging
import os
import pathlib
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from keras_vit.data.config import DataConfig
from keras_vit.data.dataset import Dataset
from keras_vit.data.decoding import is_readable
from keras_vit.data.examples import Examples
from keras_vit.data.tfds import complete

__all__ = [
    "SUFFIXES",
    "broken_images",
    "image_files",
    "open_csv",
    "open_folder",
    "without_broken_images",
]

LOGGER = logging.getLogger(__name__)
THREADS = 16
NAMED = 5  # Images that an error names.
# How the files of a kind begin, and how they end unless they are cut off.
ENDS = {
    b"\xff\xd8\xff": b"\xff\xd9",
    b"\x89PNG\r\n\x1a\n": b"IEND\xaeB`\x82",
    b"GIF8": b";",
}
LONGEST = 8


def broken_images(examples, check: str) -> np.ndarray:
    """Finds the images that cannot be decoded.

    A file that begins and ends as its kind does is taken to be whole; any
    other is decoded. That finds files of another kind, empty ones and those
    that are cut off, and reads 16 bytes of each.

    Args:
        examples: an `Examples`.
        check: "ends", "all" to decode every image, "none".

    Returns:
        int array of their numbers.
    """
    if check == "none" or examples.kind == "array" or examples.labels is None:
        return np.arange(0)
    from_path = examples.kind == "path"

    def is_broken(content) -> bool:
        looks_whole = check == "ends" and _has_ends(content, from_path)
        return not looks_whole and not is_readable(content, from_path)

    with ThreadPoolExecutor(THREADS) as pool:
        broken = list(pool.map(is_broken, examples.contents))
    return np.flatnonzero(broken)


def _has_ends(content, from_path: bool) -> bool:
    try:
        start, end = _file_ends(content) if from_path else _ends(content)
    except OSError:
        return False
    return any(
        start.startswith(first) and end.endswith(last)
        for first, last in ENDS.items()
    )


def _ends(data: bytes) -> tuple[bytes, bytes]:
    return data[:LONGEST], data[-LONGEST:]


def _file_ends(path: str) -> tuple[bytes, bytes]:
    with open(path, "rb") as file:
        start = file.read(LONGEST)
        file.seek(max(-LONGEST, -os.fstat(file.fileno()).st_size), os.SEEK_END)
        return start, file.read()


def without_broken_images(dataset: Dataset, check: str) -> Dataset:
    """Stops at images that cannot be read, or leaves them out.

    Args:
        dataset: a `Dataset` of `Examples`.
        check: see `broken_images`.

    Returns:
        The `Dataset` without them, whose `skipped` names them.

    Raises:
        ValueError: naming them, where `on_broken_image` is "stop".
    """
    parts, names, stops = {}, [], False
    for split in ("train", "validation", "test"):
        examples = getattr(dataset, split)
        if examples is None:
            continue
        broken = broken_images(examples, check)
        if not len(broken):
            continue
        names += [examples.name_of(example) for example in broken]
        stops = stops or examples.on_broken_image == "stop"
        kept = np.delete(np.arange(len(examples)), broken)
        parts[split] = examples.subset(kept)
    if names and stops:
        raise ValueError(
            f"{_shown_names(names)} cannot be read as images. Repair or remove "
            'them, or set data.on_broken_image to "skip".'
        )
    if names:
        LOGGER.warning(
            "%s cannot be read and are skipped.", _shown_names(names)
        )
    return dataclasses.replace(dataset, skipped=tuple(names), **parts)


def _shown_names(names: list[str]) -> str:
    named = ", ".join(map(repr, names[:NAMED]))
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return f"{len(names)} file(s): {named}{more}"


SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".gif")
# What a folder of a split may be called.
SPLITS = {
    "train": ("train", "training"),
    "validation": ("validation", "val", "valid"),
    "test": ("test", "testing"),
}


def open_folder(config: DataConfig) -> Dataset:
    """Opens root/{train,val,test}/class/* or root/class/*.

    Classes are the names of the folders in alphabetical order. Images are
    jpg, jpeg, png, bmp and gif files, in any case, in any depth below.

    Args:
        config: a `DataConfig` with a folder.

    Returns:
        A `Dataset`; what has no folder of its own is cut off the training
        images.

    Raises:
        ValueError: when there is no such folder, a class has no images, there
            is only one class, or a split has a class that training lacks.
    """
    root = pathlib.Path(config.folder or "").expanduser()
    if not root.is_dir():
        raise ValueError(f"There is no folder {str(root)!r} (folder=).")
    found = {split: _existing(root, names) for split, names in SPLITS.items()}
    train = found["train"] or root
    if found["train"] is None and any(found.values()):
        raise ValueError(
            f"{str(root)!r} has folders of splits but none named 'train'."
        )
    names = _classes(train)
    parts = [
        folder and _read(folder, names, config)
        for folder in (train, found["validation"], found["test"])
    ]
    parts = complete(parts, config)
    return Dataset(*parts, class_names=names, name=root.name)


def _existing(root: pathlib.Path, names) -> pathlib.Path | None:
    folders = {path.name.lower(): path for path in subfolders(root)}
    return next((folders[name] for name in names if name in folders), None)


def subfolders(folder: pathlib.Path) -> list[pathlib.Path]:
    """The folders in a folder, without hidden ones, sorted by name."""
    return sorted(
        path
        for path in folder.iterdir()
        if path.is_dir() and not path.name.startswith(".")
    )


def _classes(folder: pathlib.Path) -> tuple[str, ...]:
    names = tuple(path.name for path in subfolders(folder))
    if len(names) < 2:
        raise ValueError(
            f"A classifier needs at least two classes: {str(folder)!r} has "
            f"{len(names)} folder(s){_listed(names)}. Expected one folder a "
            "class."
        )
    return names


def _listed(names) -> str:
    return f" ({', '.join(map(repr, names))})" if names else ""


def _read(folder: pathlib.Path, names, config: DataConfig) -> Examples:
    unknown = {path.name for path in subfolders(folder)} - set(names)
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
