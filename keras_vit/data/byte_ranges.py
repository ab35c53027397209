"""How shards are opened, measured and read: everything goes through here."""

import functools
import io
import os
import pathlib
import posixpath
from typing import Any, BinaryIO

from keras_vit.io.stores import Store, of_store, whole_address

__all__ = [
    "fingerprint",
    "hub_files",
    "open_shard",
    "read_range",
    "read_small",
    "shard_size",
    "stored_at",
]

# Bytes that are read at a time where an index skips from header to header.
SMALL = 512
HUB = "hf://"
AHEAD = 2**22  # bytes of a network, which answers each request after a while


def open_shard(path: str, buffer_size: int = SMALL) -> BinaryIO:
    """Opens a shard for reading in any order.

    Args:
        path: of the shard.
        buffer_size: bytes that are read at a time; 0 for what is asked.

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
        ) from None


def read_small(path: str) -> bytes | None:
    """The whole of a file beside shards; None where there is none."""
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
    """The folder of an address, and the name of the object in it."""
    folder, name = posixpath.split(whole_address(path))
    return _store(folder), name


@functools.lru_cache(maxsize=1024)
def _store(folder):
    return Store(folder)


def hub_files() -> Any:
    """The file system of the Hugging Face hub; fsspec keeps one for all."""
    from huggingface_hub import HfFileSystem, constants

    return HfFileSystem(endpoint=constants.ENDPOINT)


def read_range(path: str, start: int, size: int) -> bytes:
    """Reads `size` bytes of a shard from `start` on.

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
    """The size of a shard in bytes.

    Raises:
        ValueError: naming the shard, when it cannot be opened.
    """
    with open_shard(path) as file:
        return file.seek(0, io.SEEK_END)


def fingerprint(path: str) -> tuple:
    """What tells a shard from what it was before: path, size, time or hash.

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
        ) from None
    return os.path.abspath(path), found.st_size, found.st_mtime_ns
