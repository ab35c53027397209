"""Memory that large arrays are read into."""

import math
import mmap
from typing import Literal

import numpy as np

__all__ = ["empty", "is_finite", "stacked"]

LARGE = 2**20  # bytes; below, NumPy's own memory does
PARTS = 2**18  # numbers that are looked at together


def empty(
    shape: tuple, dtype: np.dtype, order: Literal["C", "F"] = "C"
) -> np.ndarray:
    """An array to be filled, which a backend can take over as it is.

    Large ones start at a page of their own: JAX takes arrays that start at a
    multiple of 64 bytes without a copy, and memory goes back to the system as
    soon as an array is gone, where malloc keeps what it may need again.

    Args:
        shape: tuple of int.
        dtype: NumPy dtype.
        order: "C", or "F" for the first axis to vary fastest.

    Returns:
        Array of that shape and dtype, its content undefined.
    """
    nbytes = math.prod(shape) * dtype.itemsize
    if nbytes < LARGE:
        return np.empty(shape, dtype, order)
    # Shared pages, the default of Unix, are slower to come by.
    private = getattr(mmap, "MAP_PRIVATE", None)
    flags = {} if private is None else {"flags": private | mmap.MAP_ANONYMOUS}
    pages = np.frombuffer(mmap.mmap(-1, nbytes, **flags), dtype)
    return pages.reshape(shape, order=order)


def stacked(arrays: list, axis: int) -> np.ndarray:
    """`numpy.stack` into an array of `empty`.

    Args:
        arrays: arrays of one shape and dtype.
        axis: int, below zero, of the result.

    Returns:
        Array of one more axis than theirs.
    """
    shape = list(arrays[0].shape)
    shape.insert(len(shape) + 1 + axis, len(arrays))
    return np.stack(arrays, axis, out=empty(tuple(shape), arrays[0].dtype))


def is_finite(array: np.ndarray) -> bool:
    """Whether no number is NaN or infinite, without a copy of the array.

    Args:
        array: array of floating point.

    Returns:
        bool.
    """
    flat = array.reshape(-1, order="A")  # a view of what has just been read
    return all(
        np.isfinite(flat[i : i + PARTS]).all()
        for i in range(0, flat.size, PARTS)
    )
