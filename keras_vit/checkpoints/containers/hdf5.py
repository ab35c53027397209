"""The arrays of HDF5 files, which Keras's own weights are in."""

from pathlib import Path

import numpy as np

from keras_vit.checkpoints.containers.tensors import (
    DAMAGED,
    HARMFUL,
    MAX_TENSORS,
    Tensor,
    as_bfloat16,
    check_unpacked,
    refuse,
    refusing,
)

__all__ = ["datasets", "list_datasets", "read_dataset"]


def datasets(path) -> dict[str, Tensor]:
    """Lists the arrays of an HDF5 file by name; each is read on demand.

    Raises:
        ValueError: for a damaged file, one that points to others, or one
            that unpacks to far more than it takes.
        OSError: when it cannot be opened.
    """
    import h5py

    def reader(name):
        def read():
            with h5py.File(path, "r") as file:
                return read_dataset(file, name)

        return read

    with refusing(path, "the file"), h5py.File(path, "r") as file:
        return list_datasets(path, file, reader)


def list_datasets(path, file, reader) -> dict[str, Tensor]:
    """Lists the arrays of an open HDF5 file.

    Args:
        path: the file, for messages and for its size.
        file: `h5py.File`.
        reader: from a name to the function that reads its array.
    """
    import h5py

    found = {}

    def visit(name, item):
        if not isinstance(item, h5py.Dataset):
            return
        if item.external or item.is_virtual:
            refuse(path, "points to another file", HARMFUL, name)
        if item.shape is None or len(found) == MAX_TENSORS:
            refuse(path, "holds no array or too many", DAMAGED, name)
        dtype = as_bfloat16(item.dtype)
        found[name] = Tensor(tuple(item.shape), dtype, reader(name))

    file.visititems(visit)
    unpacked = sum(tensor.nbytes for tensor in found.values())
    check_unpacked(path, Path(path).stat().st_size, unpacked)
    return found


def read_dataset(file, name) -> np.ndarray:
    """Reads an array of an open HDF5 file."""
    array = np.asarray(file[name][()])
    return array.view(as_bfloat16(array.dtype))
