"""Where the images of shards are, and their labels, found once and kept.

An index of a shard takes one pass over its headers and labels; images are
skipped. It is kept in a file of its own, so that processes that share the
folder of the indexes divide the work.
"""

import hashlib
import json
import logging
import os
import pathlib
import random
import zipfile
from collections.abc import Callable, Sequence
from typing import BinaryIO, NamedTuple

import numpy as np

from keras_vit.data.byte_ranges import fingerprint
from keras_vit.io.atomic_files import replacing

__all__ = [
    "ShardIndex",
    "are_whole_ends",
    "file_ends",
    "index_folder",
    "index_of_rows",
    "indexed",
    "looks_whole",
]

LOGGER = logging.getLogger(__name__)
FORMAT = 1  # Of the files; another number makes old ones unused.
# How the files of a kind begin, and how they end unless they are cut off.
ENDS = {
    b"\xff\xd8\xff": b"\xff\xd9",
    b"\x89PNG\r\n\x1a\n": b"IEND\xaeB`\x82",
    b"GIF8": b";",
}
LONGEST_END = 8


class ShardIndex(NamedTuple):
    """The N images of a shard in their order.

    starts and sizes are int64 (N,): first byte and number of bytes. labels has
    the labels of all images one after the other, int64 or text, counts (N,)
    how many of them each image has. whole is bool (N,): False of an image that
    does not begin and end as a whole one does.
    """

    starts: np.ndarray
    sizes: np.ndarray
    labels: np.ndarray
    counts: np.ndarray
    whole: np.ndarray


def index_of_rows(rows: Sequence[tuple], path: str) -> ShardIndex:
    """Makes an index of the fields of each image, labels in a list.

    Raises:
        ValueError: naming the shard, when there are none.
    """
    if not rows:
        raise ValueError(f"The shard {path} has no images.")
    starts, sizes, labels, whole = zip(*rows, strict=True)
    return ShardIndex(
        np.array(starts, np.int64),
        np.array(sizes, np.int64),
        np.array([label for some in labels for label in some]),
        np.array([len(some) for some in labels], np.int64),
        np.array(whole, bool),
    )


def are_whole_ends(start: bytes, end: bytes) -> bool:
    """Whether an image that begins and ends so is taken to be whole."""
    return any(
        start.startswith(first) and end.endswith(last)
        for first, last in ENDS.items()
    )


def file_ends(path: str) -> tuple[bytes, bytes]:
    """The first and the last bytes of a file."""
    with open(path, "rb") as file:
        start = file.read(LONGEST_END)
        size = os.fstat(file.fileno()).st_size
        file.seek(max(-LONGEST_END, -size), os.SEEK_END)
        return start, file.read()


def looks_whole(file: BinaryIO, start: int, size: int) -> bool:
    """Whether the image in a range of a file is taken to be whole."""
    few = min(LONGEST_END, size)
    file.seek(start)
    first = file.read(few)
    file.seek(start + size - few)
    return are_whole_ends(first, file.read(few))


def index_folder(given: str | None) -> pathlib.Path:
    """The folder of the indexes: the one given, or one below KERAS_HOME."""
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
    """The index of each shard: kept from before, or made and kept.

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
            return ShardIndex(
                *(arrays[name] for name in ShardIndex.__annotations__)
            )
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
        return None  # Damaged: it is made again.


def _write(path: pathlib.Path, index: ShardIndex) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as temporary:
            np.savez(temporary, **index._asdict())
    except OSError as error:
        LOGGER.warning(
            "The index of a shard cannot be kept in %s (%s): it is made again "
            "by each run. Set data.index_dir.",
            path.parent,
            error.strerror,
        )
