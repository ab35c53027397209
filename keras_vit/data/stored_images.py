"""Images that are objects of a store, one file each, read as they are needed.

Nothing is kept on the disk. Their names are listed once, and they are taken to
be whole: to look at the ends of each would ask the store twice for every image.
"""

import dataclasses
import functools
import posixpath
from collections.abc import Sequence

import numpy as np

from keras_vit.data.config import DataConfig
from keras_vit.data.dataset import Dataset, Examples, complete
from keras_vit.data.image_folders import SUFFIXES, arranged, is_hidden
from keras_vit.io.stores import Store, whole_address

__all__ = ["StoredImages", "files_there", "open_stored_folder", "stored"]


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
        np.asarray(labels),
        kind="record",
        source=source,
        records=StoredImages(tuple(files)),
        on_broken_image=config.on_broken_image,
    )


def files_there(files: Sequence[str]) -> list[bool]:
    """Return which addresses have an object."""
    folders = {posixpath.dirname(file) for file in files}
    common = posixpath.commonpath(folders).replace(":/", "://", 1)
    there = Store(common).find()
    return [file.removeprefix(f"{common}/") in there for file in files]


def open_stored_folder(
    config: DataConfig, *, to_evaluate: bool = False
) -> Dataset:
    """Open root/{train,val,test}/class/* or root/class/* of a store.

    As `open_dataset` does with a folder of a disk.

    Args:
        config: whose folder is an address.
        to_evaluate: see `arranged`.

    Raises:
        ValueError: as `arranged`.
        OSError: when the store cannot be used.
    """
    root = whole_address(config.folder or "")
    images = [
        tuple(name.split("/"))
        for name in sorted(Store(root).find())
        if name.lower().endswith(SUFFIXES)
        and not any(map(is_hidden, name.split("/")))
    ]
    found = arranged(images, root, config.layout, to_evaluate=to_evaluate)
    parts = [
        files
        and stored(
            [posixpath.join(root, *path) for path, _ in files],
            np.array([label for _, label in files], np.int32),
            posixpath.join(root, folder),
            config,
        )
        for folder, files in found.parts.values()
    ]
    return Dataset(
        *complete(parts, config),
        class_names=found.class_names,
        name=posixpath.basename(root),
        notes=found.notes,
    )
