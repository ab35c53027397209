"""Images in folders of classes."""

import pathlib

import numpy as np

from keras_vit.data.config import DataConfig
from keras_vit.data.dataset import Dataset
from keras_vit.data.examples import Examples
from keras_vit.data.tfds_source import complete

__all__ = ["SUFFIXES", "image_files", "open_folder"]

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
