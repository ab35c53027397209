"""Images in folders: root/{train,val,test}/class/*, or root/class/*.

Where no labels are wanted, in any folder: of all images of a part one class
without a name.

What is hidden is left out at any depth: names that begin with a dot, as
`.ipynb_checkpoints` and `._photo.jpg`, and `__MACOSX`. On a disk links are
followed.

Images of a store are objects, one file each, read as they are needed: nothing
is kept on the disk. Their names are listed once, and they are taken to be
whole: to look at the ends of each would take two requests for every image.
"""

import dataclasses
import difflib
import functools
import logging
import os
import pathlib
import posixpath
import unicodedata
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from keras_vit.data.config import DataConfig
from keras_vit.data.dataset import SPLITS, Dataset, Examples, complete, listing
from keras_vit.io.stores import Store, whole_address

__all__ = [
    "Arranged",
    "SUFFIXES",
    "StoredImages",
    "arranged",
    "files_there",
    "image_files",
    "is_hidden",
    "open_folder",
    "open_stored_folder",
    "other_files",
    "stored",
]

LOGGER = logging.getLogger(__name__)
SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff")
MACOSX = "__MACOSX"  # what archives made by a Macintosh have beside the files
OF_MACINTOSH = (MACOSX, "._")  # no images of anyone, and no news
NUM_NAMED = 5  # folders that a message names
NO_NAME = ("",)  # the class of all images without labels
Names = tuple[str, ...]  # of the folders and the file on a path below the root


def open_folder(
    config: DataConfig,
    *,
    to_evaluate: bool = False,
    unlabelled: bool = False,
) -> Dataset:
    """Open root/{train,val,test}/class/* or root/class/*.

    Classes are the names of the folders in alphabetical order, the same in
    any form of Unicode. Images may be in any depth below. What has no folder
    of its own is cut off the training images.

    Args:
        config: whose folder is on a disk.
        to_evaluate: see `arranged`.
        unlabelled: see `arranged`.

    Raises:
        ValueError: as `arranged`, or when a linked folder is inside itself.
    """
    root = pathlib.Path(config.folder or "").expanduser()
    if not root.is_dir():
        raise ValueError(f"There is no folder {str(root)!r} (folder=).")
    below = _below(root)
    images = [path for path in below.files if _is_image(path[-1])]
    found = arranged(
        images,
        str(root),
        config.layout,
        below.folders,
        to_evaluate=to_evaluate,
        unlabelled=unlabelled,
    )
    parts = [
        files and _examples(root, folder, files, config)
        for folder, files in found.parts.values()
    ]
    hidden = sorted("/".join(path) for path in below.hidden)
    notes = [f"hidden, left out: {listing(hidden)}"] if hidden else []
    return Dataset(
        *complete(parts, config, config.split_by, found.class_names),
        class_names=found.class_names,
        name=root.name,
        other_files=_log_others(root, below.files),
        notes=(*found.notes, *notes),
    )


def _examples(root, folder, files, config: DataConfig) -> Examples:
    paths = [(label, str(root.joinpath(*path))) for path, label in files]
    paths.sort()
    return Examples(
        np.array([path for _, path in paths], object),
        np.array([label for label, _ in paths], np.int32),
        kind="path",
        source=str(root / folder),
        on_broken_image=config.on_broken_image,
    )


class Arranged(NamedTuple):
    """The images of a folder by their parts.

    Args:
        class_names: of all parts.
        parts: "train", "validation" and "test" to the name of its folder, ""
            for the root, and to (names on the path, label) of each image.
        notes: what is left out and why.
    """

    class_names: tuple[str, ...]
    parts: dict[str, tuple[str, list[tuple[Names, int]]]]
    notes: tuple[str, ...]


