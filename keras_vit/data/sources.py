"""Opening data sets: by name, from a folder of classes, or from a CSV file."""

import dataclasses
import logging
import pathlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from keras_vit.checks import check_installed
from keras_vit.data.config import DataConfig
from keras_vit.data.csv_file import SPLITS, open_csv
from keras_vit.data.dataset import Dataset, Examples, complete
from keras_vit.data.digits import open_digits
from keras_vit.data.fractals import open_fractals
from keras_vit.data.hugging_face import open_hugging_face
from keras_vit.data.image_reader import is_readable
from keras_vit.data.pillow_reader import is_readable_by_pillow
from keras_vit.data.readers import (
    chosen_reader,
    data_packages,
    hide_accelerators,
)
from keras_vit.data.seeds import order
from keras_vit.data.shard_index import are_whole_ends, file_ends
from keras_vit.data.shards import open_shards
from keras_vit.data.stored_images import open_stored_folder
from keras_vit.data.tfds import open_tfds
from keras_vit.data.vtab import open_vtab
from keras_vit.files import printable
from keras_vit.stores import of_store

__all__ = [
    "SUFFIXES",
    "broken_images",
    "image_files",
    "open_dataset",
    "read_by",
    "without_broken_images",
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
THREADS = 16
NUM_NAMED = 5  # Broken images that a message names.
# What reads the images to whether it decodes one.
DECODES = {"tensorflow": is_readable, "pillow": is_readable_by_pillow}


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


def without_broken_images(dataset: Dataset, check: str) -> Dataset:
    """Raises an error for images that cannot be read, or leaves them out.

    Args:
        dataset: a `Dataset` of `Examples`.
        check: see `broken_images`.

    Returns:
        The `Dataset` without them, whose `skipped` names them.

    Raises:
        ValueError: naming them, where `on_broken_image` is "stop".
    """
    parts, names, stops = {}, [], False
    for split in PARTS:
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
    if names:
        message = f"{_listing(names)} cannot be read as images"
        if stops:
            raise ValueError(
                f"{message}. Repair or remove them, or set "
                'data.on_broken_image to "skip".'
            )
        LOGGER.warning("%s and are skipped.", message)
    return dataclasses.replace(dataset, skipped=tuple(names), **parts)


def _listing(names: Sequence[str]) -> str:
    named = ", ".join(map(repr, names[:NUM_NAMED]))
    more = len(names) - NUM_NAMED
    rest = f" and {more} more" if more > 0 else ""
    return f"{len(names)} file(s): {named}{rest}"


def broken_images(examples, check: str) -> np.ndarray:
    """Finds the images that cannot be decoded.

    A file that begins and ends as its kind does is taken to be whole; any
    other is decoded. That finds files of another kind, empty ones and those
    that are cut off, and reads 16 bytes of each.

    Args:
        examples: the `Examples` whose files are checked.
        check: "ends", "all" to decode every image, "none".

    Returns:
        int array of their numbers.
    """
    if check == "none" or examples.kind == "array" or examples.labels is None:
        return np.arange(0)
    if examples.kind == "record":
        return _broken_records(examples, check)
    from_path = examples.kind == "path"

    decodes = DECODES[examples.reader]

    def is_broken(content) -> bool:
        looks_whole = check == "ends" and _looks_whole(content, from_path)
        return not looks_whole and not decodes(content, from_path)

    with ThreadPoolExecutor(THREADS) as pool:
        broken = list(pool.map(is_broken, examples.contents))
    return np.flatnonzero(broken)


def _broken_records(examples, check: str) -> np.ndarray:
    """As `broken_images`, of what the indexes of shards say of the ends."""
    records, decodes = examples.records, DECODES[examples.reader]
    odd = (check == "all") | ~records.whole[examples.contents]
    suspects = np.flatnonzero(odd)

    def is_broken(example) -> bool:
        return not decodes(records.read(examples.contents[example]), False)

    with ThreadPoolExecutor(THREADS) as pool:
        broken = list(pool.map(is_broken, suspects))
    return suspects[np.array(broken, bool)]


def _looks_whole(content, from_path: bool) -> bool:
    if not from_path:
        return are_whole_ends(content, content)
    try:
        return are_whole_ends(*file_ends(content))
    except OSError:
        return False


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
    _say_what_is_left_out(root)
    return Dataset(*complete(parts, config), class_names=names, name=root.name)


def _say_what_is_left_out(root: pathlib.Path) -> None:
    left = sorted(
        str(path.relative_to(root))
        for path in root.rglob("*")
        if not path.name.startswith(".")
        and path.suffix.lower() not in SUFFIXES
        and path.is_file()
    )
    if left:
        LOGGER.warning(
            "%s in %r are left out: images are %s.",
            _listing(left),
            str(root),
            ", ".join(SUFFIXES),
        )


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
