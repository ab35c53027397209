"""Whether a file of weights begins as its kind does, and is there to its end.

A server that names no length may be cut off without an error.
"""

import re
import zipfile
from pathlib import Path

from keras_vit.checkpoints.files.safetensors import open_safetensors

__all__ = ["check_beginning", "is_whole"]

ZIP = rb"PK\x03\x04"
HDF5 = rb"\x89HDF\r\n\x1a\n"
# Eight bytes that are the length of the header, which is JSON.
SAFETENSORS = rb".{6}\x00\x00\{"
BEGINNINGS = {
    ".npz": ZIP,
    ".keras": ZIP,
    ".h5": HDF5,
    ".safetensors": SAFETENSORS,
}
LONGEST_BEGINNING = 9
OTHERS = {
    rb"\x1f\x8b": "It is packed by gzip: unpack it, and pass its path.",
    rb"\s*<": "Is it a web page, for signing in perhaps?",
    rb"version https://git-lfs": "It is a pointer of Git LFS to the file.",
}


def check_beginning(beginning: bytes, file_name: str) -> None:
    """Raises a ValueError unless a file begins as its kind does.

    Of an unknown suffix any kind of weights is right.
    """
    every = b"|".join(BEGINNINGS.values())
    expected = BEGINNINGS.get(Path(file_name).suffix, every)
    if re.match(expected, beginning, re.DOTALL):
        return
    guesses = [x for start, x in OTHERS.items() if re.match(start, beginning)]
    raise ValueError(
        f"{file_name} is no file of weights: it begins with "
        f"{beginning[:16]!r}. {' '.join(guesses)}".rstrip()
    )


def is_whole(path: Path) -> bool:
    """Whether the end of a file of weights is there, by what it says itself.

    The central directory of a zip archive is at its end, HDF5 has the length
    in its first bytes, and safetensors in its header. What is between is not
    read.
    """
    with path.open("rb") as file:
        beginning = file.read(LONGEST_BEGINNING)
    for kind, opened in ENDS.items():
        if re.match(kind, beginning, re.DOTALL):
            try:
                opened(path)
            except (OSError, ValueError, zipfile.BadZipFile):
                return False
            return True
    return False


def _open_zip(path):
    with zipfile.ZipFile(path):
        pass


def _open_hdf5(path):
    import h5py

    with h5py.File(path):
        pass


ENDS = {ZIP: _open_zip, HDF5: _open_hdf5, SAFETENSORS: open_safetensors}
