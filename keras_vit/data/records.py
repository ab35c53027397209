"""Encoded images in shards, each of which can be read by its position.

Here shards are opened, measured and read, wherever they are. An index says
where their images are, and their labels: it takes one pass over the headers
and labels of a shard, images are skipped, and it is kept in a file of its own,
so that processes that share the folder of the indexes divide the work.

A source of records has the methods of `ImageRanges`. Images and labels of any
source are `Examples` of the kind "record": their order, splits, shares and
resuming are those of images in memory and in folders, and a process reads no
images but those of its own rows.
"""

import dataclasses
import functools
import hashlib
import io
import json
import logging
import os
import pathlib
import posixpath
import random
import zipfile
from collections.abc import Callable, Sequence
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from keras_vit.io.atomic_files import replacing
from keras_vit.io.stores import Store, of_store, whole_address

__all__ = [
    "AHEAD",
    "ImageRanges",
    "ShardIndex",
    "are_whole_ends",
    "file_ends",
    "fingerprint",
    "hub_files",
    "index_folder",
    "index_of_rows",
    "indexed",
    "looks_whole",
    "open_shard",
    "ranges_of",
    "read_range",
    "read_small",
    "shard_size",
    "stored_at",
    "texts",
]

LOGGER = logging.getLogger(__name__)
FORMAT = 2  # Of the files; another number makes old ones unused.
# How the files of a kind begin, and how they end unless they are cut off.
ENDS = {
    b"\xff\xd8\xff": b"\xff\xd9",
    b"\x89PNG\r\n\x1a\n": b"IEND\xaeB`\x82",
    b"GIF8": b";",
}
LONGEST_END = 8
# Bytes that are read at a time where an index skips from header to header.
SMALL = 512
TEXTS = "texts"  # in the file of an index, whose labels are their numbers
HUB = "hf://"
AHEAD = 2**22  # bytes of a network, which responds after a while


def open_shard(path: str, buffer_size: int = SMALL) -> BinaryIO:
    """Open a shard for reading in any order.

    Args:
        path: of the shard.
        buffer_size: bytes that are read at a time; 0 for as many as are needed.

    Raises:
        ValueError: naming the shard, when it cannot be opened.
    """
    try:
        if path.startswith(HUB):
            ahead = {"cache_type": "readahead", "block_size": AHEAD}
            options = ahead if buffer_size else {"cache_type": "none"}
            return hub_files().open(path, "rb", **options)
        if of_store(path):
            store, name = stored_at(path)
            return store.open(name, AHEAD if buffer_size else 0)
        return open(path, "rb", buffering=buffer_size)
    except OSError as error:
        reason = error.strerror or str(error).splitlines()[0]
        raise ValueError(
            f"The shard {path} cannot be read: {reason}."
        ) from error


def read_small(path: str) -> bytes | None:
    """Return the whole of a file beside shards; None where there is none."""
    if path.startswith(HUB):
        try:
            return hub_files().cat_file(path)
        except FileNotFoundError:
            return None
    if of_store(path):
        store, name = stored_at(path)
        return store.read(name)
    return pathlib.Path(path).read_bytes() if os.path.isfile(path) else None


def stored_at(path: str) -> tuple[Store, str]:
    """Return the folder of an address, and the name of the object in it."""
    folder, name = posixpath.split(whole_address(path))
    return _store(folder), name


@functools.lru_cache(maxsize=1024)
def _store(folder):
    return Store(folder)


def hub_files() -> Any:
    """Return the file system of the Hugging Face hub, one for all."""
    from huggingface_hub import HfFileSystem, constants

    return HfFileSystem(endpoint=constants.ENDPOINT)


def read_range(path: str, start: int, size: int) -> bytes:
    """Read `size` bytes of a shard from `start` on.

    Raises:
        ValueError: naming the shard, when it cannot be opened or ends before.
    """
    found = _read_range(path, start, size)
    if len(found) < size:
        raise ValueError(
            f"The shard {path} is cut off: it ends at byte "
            f"{start + len(found):,}, before byte {start + size:,}."
        )
    return found


def _read_range(path, start, size):
    if of_store(path):
        store, name = stored_at(path)
        return store.read_range(name, start, size)
    with open_shard(path, buffer_size=0) as file:
        file.seek(start)
        return file.read(size)


