"""Files that are there whole or not at all."""

import contextlib
import os
import pathlib
from collections.abc import Iterator

__all__ = ["PARTIAL", "replacing"]

PARTIAL = ".partial-"  # begins the name of a file that is being written


@contextlib.contextmanager
def replacing(path: pathlib.Path) -> Iterator[pathlib.Path]:
    """Gives a temporary path and renames it to the real one at the end.

    What was written is pressed onto the disk before.

    Args:
        path: the file to write.

    Yields:
        A path with the same suffix in the same folder. When the block raises,
        it is removed and the old file stays as it was.

    Example:
        >>> with replacing(folder / "model.keras") as path:
        ...     model.save(path)
    """
    temporary = path.with_name(f"{PARTIAL}{path.name}")
    try:
        yield temporary
        _flush(temporary)
        temporary.replace(path)
        _flush(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


def _flush(path: pathlib.Path) -> None:
    """Waits until the disk has what was written to a file or folder."""
    if path.is_dir() and os.name == "nt":
        return  # Windows opens no folders.
    descriptor = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
