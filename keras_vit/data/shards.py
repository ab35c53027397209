"""Opening shards by their names: tar and parquet files, also of the hub."""

import fnmatch
import functools
import glob
import itertools
import logging
import os
import pathlib
import posixpath
import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from keras_vit.data.config import DataConfig
from keras_vit.data.dataset import Dataset, Examples, complete
from keras_vit.data.parquet import RowGroups, parquet_index, schemas_of
from keras_vit.data.records import (
    ImageRanges,
    hub_files,
    index_folder,
    indexed,
    ranges_of,
    read_small,
)
from keras_vit.data.webdataset import tar_index
from keras_vit.io.checks import check_installed
from keras_vit.io.stores import Store, of_store, whole_address

__all__ = [
    "dataset_of",
    "open_hub_dataset",
    "open_shards",
    "shard_names",
]

LOGGER = logging.getLogger(__name__)
# A word of the path of a shard to the split that it belongs to.
SPLIT_WORDS = {
    "train": 0,
    "training": 0,
    "validation": 1,
    "valid": 1,
    "val": 1,
    "dev": 1,
    "test": 2,
    "testing": 2,
}
SPLITS = ("train", "validation", "test")
BRACES = re.compile(r"\{([^{}]*)\}")
NUMBERS = re.compile(r"(\d+)\.\.(\d+)")
OF_HOW_MANY = re.compile(r"(?P<start>.*\D)(?P<i>\d+)-of-(?P<count>\d+)\D*")
MAX_SHARDS = 1_000_000
# ImageNet-21k has 21,843. A class takes memory in the last layer, used or not.
MAX_CLASSES = 1_000_000
LONGEST_NUMBER = 20  # digits
NAME = re.compile(r"hf://datasets/(?P<repository>[^/@]+/[^/@]+)(@[^/]+)?(/.*)?")


class Labelled(NamedTuple):
    """Images of a split before their classes are known.

    Its records, their labels (numbers or text, one each), the names of the
    classes where the shards have them, and a folder for messages.
    """

    records: ImageRanges
    labels: np.ndarray
    class_names: tuple[str, ...] | None = None


def open_shards(config: DataConfig) -> Dataset:
    """Open the shards that `config.shards` names.

    Those whose path has the word train, validation or test in it are of that
    split, the others of the training images; a split without shards is cut
    off the training images.

    Raises:
        ValueError: naming the shard, when one is missing, damaged or unlike
            the others; and when there are none.
    """
    pattern = config.shards or ""
    files = shard_names(pattern)
    return dataset_of(files, config, name=_name_of(pattern))


def dataset_of(files: Sequence[str], config: DataConfig, name: str) -> Dataset:
    """Return the data set of some shards, all of one kind."""
    kinds = {os.path.splitext(file)[1] for file in files}
    if len(kinds) > 1:
        raise ValueError(
            f"Shards are all .tar or all .parquet. Received: {files[0]} and "
            f"{next(x for x in files if not x.endswith(min(kinds)))}."
        )
    read = KINDS[kinds.pop()]
    splits: list[list[str]] = [[], [], []]
    root = os.path.commonpath([os.path.dirname(file) for file in files])
    for file in files:
        splits[_split_of(file[len(root) :])].append(file)
    if not splits[0]:
        raise ValueError(
            f"No shard of {name} is for training: each has a word for "
            f"another split in its name, as {files[0]}."
        )
    found = [
        _with_labels(read(part, config)) if part else None for part in splits
    ]
    names, labels = _classes([x for x in found if x], _listed_names(files))
    numbers = iter(labels)
    parts = [
        part
        and Examples(
            np.arange(len(part.records)),
            next(numbers),
            kind="record",
            source=f"{name}:{split}",
            records=part.records,
            on_broken_image=config.on_broken_image,
        )
        for split, part in zip(SPLITS, found, strict=True)
    ]
    parts = [part or None for part in parts]
    return Dataset(*complete(parts, config), class_names=names, name=name)


def _with_labels(part: Labelled) -> Labelled | None:
    """None of a split all of whose labels stand for none, which is named."""
    if part.labels.dtype == object or part.labels.max() >= 0:
        return part
    LOGGER.warning(
        "%s has no labels and is left out.",
        os.path.dirname(part.records.files[0]),
    )
    return None


