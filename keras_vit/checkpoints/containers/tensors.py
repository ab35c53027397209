"""Tensors of a file that are read one by one, when they are needed."""

import dataclasses
import math
from collections.abc import Callable

import numpy as np

from keras_vit.checkpoints.containers.errors import refuse, refusing
from keras_vit.checkpoints.containers.memory import is_finite

__all__ = ["Tensor", "TensorFile", "check_name", "check_plausible"]

MAX_TENSORS = 100_000
MAX_DIMENSIONS = 8


@dataclasses.dataclass(frozen=True)
class Tensor:
    """One tensor of a file, not yet read.

    Args:
        shape: tuple of int.
        dtype: NumPy dtype of what `read` returns.
        read: returns the array.
    """

    shape: tuple
    dtype: np.dtype
    read: Callable[[], np.ndarray]

    @property
    def nbytes(self) -> int:
        """Bytes that the array takes."""
        return math.prod(self.shape) * self.dtype.itemsize


@dataclasses.dataclass
class TensorFile:
    """What a file or folder holds: named tensors, and what is said of them.

    Args:
        path: str, where it came from.
        tensors: dict from name to `Tensor`.
        config: dict, the `config.json` beside them, or empty.
        metadata: dict of strings that the file says of itself, or empty.
        kind: "npz", "safetensors" or "keras".
    """

    path: str
    tensors: dict
    config: dict = dataclasses.field(default_factory=dict)
    metadata: dict = dataclasses.field(default_factory=dict)
    kind: str = "npz"

    def read(self, name: str) -> np.ndarray:
        """Reads one tensor as float32.

        Args:
            name: str.

        Returns:
            float32 array of the tensor's shape.

        Raises:
            ValueError: when it is damaged, not of floating point, or holds
                NaN or infinity.
        """
        tensor = self.tensors[name]
        check_dtype(self.path, name, tensor.dtype)
        with refusing(self.path, "the tensor", name):
            array = tensor.read()
        array = array.astype("float32", copy=False)
        if not is_finite(array):
            refuse(
                self.path,
                "holds NaN or infinity",
                "The file was damaged or its training diverged: use another.",
                name,
            )
        return array


def check_dtype(path, name: str, dtype: np.dtype) -> None:
    """Raises a ValueError unless the dtype is of floating point."""
    if dtype.kind != "f" and dtype.name != "bfloat16":
        refuse(
            path,
            f"is of dtype {dtype.name}, weights are of floating point",
            "Export the weights as float32, float16 or bfloat16.",
            name,
        )


def check_name(path, name: str) -> None:
    """Raises a ValueError for names that would leave a folder."""
    parts = name.replace("\\", "/").split("/")
    if not name or ".." in parts or parts[0] == "" or "\0" in name:
        refuse(
            path,
            "has a name that points outside of the file",
            "Such a file was made to do harm: do not use it.",
            name,
        )


def check_plausible(path, name: str, shape: tuple, dtype, nbytes: int) -> None:
    """Raises a ValueError unless a declared shape takes nbytes.

    Args:
        path: the file.
        name: str, the tensor.
        shape: tuple, as declared.
        dtype: NumPy dtype.
        nbytes: int, bytes that the file holds for it.
    """
    known = all(type(size) is int and size >= 0 for size in shape)
    if not known or len(shape) > MAX_DIMENSIONS:
        refuse(
            path,
            f"declares the impossible shape {str(shape)[:80]}",
            "The file is damaged: fetch it again.",
            name,
        )
    declared = math.prod(shape) * dtype.itemsize
    if declared != nbytes:
        refuse(
            path,
            f"declares shape {shape} of {dtype.name}, which is {declared} "
            f"bytes, but the file holds {nbytes} bytes for it",
            "The file is damaged: fetch it again.",
            name,
        )
