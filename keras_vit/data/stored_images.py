"""Images that are objects of a store, one file each, read as they are needed.

Nothing is kept on the disk. Their names are listed once, and they are taken to
be whole: to look at the ends of each would ask the store twice for every image.
"""

import dataclasses
import functools
import posixpath
from collections.abc import Mapping, Sequence

import numpy as np

from keras_vit.data.config import DataConfig
from keras_vit.data.dataset import Dataset, Examples, complete
from keras_vit.io.stores import Store, whole_address

__all__ = ["StoredImages", "check_listed", "open_stored_folder", "stored"]


@dataclasses.dataclass(frozen=True)
class StoredImages:
    """Images of a store by their addresses: see `keras_vit.data.records`.

    Args:
        files: the address of each image.
    """

    files: tuple[str, ...]
    groups = None

    @functools.cached_property
    def whole(self) -> np.ndarray:
        return np.ones(len(self.files), bool)

    def __len__(self) -> int:
        return len(self.files)

    def read(self, position: int) -> bytes:
        """Return the encoded image of a position, 0 to N - 1.

        Raises:
            ValueError: naming the image, when it is gone.
        """
        folder, name = posixpath.split(self.files[position])
        content = Store(folder).read(name)
        if content is None:
            raise ValueError(f"There is no image {self.files[position]}.")
        return content

    def name(self, position: int) -> str:
        return self.files[position]


def stored(files: Sequence[str], labels, source: str, config: DataConfig):
    """`Examples` of addresses of images."""
    return Examples(
        np.arange(len(files)),
        np.array(labels, np.int32),
        kind="record",
        source=source,
        records=StoredImages(tuple(files)),
        on_broken_image=config.on_broken_image,
    )


def check_listed(files: Sequence[str], where: str) -> None:
    """Raise a ValueError for the first image of a CSV file that is not there.

    Args:
        files: the addresses of the images of its lines.
        where: the address of the CSV file.
    """
    folders = {posixpath.dirname(file) for file in files}
    common = posixpath.commonpath(folders).replace(":/", "://", 1)
    there = Store(common).find()
    for line, file in enumerate(files, start=2):
        if file.removeprefix(f"{common}/") not in there:
            raise ValueError(
                f"Line {line} of {where!r}: there is no file {file!r}. Paths "
                "are relative to the CSV file."
            )


def open_stored_folder(
    config: DataConfig,
    splits: Mapping[str, Sequence[str]],
    suffixes: Sequence[str],
) -> Dataset:
    """Open root/{train,val,test}/class/* or root/class/* of a store.

    As `open_dataset` does with a folder of a disk.

    Args:
        config: whose folder is an address.
        splits: "train", "validation" and "test", each with what its folder
            may be called.
        suffixes: of files of images.

    Raises:
        ValueError: when nothing is there, there are no two classes, or a
            split has other classes than the training images.
        OSError: when the store cannot be used.
    """
    root = whole_address(config.folder or "")
    images = [
        tuple(name.split("/"))
        for name in sorted(Store(root).find())
        if name.lower().endswith(tuple(suffixes)) and _is_shown(name)
    ]
    tops = {path[0].lower(): path[0] for path in images}
    folders = [
        next((tops[name] for name in names if name in tops), None)
        for names in splits.values()
    ]
    if folders[0] is None:
        folders = [None, None, None]
        found = [images, [], []]
    else:
        found = [
            [path[1:] for path in images if path[0] == folder]
            for folder in folders
        ]
    names = tuple(sorted({path[0] for path in found[0] if len(path) > 1}))
    _check_classes(names, root)
    parts = [
        _part(posixpath.join(root, folder or ""), paths, names, config)
        for folder, paths in zip(folders, found, strict=True)
    ]
    return Dataset(
        *complete(parts, config),
        class_names=names,
        name=posixpath.basename(root),
    )


def _is_shown(name):
    return not any(part.startswith(".") for part in name.split("/"))


def _check_classes(names, root):
    if len(names) < 2:
        found = f" ({', '.join(map(repr, names))})" if names else ""
        raise ValueError(
            f"A classifier needs at least two classes: {root!r} has images in "
            f"{len(names)} folder(s){found}. Expected one folder per class, or "
            "such folders in 'train'."
        )


def _part(folder, paths, names, config) -> Examples | None:
    """Return the images of a split, those of no class left out."""
    paths = [path for path in paths if len(path) > 1]
    if not paths:
        return None
    number = {name: label for label, name in enumerate(names)}
    unknown = sorted({path[0] for path in paths} - number.keys())
    if unknown:
        raise ValueError(
            f"{folder!r} has classes that the training images lack: "
            f"{', '.join(map(repr, unknown))}."
        )
    files = [posixpath.join(folder, *path) for path in paths]
    return stored(files, [number[x[0]] for x in paths], folder, config)
