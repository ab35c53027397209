"""Shards of images beside their labels: tar and parquet files, also of the hub.

A sample of a tar file is the members of one name up to the first dot, one after
the other: https://github.com/webdataset/webdataset#the-webdataset-format.
Parquet files are as Hugging Face datasets has them. A group of rows is the
smallest part of one that can be read: it is read whole and kept until others
are needed.
"""

import collections
import contextlib
import dataclasses
import fnmatch
import functools
import glob
import io
import itertools
import json
import logging
import os
import pathlib
import posixpath
import re
import tarfile
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np

from keras_vit.data.config import DataConfig
from keras_vit.data.dataset import Dataset, Examples, complete
from keras_vit.data.records import (
    ImageRanges,
    ShardIndex,
    hub_files,
    index_folder,
    index_of_rows,
    indexed,
    looks_whole,
    open_shard,
    ranges_of,
    read_small,
    shard_size,
    texts,
)
from keras_vit.data.seeds import LANES
from keras_vit.io.checks import check_installed
from keras_vit.io.stores import Store, of_store, whole_address
from keras_vit.runtime.machine import shortage

__all__ = [
    "IMAGES",
    "RowGroups",
    "Schema",
    "dataset_of",
    "open_hub_dataset",
    "open_shards",
    "parquet_index",
    "schemas_of",
    "shard_names",
    "tar_index",
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
LARGEST_LABEL = 2**20  # bytes of a member with a label
END = 2 * tarfile.BLOCKSIZE  # zeros that a tar file ends with
# Extensions of members that are images.
IMAGES = ("jpg", "jpeg", "png", "bmp", "gif", "webp", "tif", "tiff")
BYTES_OF_A_ROW = 64  # in an index, while it is made
THREADS = 16  # that read what is at the end of each file


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


def tar_index(path: str, label_key: str) -> ShardIndex:
    """Find images and labels of a tar file, in the order of the file.

    The label of a sample is `label_key` of its JSON member, else the text of
    its member with the extension cls.

    Args:
        path: of the shard, which is not compressed.
        label_key: a key of JSON.

    Returns:
        A `ShardIndex` whose labels are text, one for each image.

    Raises:
        ValueError: naming the shard, when it is damaged, empty or compressed;
            and the sample, when it has no image or no label.
    """
    try:
        with (
            open_shard(path) as file,
            tarfile.open(fileobj=file, mode="r:") as tar,
        ):
            rows = [
                _row(tar, sample, f"{path}: {key}", label_key)
                for key, sample in itertools.groupby(_members(tar), _key)
            ]
    except (tarfile.TarError, EOFError, OSError, OverflowError) as error:
        raise ValueError(
            f"The shard {path} of {shard_size(path):,} bytes is cut off, "
            f"damaged or compressed, or no tar file: {error}."
        ) from error
    return index_of_rows(rows, path)


def _members(tar: tarfile.TarFile) -> Iterable[tarfile.TarInfo]:
    """Return the files that belong to samples, which hidden ones do not."""
    for member in tar:
        setattr(tar, "members", [])  # noqa: B010 (or it keeps all of them)
        name = member.name.rpartition("/")[2]
        if member.isreg() and "." in name.strip("."):
            if not name.startswith("."):
                yield member
    # Before the last sample is looked at, a part of which may be missing.
    _check_end(tar.fileobj, tar.offset)


def _check_end(file, end: int) -> None:
    """Refuse a tar file that does not end as one behind its last member.

    tarfile takes a file that is cut off between two members, or has a damaged
    header there, for one that ends.
    """
    file.seek(end)
    zeros, rest = 0, file.read(io.DEFAULT_BUFFER_SIZE)
    while rest:
        if rest.strip(b"\0"):
            raise tarfile.ReadError(
                f"what follows byte {end:,} is neither a member nor its end"
            )
        zeros += len(rest)
        rest = file.read(io.DEFAULT_BUFFER_SIZE)
    if zeros < END:
        raise tarfile.ReadError(
            f"{END:,} zeros are missing behind its last member, at byte {end:,}"
        )


def _key(member: tarfile.TarInfo) -> str:
    folder, slash, name = member.name.rpartition("/")
    return f"{folder}{slash}{name.partition('.')[0]}"


def _row(tar, sample, name: str, label_key: str) -> tuple:
    """Return the fields of a `ShardIndex` of a sample."""
    members = {
        member.name.rpartition("/")[2].partition(".")[2].lower(): member
        for member in sample
    }
    image = next((members[x] for x in IMAGES if x in members), None)
    if image is None:
        raise ValueError(
            f"The sample {name} has no image ({', '.join(IMAGES)}), only "
            f"{', '.join(members)}."
        )
    if image.issparse():
        raise ValueError(f"The image of the sample {name} is a sparse file.")
    label = _label(tar, members, name, label_key)
    whole = looks_whole(tar.fileobj, image.offset_data, image.size)
    return image.offset_data, image.size, [label], whole


def _label(tar, members, name, label_key):
    if "json" in members:
        try:
            found = json.loads(_content(tar, members["json"], name))
        except (ValueError, RecursionError) as error:
            raise ValueError(
                f"The JSON of the sample {name} cannot be read: "
                f"{str(error)[:300]}."
            ) from error
        if isinstance(found, dict) and label_key in found:
            return _text(found[label_key], name, label_key)
    if "cls" not in members:
        raise ValueError(
            f"The sample {name} has no label: neither .cls nor a key "
            f"{label_key!r} in .json. Received: {', '.join(members)}. Set "
            "data.label_key."
        )
    text = _content(tar, members["cls"], name)
    return text.decode("utf-8", "replace").strip()


def _content(tar, member, name) -> bytes:
    if member.size > LARGEST_LABEL:
        raise ValueError(
            f"The label of the sample {name} has {member.size:,} bytes, where "
            f"at most {LARGEST_LABEL:,} are read."
        )
    return tar.extractfile(member).read()


def _text(label, name, label_key) -> str:
    if not isinstance(label, str | int):
        raise ValueError(
            f"The label {label_key!r} of the sample {name} is "
            f"{str(label)[:100]!r}. Expected a number of a class or a text."
        )
    return str(label).encode("utf-8", "replace").decode()


@dataclasses.dataclass(frozen=True)
class Schema:
    """What the end of a file says of its images and labels.

    Args:
        image: the column that is read for an image, "image.bytes".
        label: type of the labels, as text.
        class_names: of the labels; None where they are not named.
    """

    image: str
    label: str
    class_names: tuple[str, ...] | None


def schemas_of(files, image_key: str, label_key: str) -> Schema:
    """Return the schema of some files.

    Raises:
        ValueError: naming the file, when it is missing or damaged, or has
            other columns than the first one.
    """
    check_installed("Reading parquet files", "pyarrow")
    with ThreadPoolExecutor(THREADS) as pool:
        found = list(
            pool.map(lambda file: _schema(file, image_key, label_key), files)
        )
    for file, schema in zip(files, found, strict=True):
        if schema != found[0]:
            raise ValueError(
                f"The shards {files[0]} and {file} have different schemas: "
                f"{_difference(found[0], schema)}."
            )
    return found[0]


def _difference(first: Schema, other: Schema) -> str:
    """Return the first field that differs, and its values cut short."""
    for field in dataclasses.fields(first):
        pair = [getattr(schema, field.name) for schema in (first, other)]
        if pair[0] != pair[1]:
            one, two = (str(value)[:100] for value in pair)
            return f"{field.name} {one} and {two}"
    return "nothing"


@contextlib.contextmanager
def _opened(path: str, **options: Any) -> Iterator[Any]:
    """Open a ParquetFile; errors of pyarrow are ValueErrors of the shard."""
    import pyarrow
    from pyarrow import parquet

    with open_shard(path, buffer_size=0) as file:
        try:
            yield parquet.ParquetFile(file, **options)
        except (pyarrow.ArrowException, OSError, OverflowError) as error:
            reason = (str(error).splitlines() or [""])[0]
            raise ValueError(
                f"The shard {path} is cut off, damaged or no parquet file: "
                f"{reason}"
            ) from error


def _schema(path: str, image_key: str, label_key: str) -> Schema:
    import pyarrow

    with _opened(path) as file:
        schema = file.schema_arrow
    for field, key in (("image_key", image_key), ("label_key", label_key)):
        if (count := schema.names.count(key)) > 1:
            raise ValueError(
                f"The shard {path} has {count} columns {field}={key!r}."
            )
        if not count:
            raise ValueError(
                f"The shard {path} has no column {field}={key!r}. Its columns "
                f"are {', '.join(map(repr, schema.names))}."
            )
    kind = schema.field(image_key).type
    is_struct = pyarrow.types.is_struct(kind)
    has_bytes = is_struct and kind.get_field_index("bytes") >= 0
    inside = kind.field("bytes").type if has_bytes else kind
    if inside not in (pyarrow.binary(), pyarrow.large_binary()):
        raise ValueError(
            f"The column {image_key!r} of the shard {path} has no encoded "
            f"images: it is {kind}. Expected bytes, or a struct with bytes."
        )
    label = schema.field(label_key).type
    if not (pyarrow.types.is_integer(label) or _is_text(label)):
        raise ValueError(
            f"The column {label_key!r} of the shard {path} is {label}. "
            "Expected integers or text."
        )
    names = _class_names(schema, label_key, path)
    column = f"{image_key}.bytes" if is_struct else image_key
    return Schema(column, str(label), names)


def _is_text(kind) -> bool:
    import pyarrow

    return kind in (pyarrow.string(), pyarrow.large_string())


def _class_names(schema, label_key: str, path) -> tuple[str, ...] | None:
    """Return those of a ClassLabel in what `datasets` notes in a file."""
    try:
        noted = json.loads(schema.metadata[b"huggingface"])
        names = noted["info"]["features"][label_key]["names"]
    except (KeyError, TypeError):
        return None
    except (ValueError, RecursionError) as error:
        raise ValueError(
            f"What `datasets` noted in the shard {path} is no JSON: "
            f"{str(error)[:200]}"
        ) from error
    are_texts = isinstance(names, list) and all(
        isinstance(x, str) for x in names
    )
    if names and not are_texts:
        raise ValueError(
            f"The class names in the shard {path} are no list of texts: "
            f"{str(names)[:100]}"
        )
    return tuple(names) if names else None


def parquet_index(path: str, label_key: str) -> ShardIndex:
    """Find rows and labels of a parquet file, reading no images.

    Args:
        path: of the file.
        label_key: the column of the labels.

    Returns:
        A `ShardIndex`: starts are the group of each row, sizes its place
        there.

    Raises:
        ValueError: naming the file, when it is damaged or empty, and the row
            that has no label.
    """
    with _opened(
        path, read_dictionary=[label_key], page_checksum_verification=True
    ) as file:
        groups = range(file.metadata.num_row_groups)
        rows = [file.metadata.row_group(i).num_rows for i in groups]
        _check_room(path, rows)
        labels = file.read(columns=[label_key]).column(0)
    if not len(labels):
        raise ValueError(f"The shard {path} has no images.")
    if labels.null_count:
        first = labels.is_null().to_pylist().index(True)
        raise ValueError(f"The row {path}[{first}] has no label.")
    return ShardIndex(
        np.repeat(groups, rows),
        np.concatenate([np.arange(size) for size in rows]),
        _labels(path, labels),
        np.ones(len(labels), np.int64),
        np.ones(len(labels), bool),  # Not looked at: that would read them.
    )


def _check_room(path, rows) -> None:
    """Refuse more rows than there is memory for what an index has of each."""
    if min(rows, default=0) < 0 or shortage(sum(rows) * BYTES_OF_A_ROW):
        raise ValueError(
            f"The shard {path} says that it has {sum(rows):,} rows, for whose "
            "labels there is no memory."
        )


def _labels(path, labels) -> np.ndarray:
    """Return int64, or `texts`, of a column."""
    import pyarrow

    if pyarrow.types.is_dictionary(labels.type):
        labels = labels.unify_dictionaries().combine_chunks()
        names = texts(labels.dictionary.to_pylist())
        return names[labels.indices.to_numpy()]
    if _is_text(labels.type):
        return texts(labels.to_pylist())
    try:
        return labels.cast(pyarrow.int64()).to_numpy()
    except pyarrow.ArrowInvalid as error:
        raise ValueError(
            f"The shard {path} has labels that are no numbers of classes: "
            f"they are {labels.type}, and some are above {2**63 - 1:,}."
        ) from error


@dataclasses.dataclass(frozen=True)
class RowGroups(ImageRanges):
    """Images in parquet files; starts are groups, sizes are rows of a group.

    Args:
        column: the column of the encoded images.
        window: int, images in memory; some more where groups begin and end.
    """

    column: str = "image.bytes"
    window: int = 50_000
    groups: np.ndarray = dataclasses.field(init=False)
    _firsts: np.ndarray = dataclasses.field(init=False)
    _kept: collections.OrderedDict = dataclasses.field(init=False)
    _lock: threading.Lock = dataclasses.field(init=False)

    def __post_init__(self):
        new = [0, *np.flatnonzero(np.diff(self._keys)) + 1]
        groups = np.zeros(len(self), np.int64)
        groups[new[1:]] = 1
        kept: collections.OrderedDict = collections.OrderedDict()
        for name, value in (
            ("groups", np.cumsum(groups)),
            ("_firsts", np.array(new)),
            ("_kept", kept),
            ("_lock", threading.Lock()),
        ):
            object.__setattr__(self, name, value)

    @property
    def _keys(self):
        """A number for each image, the same in a group of a file."""
        return self.shards * (int(self.starts.max()) + 1) + self.starts

    @property
    def max_groups(self) -> int:
        """How many groups are kept in memory."""
        each = len(self) / len(self._firsts)
        return int(self.window / each) + 2 * LANES

    def read(self, position: int) -> bytes:
        image = self._images(int(self.groups[position]))[
            int(self.sizes[position])
        ].as_py()
        if image is None:
            raise ValueError(f"The row {self.name(position)} has no image.")
        return image

    def _images(self, group: int):
        """Return the images of a group; threads that need it read it once."""
        with self._lock:
            found = self._kept.pop(group, None)
            future = found or Future()
            self._kept[group] = future
            while len(self._kept) > self.max_groups:
                self._kept.popitem(last=False)
        if found is None:
            try:
                future.set_result(self._read_group(group))
            except BaseException as error:
                with self._lock:  # To be tried again.
                    self._kept.pop(group, None)
                future.set_exception(error)
        return future.result()

    def _read_group(self, group: int):
        import pyarrow

        first = self._firsts[group]
        path = self.files[self.shards[first]]
        with _opened(path) as file:
            table = file.read_row_group(
                int(self.starts[first]), columns=[self.column]
            )
        column = table.column(0).combine_chunks()
        is_struct = pyarrow.types.is_struct(column.type)
        return column.field("bytes") if is_struct else column