def shard_names(pattern: str) -> list[str]:
    """Return the shards of a folder, or of a pattern, sorted.

    Args:
        pattern: a folder, whose shards may be in any depth; or paths with
            braces, "train-{000..099}.tar" and "{train,val}-0.tar", each of
            which must be there; or with *, ? and [].

    Raises:
        ValueError: naming a shard that is missing; when there are none.

    Example:
        >>> shard_names("flowers/train-{000..003}.tar")[1]
        'flowers/train-001.tar'
    """
    pattern = os.path.expanduser(pattern)
    found = _in_store if of_store(pattern) else _on_disk
    files, missing = found(pattern)
    if missing:
        raise ValueError(
            f"There is no shard {missing[0]} ({len(missing)} of {len(files)} "
            f"are missing; data.shards={pattern!r})."
        )
    odd = [file for file in files if not file.endswith(tuple(KINDS))]
    if odd or not files:
        raise ValueError(
            f"data.shards={pattern!r} names "
            f"{odd[0] if odd else 'no shards'}. Expected {' or '.join(KINDS)} "
            "files."
        )
    _check_complete(files)
    return sorted(set(files))


def _on_disk(pattern: str) -> tuple[list[str], list[str]]:
    """List the files that a pattern names, and those that are missing."""
    if os.path.isdir(pattern):
        root = pathlib.Path(pattern)
        return [str(x) for end in KINDS for x in root.rglob(f"*{end}")], []
    files = [
        file
        for path in _without_braces(pattern)
        for file in (glob.glob(path) if glob.has_magic(path) else [path])
    ]
    return files, [file for file in files if not os.path.isfile(file)]


def _in_store(pattern: str) -> tuple[list[str], list[str]]:
    """As `_on_disk`, of the objects of a store."""
    address = whole_address(pattern)
    paths = _without_braces(address)
    if not glob.has_magic(address) and not paths[0].endswith(tuple(KINDS)):
        return _below(address), []
    files = [
        file
        for path in paths
        for file in (_matching(path) if glob.has_magic(path) else [path])
    ]
    there = {
        f"{folder}/{name}"
        for folder in {posixpath.dirname(file) for file in files}
        for name in Store(folder).find()
    }
    return files, [file for file in files if file not in there]


def _below(address):
    names = Store(address).find()
    return [f"{address}/{x}" for x in names if x.endswith(tuple(KINDS))]


def _matching(path):
    """Return the addresses that match, a name between slashes by a name."""
    parts = path.split("/")
    plain = next(i for i, part in enumerate(parts) if glob.has_magic(part))
    root, rest = "/".join(parts[:plain]), parts[plain:]
    return [
        f"{root}/{name}"
        for name in Store(root).find()
        if len(names := name.split("/")) == len(rest)
        and all(map(fnmatch.fnmatchcase, names, rest))
    ]


def _without_braces(pattern: str) -> list[str]:
    """Return the paths that a pattern stands for, as a shell expands braces."""
    pieces = BRACES.split(pattern)
    choices = [
        _choices(piece) if i % 2 else [piece] for i, piece in enumerate(pieces)
    ]
    if np.prod([len(x) for x in choices], dtype=float) > MAX_SHARDS:
        raise ValueError(
            f"data.shards={pattern!r} names more than {MAX_SHARDS:,} shards."
        )
    return ["".join(choice) for choice in itertools.product(*choices)]


def _choices(braces: str) -> list[str]:
    """Of the inside of a pair of braces: a,b,c or 000..099."""
    found = NUMBERS.fullmatch(braces)
    if not found:
        return braces.split(",")
    first, last = found.groups()
    if int(last) - int(first) >= MAX_SHARDS:
        raise ValueError(f"{{{braces}}} names more than {MAX_SHARDS:,} shards.")
    width = len(first)
    return [f"{i:0{width}d}" for i in range(int(first), int(last) + 1)]


def _check_complete(files: Sequence[str]) -> None:
    """Raise a ValueError where names as 00000-of-00005 are not all there."""
    numbers: dict[tuple[str, int], set[int]] = {}
    for file in files:
        if found := OF_HOW_MANY.fullmatch(file):
            key = (found["start"], int(found["count"]))
            numbers.setdefault(key, set()).add(int(found["i"]))
    for (start, count), known in numbers.items():
        missing = sorted({*range(min(count, MAX_SHARDS))} - known)
        if missing:
            raise ValueError(
                f"There is no shard {start}{missing[0]:05d}-of-{count:05d}: "
                f"{len(missing)} of {count} are missing."
            )


def _split_of(file: str) -> int:
    """Return the split of the last word in a path that is one of a split."""
    words = re.split(r"[^a-z]+", file.lower())
    found = [SPLIT_WORDS[word] for word in words if word in SPLIT_WORDS]
    return found[-1] if found else 0


def _name_of(pattern: str) -> str:
    """Return the part of a pattern that names the data set: its folder."""
    if of_store(pattern):
        inside = whole_address(pattern).rstrip("/")
        is_file = inside.endswith(tuple(KINDS)) or glob.has_magic(inside)
        folder = posixpath.dirname(inside) if is_file else inside
        return posixpath.basename(folder)
    path = pathlib.Path(os.path.expanduser(pattern))
    folder = path if path.is_dir() else path.parent
    return folder.resolve().name or "shards"


