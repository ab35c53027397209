"""The arrays of HDF5 files, which Keras's own weights are in."""

from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import numpy as np

from keras_vit.checkpoints.files.tensors import (
    DAMAGED,
    HARMFUL,
    MAX_TENSORS,
    Tensor,
    as_bfloat16,
    check_unpacked,
    refuse,
    refusing,
)

__all__ = ["check_heaps", "datasets", "list_datasets", "read_dataset"]

HEAP = b"GCOL\1"  # begins a collection of texts, such as names of layers
CHUNK_BYTES = 2**24


def datasets(path) -> dict[str, Tensor]:
    """List the arrays of an HDF5 file by name; each is read on demand.

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

    with Path(path).open("rb") as content:
        check_heaps(path, content)
    with refusing(path, "the file"), h5py.File(path, "r") as file:
        return list_datasets(path, file, reader)


def check_heaps(path, content: BinaryIO) -> None:
    """Raise a ValueError for texts that libhdf5 would read without end.

    Version 1.14.6 steps from one object of a heap to the next
    by its size, also where that is 0. The layout is in section III.E of the
    HDF5 File Format Specification, version 3.0.

    Args:
        path: the file, for the message.
        content: the HDF5 file, or one that holds it as it is.
    """
    size = content.seek(0, 2)
    for start in list(_positions(content, HEAP)):
        content.seek(start + 8)
        length = int.from_bytes(content.read(8), "little")
        if length > size - start:
            continue  # Numbers that look like it, or cut off.
        heap = content.read(length - 16)
        at = 0
        while at + 16 <= len(heap):
            number = int.from_bytes(heap[at : at + 2], "little")
            taken = int.from_bytes(heap[at + 8 : at + 16], "little")
            # Number 0 is the free space, its own header included.
            taken = taken if number == 0 else 16 + (taken + 7) // 8 * 8
            if taken % 2**64 == 0:
                refuse(path, "has a heap with an object of no size", DAMAGED)
            at += taken


def _positions(content, mark) -> Iterator[int]:
    """Find where a mark stands in a file."""
    content.seek(0)
    begin, end = 0, b""
    while chunk := content.read(CHUNK_BYTES):
        window = end + chunk
        at = window.find(mark)
        while at >= 0:
            yield begin + at
            at = window.find(mark, at + 1)
        end = window[1 - len(mark) :]
        begin += len(window) - len(end)


def list_datasets(path, file, reader) -> dict[str, Tensor]:
    """List the arrays of an open HDF5 file.

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
    """Read an array of an open HDF5 file."""
    array = np.asarray(file[name][()])
    return array.view(as_bfloat16(array.dtype))