def shard_size(path: str) -> int:
    """Return the size of a shard in bytes.

    Raises:
        ValueError: naming the shard, when it cannot be opened.
    """
    with open_shard(path) as file:
        return file.seek(0, io.SEEK_END)


def fingerprint(path: str) -> tuple:
    """Identify a version of a shard: its path, size, time or hash.

    Raises:
        ValueError: naming the shard, when it is missing.
    """
    if of_store(path):
        store, name = stored_at(path)
        version = Store(f"{store.address}/{name}").version()
        if version is None:
            raise ValueError(f"There is no shard {path}.")
        return path, version
    if path.startswith(HUB):
        about = hub_files().info(path)
        return path, about["size"], about.get("blob_id")
    try:
        found = os.stat(path)
    except OSError as error:
        raise ValueError(
            f"The shard {path} cannot be read: {error.strerror}."
        ) from error
    return os.path.abspath(path), found.st_size, found.st_mtime_ns


class ShardIndex(NamedTuple):
    """The N images of a shard in their order.

    starts and sizes are int64 (N,): first byte and number of bytes. labels has
    the labels of all images one after the other, int64 or of `texts`, counts
    (N,) how many of them each image has. whole is bool (N,): False of an image
    that does not begin and end as a whole one does.
    """

    starts: np.ndarray
    sizes: np.ndarray
    labels: np.ndarray
    counts: np.ndarray
    whole: np.ndarray


def texts(labels: Sequence[str]) -> np.ndarray:
    """Return texts as objects, equal ones as one, whatever their lengths.

    An array of texts of NumPy takes the length of the longest for each.
    """
    known: dict[str, str] = {}
    found = np.empty(len(labels), object)
    found[:] = [known.setdefault(x, x) for x in labels]
    return found


def index_of_rows(rows: Sequence[tuple], path: str) -> ShardIndex:
    """Make an index of the fields of each image, labels in a list.

    Raises:
        ValueError: naming the shard, when there are none.
    """
    if not rows:
        raise ValueError(f"The shard {path} has no images.")
    starts, sizes, labels, whole = zip(*rows, strict=True)
    return ShardIndex(
        np.array(starts, np.int64),
        np.array(sizes, np.int64),
        _labels_of([label for some in labels for label in some], path),
        np.array([len(some) for some in labels], np.int64),
        np.array(whole, bool),
    )


def _labels_of(labels, path):
    if labels and isinstance(labels[0], str):
        return texts(labels)
    try:
        return np.array(labels, np.int64)
    except OverflowError as error:
        raise ValueError(
            f"The shard {path} has labels that are no numbers of classes, "
            f"such as {max(labels)}."
        ) from error


def are_whole_ends(start: bytes, end: bytes) -> bool:
    """Return whether an image that begins and ends so is taken to be whole."""
    return any(
        start.startswith(first) and end.endswith(last)
        for first, last in ENDS.items()
    )


def file_ends(path: str) -> tuple[bytes, bytes]:
    """Return the first and the last bytes of a file."""
    with open(path, "rb") as file:
        start = file.read(LONGEST_END)
        size = os.fstat(file.fileno()).st_size
        file.seek(max(-LONGEST_END, -size), os.SEEK_END)
        return start, file.read()


def looks_whole(file: BinaryIO, start: int, size: int) -> bool:
    """Return whether the image in a range of a file is taken to be whole."""
    few = min(LONGEST_END, size)
    file.seek(start)
    first = file.read(few)
    file.seek(start + size - few)
    return are_whole_ends(first, file.read(few))


def index_folder(given: str | None) -> pathlib.Path:
    """Return the folder of indexes that is given, or one below KERAS_HOME."""
    if given is not None:
        return pathlib.Path(given).expanduser()
    home = os.environ.get("KERAS_HOME") or "~/.keras"
    return pathlib.Path(home).expanduser() / "keras_vit" / "indexes"


