"""Opening data sets: by name, from a folder of classes, or from a CSV file."""

import dataclasses
import logging
import os
import pathlib

import numpy as np

from keras_vit.data.broken_images import (
    NUM_NAMED,
    listing,
    without_broken_images,
)
from keras_vit.data.config import DataConfig
from keras_vit.data.csv_file import SPLITS, open_csv
from keras_vit.data.dataset import (
    NO_SOURCES,
    PARTS,
    Dataset,
    Examples,
    Sources,
    complete,
)
from keras_vit.data.digits import open_digits
from keras_vit.data.readers import (
    chosen_reader,
    data_packages,
    hide_accelerators,
)
from keras_vit.data.seeds import order
from keras_vit.data.shards import open_hugging_face, open_shards
from keras_vit.data.stored_images import open_stored_folder
from keras_vit.data.tfds import open_tfds
from keras_vit.io.atomic_files import printable
from keras_vit.io.checks import check_installed
from keras_vit.io.stores import of_store

__all__ = [
    "SUFFIXES",
    "image_files",
    "open_dataset",
    "other_files",
    "read_by",
]

LOGGER = logging.getLogger(__name__)
# Names that tensorflow-datasets does not have, up to the first slash.
OWN_NAMES = {
    "digits": open_digits,
    "hf:": open_hugging_face,
}
SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff")


def open_dataset(config: DataConfig, sources: Sources = NO_SOURCES) -> Dataset:
    """Open the images and labels that a config names.

    Args:
        config: where they are, and which of them are for what.
        sources: names of data sets of your own, up to the first slash, to
            functions of the config that open them.

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
    check_installed(what, *data_packages(config, sources))
    reader = chosen_reader(config.reader)
    hide_accelerators(reader)
    if config.folder and of_store(config.folder):
        dataset = open_stored_folder(config, SPLITS, SUFFIXES)
    elif config.folder:
        dataset = _open_folder(config)
    elif config.csv:
        dataset = open_csv(config)
    elif config.shards:
        dataset = open_shards(config)
    else:
        base = (config.name or "").split("/")[0]
        dataset = {**OWN_NAMES, **sources}.get(base, open_tfds)(config)
    _check_names(dataset)
    _check_classes(dataset)
    dataset = read_by(reader, dataset)
    dataset = without_broken_images(dataset, config.check_images)
    return _limited(dataset, config)


def read_by(reader: str, dataset: Dataset) -> Dataset:
    """Let all parts be read by a reader.

    Raises:
        ValueError: for images that TensorFlow alone reads.
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
    """Raise a ValueError for paths that TensorFlow cannot open."""
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
    """Keep max_examples of each part, chosen at random."""
    limit = config.max_examples
    parts = {}
    for split in PARTS:
        examples = getattr(dataset, split)
        if limit is not None and examples is not None and len(examples) > limit:
            kept = order(config.split_seed, 0, len(examples))[:limit]
            parts[split] = examples.subset(np.sort(kept))
    return dataclasses.replace(dataset, **parts)


def _open_folder(config: DataConfig) -> Dataset:
    """Open root/{train,val,test}/class/* or root/class/*.

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
        *complete(parts, config, config.split_by, names),
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
    """Return the folders in a folder, without hidden ones, sorted by name."""
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
    """Return the paths of the images anywhere below a folder, sorted."""
    if not folder.is_dir():
        return []
    return sorted(
        str(path)
        for path in folder.rglob("*")
        if path.suffix.lower() in SUFFIXES and not path.name.startswith(".")
    )