def arranged(
    images: Sequence[Names],
    root: str,
    layout: str,
    folders: Iterable[Names] = (),
    *,
    to_evaluate: bool = False,
    unlabelled: bool = False,
) -> Arranged:
    """Find the parts and the classes of the images below a root.

    Args:
        images: the names on the path of each, from the root on.
        root: for messages.
        layout: see `DataConfig`.
        folders: those below the root; of a store, which has none without
            files, those of the images.
        to_evaluate: whether there need be no training images, nor two
            classes.
        unlabelled: whether all images of a part are of one class, without a
            name, in whatever folders they are.

    Raises:
        ValueError: when there are no folders of two classes with images, it
            is open which folders are parts, or a part has a class that
            training lacks.

    Example:
        >>> pets = [("cat", "1.jpg"), ("cat", "2.jpg"), ("dog", "1.jpg")]
        >>> arranged(pets, "pets", "auto").class_names
        ('cat', 'dog')
    """
    of_images = {x[:depth] for x in images for depth in range(1, len(x))}
    known = {*folders, *of_images}
    tops = sorted(x[0] for x in known if len(x) == 1)
    deep = {x[0] for x in known if len(x) == 2}
    named = _part_folders(tops, root, layout, set(tops) - deep)
    if named and "train" not in named and not to_evaluate:
        raise ValueError(
            f"{root!r} has folders of parts ({_listed([*named.values()])}) but "
            "none named 'train'. Add it, or give --data.layout classes, if "
            "they are classes. To score a model on all images of such a "
            "folder: keras-vit evaluate MODEL FOLDER."
        )
    depth = int(bool(named))  # of the folders of classes
    asked = SPLITS if to_evaluate else ("train",)
    tell = {named[part] for part in asked if part in named}
    inside = [
        x for x in known if len(x) == depth + 1 and (not named or x[0] in tell)
    ]
    names = tuple(sorted({_class_of(x, depth) for x in inside}))
    if unlabelled:
        names = NO_NAME
    if to_evaluate and not names:
        raise ValueError(
            f"{root!r} has no folders of classes, whose names are the labels "
            "of the images. To classify images: keras-vit predict."
        )
    parts, notes = {}, []
    for part in SPLITS:
        folder = named.get(part, "")
        if not folder and (named or part != "train"):
            parts[part] = folder, []
            continue
        where = f"{root}/{folder}" if folder else root
        found = [x for x in images if not folder or x[0] == folder]
        if unlabelled:
            if part == "train":
                _check_images(found, where)
            parts[part] = folder, [(x, 0) for x in found]
            continue
        classed = [x for x in found if len(x) > depth + 1]
        if part == "train" and not to_evaluate:
            _check_classes(names, classed, depth, where)
        loose = [x for x in found if len(x) == depth + 1]
        if loose:
            notes.append(
                f"{len(loose):,} image(s) of {where!r} are left out: they are "
                f"in no folder of a class, as {loose[0][-1]!r}"
            )
        elif not found:
            notes.append(f"{where!r} has no images")
        parts[part] = folder, _labelled(classed, names, depth, where)
    beside = [x for x in tops if named and x not in named.values()]
    if beside:
        notes.append(
            f"left out beside {', '.join(map(repr, named.values()))}: the "
            f"folder(s) {_listed(beside)}"
        )
    return Arranged(names, parts, tuple(notes))


def _class_of(path: Names, depth: int) -> str:
    # A Macintosh writes an é as two letters where others write one.
    return unicodedata.normalize("NFC", path[depth])


def _labelled(paths, names, depth, where) -> list[tuple[Names, int]]:
    number = {name: label for label, name in enumerate(names)}
    unknown = sorted({_class_of(x, depth) for x in paths} - number.keys())
    if unknown:
        near = difflib.get_close_matches(unknown[0], names, n=1)
        hint = f" {unknown[0]!r} may be {near[0]!r}." if near else ""
        raise ValueError(
            f"{where!r} has classes that the training images lack: "
            f"{_listed(unknown)}.{hint} A model cannot learn them: rename the "
            "folders, give images of them to train on, or move them away."
        )
    return [(x, number[_class_of(x, depth)]) for x in paths]


def _part_folders(tops, root, layout, flat) -> dict[str, str]:
    """Find the folders that are parts; {} where all folders are classes.

    Args:
        tops: the names of the folders in the root.
        root: for messages.
        layout: see `DataConfig`.
        flat: those of them that have no folders inside.
    """
    if layout == "classes":
        return {}
    found = {
        part: [name for name in tops if name.lower() in known]
        for part, known in SPLITS.items()
    }
    found = {part: x for part, x in found.items() if x}
    others = [x for x in tops if not any(x in y for y in found.values())]
    as_classes = "--data.layout classes, if all of them are classes"
    for part, several in found.items():
        if len(several) > 1:
            raise ValueError(
                f"{root!r} has several folders of the {part} part: "
                f"{_listed(several)}. Put their images into one, move the "
                f"others away, or give {as_classes}."
            )
    parts = {part: x[0] for part, x in found.items()}
    if not parts and layout == "parts":
        raise ValueError(
            f"{root!r} has no folder of a part, as 'train' or 'val', but "
            f"{_listed(others)}. Leave --data.layout parts out."
        )
    if layout == "auto" and len(parts) == 1 and others:
        (name,) = parts.values()
        if parts.get("train") in flat:
            return {}  # It can be no part: there are no classes in it.
        raise ValueError(
            f"{root!r} has the folder {name!r}, as a part of data is called, "
            f"beside {_listed(others)}. Give {as_classes}, or --data.layout "
            f"parts, if {name!r} alone is one."
        )
    return parts


