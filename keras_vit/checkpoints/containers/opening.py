"""Opens a file or folder of weights, whatever its format."""

import zipfile
from pathlib import Path

from keras_vit.checkpoints.containers.errors import refuse, refusing
from keras_vit.checkpoints.containers.folders import open_folder
from keras_vit.checkpoints.containers.npz import open_npz
from keras_vit.checkpoints.containers.safetensors import open_safetensors
from keras_vit.checkpoints.containers.tensors import TensorFile

__all__ = ["kind_of", "open_tensors", "split_subtree"]


def split_subtree(source) -> tuple[str, str]:
    """Splits `file.npz:img` into the file and the part of it.

    Args:
        source: path, or path and part.

    Returns:
        (path, part), the part "" without one.
    """
    text = str(source)
    path, colon, part = text.rpartition(":")
    if colon and not Path(text).exists() and Path(path).is_file():
        return path, part
    return text, ""


def kind_of(path) -> str:
    """Finds by its content what a file is.

    Args:
        path: path of a file or folder.

    Returns:
        "folder", "npz", "safetensors", "h5" or "keras".

    Raises:
        ValueError: for other kinds, said by name where they are known.
        OSError: when the file cannot be opened.
    """
    path = Path(path)
    if path.is_dir():
        return "folder"
    with path.open("rb") as file:
        start = file.read(16)
    for magic, kind in MAGIC.items():
        if start.startswith(magic):
            return kind_of_zip(path) if kind == "zip" else kind
    if start[8:9] == b"{" or path.suffix == ".safetensors":
        return "safetensors"
    for magic, what in REFUSED.items():
        if start.lstrip().startswith(magic):
            refuse(path, f"is {what}", CURES.get(magic, DOWNLOAD))
    refuse(
        path,
        f"begins with {start[:8]!r}, which no file of weights does"
        if start
        else "is empty",
        DOWNLOAD,
    )


MAGIC = {b"PK\x03\x04": "zip", b"\x89HDF\r\n\x1a\n": "h5"}
DOWNLOAD = "Fetch it again, and look at what the server sent."
PICKLE = (
    "Unpickling runs code of the file's author, so it is not done: convert "
    "it with safetensors.torch.save_file."
)
REFUSED = {
    b"<": "a web page, not a file of weights",
    b"{": "JSON, not a file of weights",
    b"version https://": "a pointer of Git LFS, not the file itself",
    b"\x80": "a Python pickle",
    b"\x1f\x8b": "compressed by gzip",
    b"PK": "an empty or damaged zip archive",
}
CURES = {b"\x80": PICKLE, b"\x1f\x8b": "Unpack it."}


def kind_of_zip(path):
    with refusing(path, "the file"), zipfile.ZipFile(path) as archive:
        names = archive.namelist()
    if "model.weights.h5" in names:
        return "keras"
    if any(name.endswith("data.pkl") for name in names):
        refuse(path, "is a Python pickle of torch", PICKLE)
    return "npz"


OPENERS = {
    "folder": open_folder,
    "npz": open_npz,
    "safetensors": open_safetensors,
}


def open_tensors(path) -> TensorFile:
    """Opens a file or folder of named tensors.

    Args:
        path: path of an `.npz` or `.safetensors` file or of a folder.

    Returns:
        A `TensorFile`; nothing but names and shapes is read yet.

    Raises:
        ValueError: for other kinds and damaged files.
        OSError: when the file cannot be opened.
    """
    return OPENERS[kind_of(path)](path)