def indexed(
    files: Sequence[str],
    make: Callable[[str], ShardIndex],
    *,
    kept_as: Sequence[str],
    folder: pathlib.Path,
) -> list[ShardIndex]:
    """Return the index of each shard: kept from before, or made and kept.

    Args:
        files: paths of the shards.
        make: function of a path that makes its index.
        kept_as: what besides the shard the index depends on.
        folder: where indexes are kept; where that cannot be written to, they
            are made again the next time.

    Raises:
        ValueError: naming the shard, when it is missing or damaged.
    """
    marks = [fingerprint(file) for file in files]
    paths = [folder / _file_name(mark, kept_as) for mark in marks]
    found: dict[int, ShardIndex] = {}
    missing = [i for i, path in enumerate(paths) if not path.exists()]
    if missing:
        LOGGER.info("Indexing %d shards, once.", len(missing))
    # Processes begin at different shards, and read what others have made.
    begin = random.randrange(len(files))
    for i in [*range(begin, len(files)), *range(begin)]:
        known = _read(paths[i])
        if known is None:
            known = make(files[i])
            _write(paths[i], known)
        found[i] = known
    return [found[i] for i in range(len(files))]


def _file_name(mark, kept_as):
    text = json.dumps([FORMAT, *mark, *kept_as])
    return f"{hashlib.sha256(text.encode()).hexdigest()[:32]}.npz"


def _read(path: pathlib.Path) -> ShardIndex | None:
    try:
        # NumPy leaves a damaged file open.
        with path.open("rb") as file, np.load(file) as arrays:
            found = {name: arrays[name] for name in ShardIndex.__annotations__}
            if TEXTS in arrays:
                names = json.loads(arrays[TEXTS].tobytes())
                places = np.array([*names, ""], object)
                found["labels"] = places[found["labels"]]
            return ShardIndex(**found)
    except FileNotFoundError:
        return None
    except (OSError, LookupError, ValueError, EOFError, zipfile.BadZipFile):
        return None  # Damaged: it is made again.


def _write(path: pathlib.Path, index: ShardIndex) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as temporary:
            arrays: dict[str, Any] = _plain(index)
            np.savez(temporary, **arrays)
    except OSError as error:
        LOGGER.warning(
            "The index of a shard cannot be kept in %s (%s): it is made again "
            "by each run. Set data.index_dir.",
            path.parent,
            error.strerror,
        )


def _plain(index) -> dict[str, np.ndarray]:
    """Return arrays that need no pickle: of texts each once, and its number."""
    if index.labels.dtype != object:
        return index._asdict()
    numbers = {x: i for i, x in enumerate(dict.fromkeys(index.labels))}
    labels = np.array([numbers[x] for x in index.labels], np.int64)
    names = np.frombuffer(json.dumps([*numbers]).encode(), np.uint8)
    return {**index._asdict(), "labels": labels, TEXTS: names}


@dataclasses.dataclass(frozen=True)
class ImageRanges:
    """Images that are ranges of bytes of uncompressed shards.

    Args:
        files: paths of the shards.
        shards: int array of shape (N,), which of them has the image.
        starts: int64 array of shape (N,), its first byte.
        sizes: int64 array of shape (N,), its number of bytes.
        numbers: int64 array of shape (N,), of its record in the shard.
        whole: bool array of shape (N,), False where it does not begin and end
            as a whole image does.

    Attributes:
        groups: of images that are read together only, the group of each, int
            array of shape (N,); else None.
    """

    files: tuple[str, ...]
    shards: np.ndarray
    starts: np.ndarray
    sizes: np.ndarray
    numbers: np.ndarray
    whole: np.ndarray
    groups = None

    def __len__(self) -> int:
        return len(self.starts)

    def read(self, position: int) -> bytes:
        """Return the encoded image of a position, 0 to N - 1.

        Raises:
            ValueError: naming the shard, when it cannot be read so far.
        """
        file = self.files[self.shards[position]]
        return read_range(
            file, int(self.starts[position]), int(self.sizes[position])
        )

    def name(self, position: int) -> str:
        """Return the shard and the number of the record in it, for messages."""
        file = self.files[self.shards[position]]
        return f"{file}[{self.numbers[position]}]"


def ranges_of(
    files: Sequence[str],
    indexes: Sequence[ShardIndex],
    source: Callable[..., ImageRanges] = ImageRanges,
) -> ImageRanges:
    """All images of some shards, in their order."""
    sizes = [len(index.starts) for index in indexes]
    return source(
        tuple(files),
        np.repeat(np.arange(len(files)), sizes),
        np.concatenate([index.starts for index in indexes]),
        np.concatenate([index.sizes for index in indexes]),
        np.concatenate([np.arange(size) for size in sizes]),
        np.concatenate([index.whole for index in indexes]),
    )
