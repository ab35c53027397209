"""The arrays of HDF5 files, which Keras's own weights are in."""

from pathlib import Path

import numpy as np

from keras_vit.checkpoints.containers.tensors import (
    MAX_TENSORS,
    Tensor,
    refuse,
    refusing,
)

__all__ = ["datasets"]

MAX_RATIO = 50
MAX_EXTRA_BYTES = 64 * 2**20
HARMFUL = "Such a file was made to do harm: do not use it."


def datasets(path, content=None) -> dict:
    """The arrays of an HDF5 file, each read when asked for.

    Args:
        path: path of the file, for messages and for reading.
        content: a binary file to read instead, such as a member of a zip.

    Returns:
        dict from name to `Tensor`.

    Raises:
        ValueError: for a damaged file, one that points to others, or one
            that unpacks to far more than it takes.
        OSError: when it cannot be opened.
    """
    import h5py

    found = {}

    def visit(name, item):
        if len(found) > MAX_TENSORS:
            refuse(path, f"holds over {MAX_TENSORS} arrays", HARMFUL)
        if isinstance(item, h5py.Dataset):
            if item.external or item.is_virtual:
                refuse(path, "points to another file", HARMFUL, name)
            found[name] = (tuple(item.shape), item.dtype)

    source = path if content is None else content
    with refusing(path, "the file"), h5py.File(source, "r") as file:
        file.visititems(visit)
    tensors = {
        name: Tensor(shape, np.dtype(dtype), reader(source, name))
        for name, (shape, dtype) in found.items()
    }
    size = Path(path).stat().st_size
    unpacked = sum(x.nbytes for x in tensors.values())
    if unpacked > MAX_RATIO * size + MAX_EXTRA_BYTES:
        refuse(path, f"unpacks {size} bytes to {unpacked}", HARMFUL)
    return tensors


def reader(source, name):
    def read():
        import h5py

        with h5py.File(source, "r") as file:
            return file[name][()]

    return read