def _check_classes(names, paths, depth, where) -> None:
    if len(names) < 2:
        found = f" ({_listed(names)})" if names else ""
        raise ValueError(
            f"A classifier needs at least two classes: {where!r} has "
            f"{len(names)} folder(s){found}. Expected one folder per class, or "
            "such folders in 'train'. To learn without classes: keras-vit "
            "pretrain --method mae."
        )
    empty = sorted(set(names) - {_class_of(x, depth) for x in paths})
    if empty:
        raise ValueError(
            f"No images ({', '.join(SUFFIXES)}) in the folder(s) of "
            f"{_listed(empty)} in {where!r}. Remove the folders, or put images "
            "into them."
        )


def _check_images(found, where) -> None:
    if not found:
        raise ValueError(
            f"No images ({', '.join(SUFFIXES)}) in {where!r} and its folders. "
            "Put some into it, or give another --data.folder."
        )


def _listed(names) -> str:
    more = len(names) - NUM_NAMED
    rest = f" and {more} more" if more > 0 else ""
    return ", ".join(map(repr, names[:NUM_NAMED])) + rest


class Below(NamedTuple):
    """What is below a folder, as the names on the paths from there.

    Args:
        files: all that are not hidden.
        folders: those that are not hidden.
        hidden: hidden folders, and hidden files called as images, without
            those that a Macintosh makes.
    """

    files: list[Names]
    folders: list[Names]
    hidden: list[Names]


def _below(root: pathlib.Path) -> Below:
    found = Below([], [], [])
    if root.is_dir():
        _collect(str(root), (), {}, found)
    return found


def _collect(folder: str, names: Names, above: dict, found: Below) -> None:
    about = os.stat(folder)
    key = about.st_dev, about.st_ino
    if key in above:
        raise ValueError(
            f"{folder!r} is a link to {above[key]!r}, which it is in: its "
            "files have no end. Remove the link."
        )
    above = {**above, key: folder}
    with os.scandir(folder) as entries:
        for entry in entries:
            path = (*names, entry.name)
            if is_hidden(entry.name):
                is_image = entry.is_dir() or _is_image(entry.name)
                if is_image and not entry.name.startswith(OF_MACINTOSH):
                    found.hidden.append(path)
            elif entry.is_dir():
                found.folders.append(path)
                _collect(entry.path, path, above, found)
            else:
                found.files.append(path)


def is_hidden(name: str) -> bool:
    """Return whether a file or folder is none of the images of a user."""
    return name.startswith(".") or name == MACOSX


def _is_image(name: str) -> bool:
    return os.path.splitext(name)[1].lower() in SUFFIXES


def image_files(folder: pathlib.Path) -> list[str]:
    """Return the paths of the images anywhere below a folder, sorted.

    Links are followed, and what is hidden is left out.

    Raises:
        ValueError: when a linked folder is inside itself.
    """
    files = _below(folder).files
    return sorted(str(folder.joinpath(*x)) for x in files if _is_image(x[-1]))


def other_files(root: pathlib.Path) -> tuple[str, ...]:
    """Names and logs the files below a folder that are taken for no images."""
    return _log_others(root, _below(root).files)


def _log_others(root, files) -> tuple[str, ...]:
    others = (root.joinpath(*x) for x in files if not _is_image(x[-1]))
    left = sorted(str(path) for path in others if path.is_file())
    if left:
        LOGGER.warning(
            "%s in %r are left out: images are %s.",
            listing([os.path.relpath(x, root) for x in left]),
            str(root),
            ", ".join(SUFFIXES),
        )
    return tuple(left)


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
    config: DataConfig,
    *,
    to_evaluate: bool = False,
    unlabelled: bool = False,
) -> Dataset:
    """Open root/{train,val,test}/class/* or root/class/* of a store.

    As `open_dataset` does with a folder of a disk.

    Args:
        config: whose folder is an address.
        to_evaluate: see `arranged`.
        unlabelled: see `arranged`.

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
    found = arranged(
        images,
        root,
        config.layout,
        to_evaluate=to_evaluate,
        unlabelled=unlabelled,
    )
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