def _listed_names(files) -> tuple[str, ...] | None:
    """Class names in classnames.txt beside the shards or one folder above."""
    folder = os.path.dirname(files[0])
    for place in (folder, os.path.dirname(folder)):
        above = place.endswith(":")  # all buckets
        path = os.path.join(place, "classnames.txt")
        content = None if above else read_small(path)
        if content is not None:
            return tuple(content.decode().splitlines())
    return None


def _classes(parts: Sequence[Labelled], listed) -> tuple[tuple[str, ...], list]:
    """Name the classes, and number the class of each image of each part."""
    if not parts:
        raise ValueError("No image of the shards has a label, but -1.")
    known = parts[0].class_names or listed
    everything = np.concatenate([part.labels for part in parts])
    if everything.dtype != object:
        numbers = everything.astype(np.int64)
    elif _are_decimal(everything):
        _check_digits(everything)
        numbers = everything.astype(np.int64)
    else:
        known = tuple(sorted({*everything}))
        places = {name: i for i, name in enumerate(known)}
        numbers = np.array([places[x] for x in everything], np.int64)
    if numbers.min() < 0 or numbers.max() >= len(known or range(MAX_CLASSES)):
        raise ValueError(
            f"Labels are from {numbers.min()} to {numbers.max()}. Expected "
            f"0 to {len(known or range(MAX_CLASSES)) - 1}."
        )
    names = known or tuple(map(str, range(numbers.max() + 1)))
    ends = np.cumsum([len(part.labels) for part in parts])[:-1]
    return names, np.split(numbers.astype(np.int32), ends)


def _are_decimal(labels) -> bool:
    return all(x.isdecimal() for x in {*labels})


def _check_digits(labels) -> None:
    longest = max({*labels}, key=len)
    if len(longest) > LONGEST_NUMBER - 2:
        raise ValueError(
            f"The label {longest[:100]!r} is no number of a class."
        )


def _read_tars(files: Sequence[str], config: DataConfig) -> Labelled:
    def make(path):
        return tar_index(path, config.label_key)

    known = indexed(
        files,
        make,
        kept_as=("tar", config.label_key),
        folder=index_folder(config.index_dir),
    )
    are_numbers = [_are_decimal(x.labels) for x in known]
    if any(are_numbers) and not all(are_numbers):
        other = files[are_numbers.index(not are_numbers[0])]
        raise ValueError(
            f"The labels of {files[0]} and {other} differ in kind: numbers "
            "of classes in one, names in the other."
        )
    return Labelled(
        ranges_of(files, known), np.concatenate([x.labels for x in known])
    )


def _read_parquet(files: Sequence[str], config: DataConfig) -> Labelled:
    schema = schemas_of(files, config.image_key, config.label_key)
    known = indexed(
        files,
        lambda path: parquet_index(path, config.label_key),
        kept_as=("parquet", config.label_key),
        folder=index_folder(config.index_dir),
    )
    source = functools.partial(
        RowGroups, column=schema.image, window=config.shuffle_buffer
    )
    return Labelled(
        ranges_of(files, known, source),
        np.concatenate([x.labels for x in known]),
        schema.class_names,
    )


# The suffix of shards to what reads them.
KINDS: dict[str, Callable] = {".tar": _read_tars, ".parquet": _read_parquet}


def open_hub_dataset(config: DataConfig) -> Dataset:
    """Open hf://datasets/user/name[@revision][/folder].

    Images, or groups of rows, are requested over the network as they are
    needed, nothing is kept on the disk.

    Raises:
        ValueError: for another form of name, a repository or folder that is
            not there or has no shards, and what `open_shards` raises.
    """
    name = (config.name or "").rstrip("/")
    found = NAME.fullmatch(name)
    if not found:
        raise ValueError(
            "A data set of the hub is hf://datasets/user/name, and may have "
            f"@revision and a folder behind it. Received: name={name!r}."
        )
    check_installed(f"The data set {name!r}", "huggingface_hub", "pyarrow")
    listed = _listed(name)
    found_of = {end: [x for x in listed if x.endswith(end)] for end in KINDS}
    files = found_of[".parquet"] or found_of[".tar"]
    if not files:
        raise ValueError(
            f"{name} has no parquet or tar files. Give another @revision "
            "(refs%2Fconvert%2Fparquet has parquet files of most data sets) "
            "or folder, or download its images and set data.folder."
        )
    return dataset_of(files, config, name=found["repository"])


def _listed(name: str) -> list[str]:
    """Return the paths of all files below a name, sorted."""
    try:
        paths = hub_files().find(name, refresh=True)
    except Exception as error:  # httpx, requests and the hub have their own.
        text = str(error).strip() or type(error).__name__
        raise ValueError(
            f"{name} cannot be read: {text.splitlines()[0]} Of a private or "
            "gated data set, set HF_TOKEN."
        ) from error
    return sorted(f"hf://{path}" for path in paths)
