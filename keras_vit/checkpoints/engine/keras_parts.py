"""The parts of a model that Keras saved: of a `.keras` file, or of a folder.

`model.save("hf://user/name")` and `keras.saving.save_model(..., zipped=False)`
write the members of the file beside each other.
"""

import contextlib
import io
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from keras_vit.checkpoints.files.tensors import (
    HARMFUL,
    check_name,
    refuse,
    refusing,
)

__all__ = ["CONFIG", "METADATA", "WEIGHTS", "FolderParts", "ZipParts"]

CONFIG, METADATA = "config.json", "metadata.json"
WEIGHTS = "model.weights.h5"
# What is unpacked may be this many times the file, and this much more: its
# weights barely compress and Keras stores them as they are.
MAX_RATIO = 20
MAX_EXTRA_BYTES = 2**24
MAX_CONFIG_BYTES = 2**20


class ZipParts:
    """The members of a `.keras` file.

    Args:
        path: the file.
        extra: set of the names that it may have besides Keras's.

    Raises:
        ValueError: when it is no such file, or unpacks to far more than it
            takes.
        OSError: when it cannot be opened.
    """

    def __init__(self, path, extra: set):
        self.path = path
        with refusing(path, "the file"), zipfile.ZipFile(path) as archive:
            self._check(archive.infolist(), extra)

    def _check(self, members, extra):
        names = sorted(member.filename for member in members)
        for name in names:
            check_name(self.path, name)
        known = {CONFIG, WEIGHTS, METADATA, *extra}
        if not {CONFIG, WEIGHTS} <= set(names) <= known:
            refuse(
                self.path,
                f"holds the members {', '.join(names[:5])}",
                f"Expected {CONFIG}, {METADATA} and {WEIGHTS} alone.",
            )
        if len(set(names)) < len(names):
            refuse(self.path, "holds a member twice", HARMFUL)
        sizes = {member.filename: member.file_size for member in members}
        size, unpacked = Path(self.path).stat().st_size, sum(sizes.values())
        if unpacked > MAX_RATIO * size + MAX_EXTRA_BYTES:
            refuse(self.path, f"unpacks {size} bytes to {unpacked}", HARMFUL)
        _check_config(self.path, sizes[CONFIG])

    def read(self, name: str) -> bytes:
        with zipfile.ZipFile(self.path) as archive:
            return archive.read(name)

    @contextlib.contextmanager
    def opened(self, name: str) -> Iterator[BinaryIO]:
        with (
            zipfile.ZipFile(self.path) as archive,
            archive.open(name) as content,
        ):
            yield content  # pyright: ignore[reportReturnType]

    def around(self, name: str) -> BinaryIO:
        """Opens a file that holds the bytes of a member somewhere.

        As Keras writes it, the weights stand in the file as they are.
        """
        with zipfile.ZipFile(self.path) as archive:
            stored = archive.getinfo(name).compress_type == zipfile.ZIP_STORED
            content = None if stored else io.BytesIO(archive.read(name))
        return content or Path(self.path).open("rb")


class FolderParts:
    """The files of a folder that Keras wrote; others beside them are ignored.

    Args:
        path: the folder.

    Raises:
        ValueError: when its config is oversized.
        OSError: when it cannot be read.
    """

    def __init__(self, path):
        self.path = Path(path)
        _check_config(path, (self.path / CONFIG).stat().st_size)

    def read(self, name: str) -> bytes:
        return (self.path / name).read_bytes()

    def opened(self, name: str) -> BinaryIO:
        return (self.path / name).open("rb")

    around = opened


def _check_config(path, size) -> None:
    if size > MAX_CONFIG_BYTES:
        refuse(path, "has an oversized config.json", HARMFUL)
