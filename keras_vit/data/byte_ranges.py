"""How shards are opened, measured and read: everything goes through here."""

import io
import os
from typing import BinaryIO

__all__ = ["fingerprint", "open_shard", "read_range", "shard_size"]

# Bytes that are read at a time where an index skips from header to header.
SMALL = 512


def open_shard(path: str, buffer_size: int = SMALL) -> BinaryIO:
    """Opens a shard for reading in any order.

    Args:
        path: of the shard.
        buffer_size: bytes that are read at a time; 0 for what is asked.

    Raises:
        ValueError: naming the shard, when it cannot be opened.
    """
    try:
        return open(path, "rb", buffering=buffer_size)
    except OSError as error:
        reason = error.strerror or str(error)
        raise ValueError(
            f"The shard {path} cannot be read: {reason}."
        ) from None


def read_range(path: str, start: int, size: int) -> bytes:
    """Reads `size` bytes of a shard from `start` on.

    Raises:
        ValueError: naming the shard, when it cannot be opened or ends before.
    """
    with open_shard(path, buffer_size=0) as file:
        file.seek(start)
        found = file.read(size)
    if len(found) < size:
        raise ValueError(
            f"The shard {path} is cut off: it ends at byte "
            f"{start + len(found):,}, before byte {start + size:,}."
        )
    return found


def shard_size(path: str) -> int:
    """The size of a shard in bytes.

    Raises:
        ValueError: naming the shard, when it cannot be opened.
    """
    with open_shard(path) as file:
        return file.seek(0, io.SEEK_END)


def fingerprint(path: str) -> tuple[str, int, int]:
    """What tells a shard from what it was before: path, size, time.

    Raises:
        ValueError: naming the shard, when it is missing.
    """
    try:
        found = os.stat(path)
    except OSError as error:
        raise ValueError(
            f"The shard {path} cannot be read: {error.strerror}."
        ) from None
    return os.path.abspath(path), found.st_size, found.st_mtime_ns
