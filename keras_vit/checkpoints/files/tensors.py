"""Named tensors of a file, listed and checked before they are read."""

import contextlib
import dataclasses
import json
import math
import mmap
import re
import struct
import sys
import tokenize
import zipfile
import zlib
from collections.abc import Callable, Iterator
from typing import Any, Literal, NoReturn

import numpy as np

from keras_vit.io.checks import is_of
from keras_vit.models.options import (
    RECORD,
    BiTConfig,
    MixerConfig,
    ViTConfig,
    kinds_of,
    options_of,
)
from keras_vit.trained_as import TrainedAs

__all__ = [
    "DAMAGED",
    "HARMFUL",
    "MAX_TENSORS",
    "RECORDED",
    "RECORD_KEY",
    "Tensor",
    "TensorFile",
    "as_bfloat16",
    "check_dtype",
    "check_name",
    "check_plausible",
    "check_unpacked",
    "empty",
    "is_finite",
    "read_record",
    "refuse",
    "refusing",
    "refusing_damage",
    "split_stacks",
    "stacked",
    "unrecorded",
    "write_record",
]

DAMAGED = "The file is damaged or was cut off: fetch it again."
HARMFUL = "Such a file was made to do harm: do not use it."

# What the standard library and NumPy raise on damaged files.
DAMAGE = (
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    EOFError,
    NotImplementedError,
    RuntimeError,
    LookupError,
    TypeError,
    AttributeError,
    SyntaxError,
    tokenize.TokenError,
    ValueError,
    ArithmeticError,
    MemoryError,
    OSError,
)

MAX_TENSORS = 20_000  # The largest published models have some 1,000.
MAX_DIMENSIONS = 8
MAX_STACK = 1000  # blocks
# Weights barely compress, but heads of zeros do: what is unpacked may be this
# many times the file, and this much more.
MAX_RATIO = 50
MAX_EXTRA_BYTES = 64 * 2**20


def refuse(
    path, problem: str, cure: str, tensor: str | None = None
) -> NoReturn:
    """Raise a ValueError that names the file, the tensor and the cure.

    Args:
        path: the file.
        problem: str, what is wrong, without a full stop.
        cure: str, what to do about it, a sentence.
        tensor: str, the tensor, where it is one.
    """
    where = f"{str(path)!r}" + (f", tensor {tensor!r}" if tensor else "")
    raise ValueError(f"{where}: {problem}. {cure}") from sys.exception()


@contextlib.contextmanager
def refusing(path, what: str, tensor: str | None = None) -> Iterator[None]:
    """Turn whatever a damaged file makes a reader raise into a ValueError.

    The message says that `what` cannot be read.
    """
    try:
        yield
    except DAMAGE as error:
        is_ours = isinstance(error, (ValueError, OSError))
        if is_ours and str(path) in str(error):
            raise  # It says already what is wrong where.
        cause = f"{type(error).__name__}: {error}"[:300]
        where = f"{str(path)!r}" + (f", tensor {tensor!r}" if tensor else "")
        raise ValueError(
            f"{where}: {what} cannot be read ({cause}). The file is damaged "
            "or of another kind than its name says: fetch it again."
        ) from error


@contextlib.contextmanager
def refusing_damage(path) -> Iterator[None]:
    """Turn what is neither a ValueError nor an OSError into one.

    Args:
        path: the file or folder, whose fields are of types that nobody
            expected.
    """
    try:
        yield
    except (ValueError, OSError):
        raise
    except DAMAGE as error:
        cause = f"{type(error).__name__}: {error}"[:300]
        cause = " ".join(cause.split())
        raise ValueError(
            f"{str(path)!r}: what it says of its model cannot be read "
            f"({cause}). {DAMAGED}"
        ) from error


@dataclasses.dataclass(frozen=True)
class Tensor:
    """One tensor of a file, not yet read.

    Args:
        shape: tuple of int.
        dtype: NumPy dtype of what `read` returns.
        read: function without arguments that returns the array.
    """

    shape: tuple
    dtype: np.dtype
    read: Callable[[], np.ndarray]

    @property
    def nbytes(self) -> int:
        """Return the bytes that the array takes."""
        return math.prod(self.shape) * self.dtype.itemsize


@dataclasses.dataclass
class TensorFile:
    """Named tensors of a file or folder, and the metadata beside them.

    Args:
        path: str, where it came from.
        tensors: dict from name to `Tensor`.
        config: dict, fields of the config in our names that a `config.json`
            or the metadata give, or empty.
        metadata: dict of strings that the file says of itself, or empty.
        notes: in what files beside it contradict it.
        trained_as: what its model was trained on.
        adapter: the `Adapter` beside it, or None.
        publisher: str, whose config.json is beside it, "" for nobody's.
    """

    path: str
    tensors: dict
    config: dict = dataclasses.field(default_factory=dict)
    metadata: dict = dataclasses.field(default_factory=dict)
    notes: tuple[str, ...] = ()
    trained_as: TrainedAs = TrainedAs()
    adapter: Any = None
    publisher: str = ""

    def read(self, name: str) -> np.ndarray:
        """Read one tensor as float32.

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
    """Raise a ValueError unless the dtype is of floating point."""
    if dtype.kind != "f" and dtype.name != "bfloat16":
        refuse(
            path,
            f"is of dtype {dtype.name}, weights are of floating point",
            "Export the weights as float32, float16 or bfloat16.",
            name,
        )


def as_bfloat16(dtype: np.dtype) -> np.dtype:
    """Return bfloat16 for the void of 2 bytes that files have, else dtype."""
    if dtype.kind == "V" and dtype.itemsize == 2 and dtype.names is None:
        import ml_dtypes

        return np.dtype(ml_dtypes.bfloat16)
    return dtype


def check_name(path, name: str) -> None:
    """Raise a ValueError for names that would leave a folder."""
    parts = name.replace("\\", "/").split("/")
    if not name or ".." in parts or parts[0] == "" or "\0" in name:
        refuse(
            path, "has a name that points outside of the file", HARMFUL, name
        )


def check_unpacked(path, size: int, unpacked: int) -> None:
    """Raise a ValueError when a file of `size` bytes unpacks to far more."""
    if unpacked > MAX_RATIO * size + MAX_EXTRA_BYTES:
        refuse(path, f"unpacks {size} bytes to {unpacked}", HARMFUL)


def check_plausible(path, name: str, shape: tuple, dtype, nbytes: int) -> None:
    """Raise a ValueError unless the declared shape takes the bytes held."""
    known = all(type(size) is int and size >= 0 for size in shape)
    if not known or len(shape) > MAX_DIMENSIONS:
        refuse(
            path,
            f"declares the impossible shape {str(shape)[:80]}",
            DAMAGED,
            name,
        )
    declared = math.prod(shape) * dtype.itemsize
    if declared != nbytes:
        refuse(
            path,
            f"declares shape {shape} of {dtype.name}, which is {declared} "
            f"bytes, but the file holds {nbytes} bytes for it",
            DAMAGED,
            name,
        )


LARGE = 2**20  # bytes; below, NumPy's own memory does
PARTS = 2**18  # numbers that are looked at together


def empty(
    shape: tuple, dtype: np.dtype, order: Literal["C", "F"] = "C"
) -> np.ndarray:
    """Return an array to be filled, which a backend can take over as it is.

    Large ones start at a page of their own: JAX takes arrays that start at a
    multiple of 64 bytes without a copy, and memory goes back to the system as
    soon as an array is gone, where malloc keeps what it may need again.
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
    """Stack as `numpy.stack` into an array of `empty`; axis is below zero."""
    shape = list(arrays[0].shape)
    shape.insert(len(shape) + 1 + axis, len(arrays))
    return np.stack(arrays, axis, out=empty(tuple(shape), arrays[0].dtype))


def is_finite(array: np.ndarray) -> bool:
    """Return whether no number is NaN or infinite, without a copy."""
    flat = array.reshape(-1, order="A")  # a view of what has just been read
    return all(
        np.isfinite(flat[i : i + PARTS]).all()
        for i in range(0, flat.size, PARTS)
    )


def split_stacks(path, tensors: dict, stacks: dict) -> tuple[dict, bool]:
    """Split tensors that hold all blocks.

    Args:
        path: the file, for messages.
        tensors: dict from name to `Tensor`.
        stacks: dict from a regular expression of the names of such tensors to
            the axis of the blocks and what the part of block i is called.

    Returns:
        (dict from name to `Tensor`, whether blocks are stacked along a first
        axis, so that all of a weight is best read together).
    """
    result, is_stacked = {}, False
    for name, tensor in tensors.items():
        for pattern, (axis, part) in stacks.items():
            if match := re.fullmatch(pattern, name):
                result |= _parts(path, name, tensor, axis, match.expand(part))
                is_stacked |= axis == 0
                break
        else:
            result[name] = tensor
    return result, is_stacked


def _parts(path, name, tensor, axis, part) -> dict:
    depth = (*tensor.shape, 0, 0)[axis]
    if not 1 <= depth <= MAX_STACK:
        refuse(path, f"stacks {depth} blocks", DAMAGED, name)
    stack = _Stack(tensor, depth, axis)
    shape = (*tensor.shape[:axis], *tensor.shape[axis + 1 :])
    return {
        part.format(i=i): Tensor(shape, tensor.dtype, stack.reader(i))
        for i in range(depth)
    }


class _Stack:
    """Reads a stacked tensor once for all blocks that take their part."""

    def __init__(self, tensor, depth, axis):
        self.tensor = tensor
        self.axis = axis
        self.array = None
        self.waiting = set()
        self.depth = depth

    def reader(self, i):
        def read():
            if self.array is None:
                self.array = self.tensor.read()
                self.waiting = set(range(self.depth))
            part = self.array.take(i, self.axis)
            self.waiting.discard(i)
            if not self.waiting:
                self.array = None
            return part

        return read


# What a file of ours says of its model beside the tensors: a JSON object of the
# fields of the config that no tensor tells, where the readers of others do not
# look. It is in the metadata of a safetensors file, and in the comment of the
# zip archive that an `.npz` file is.
TRAINED_AS, TOLD = "trained_as", "told"  # in the record
RECORD_KEY = "keras_vit"  # in the metadata of safetensors
PIXELS = ("pixel_mean", "pixel_std")


# Field that no tensor tells -> its annotated type.
RECORDED = {
    name: kind
    for config in (ViTConfig, MixerConfig, BiTConfig)
    for name, kind in kinds_of(config).items()
    if options_of(config)[name].shown == RECORD
}


def write_record(
    config: dict, trained_as: dict, told: dict | None = None
) -> str:
    """Return what no tensor tells of a model and its training, as JSON.

    Args:
        config: dict, the config of the model.
        trained_as: dict, the fields of a `TrainedAs`.
        told: dict, what of them the files of another publisher beside the
            weights tell, so that it shows if those change.
    """
    fields = {x: _plain(x, config[x]) for x in RECORDED if x in config}
    known = {TRAINED_AS: trained_as, TOLD: told}
    return json.dumps({**fields, **{x: y for x, y in known.items() if y}})


def unrecorded(config: dict) -> list:
    """List fields with a value that a record has no words for.

    Such as a function in place of the name of an activation.
    """
    return [
        name
        for name in RECORDED
        if name in config and not _fits(name, _plain(name, config[name]))
    ]


def read_record(path, text) -> tuple[dict, TrainedAs]:
    """Read what `write_record` wrote.

    Args:
        path: of the file, for messages.
        text: what it holds; None and anything else is no record.

    Returns:
        Fields of a config, without those that are not of their kind; and what
        the model was trained on.

    Raises:
        ValueError: when the latter is damaged.
    """
    try:
        stored = json.loads(text)
    except (ValueError, TypeError, RecursionError):
        return {}, TrainedAs()
    if not isinstance(stored, dict):
        return {}, TrainedAs()
    known = TrainedAs.from_fields(stored.get(TRAINED_AS, {}), repr(str(path)))
    found = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in stored.items()
        if name in RECORDED and _fits(name, value)
    }
    kinds = {type(found.get(name, ...)) for name in PIXELS}
    if len(kinds) > 1:  # Both or none.
        found = {k: x for k, x in found.items() if k not in PIXELS}
    return found, known


def read_told(metadata: dict) -> dict:
    """Return what the files beside a safetensors file told as it was written.

    Args:
        metadata: that of the file.
    """
    try:
        return json.loads(metadata.get(RECORD_KEY) or "{}").get(TOLD, {})
    except (ValueError, TypeError, AttributeError, RecursionError):
        return {}


def _fits(name, value) -> bool:
    """Return whether a value is of its field; ints are sizes, from 0."""
    values = value if isinstance(value, list) else [value]
    sizes = all(x >= 0 for x in values if type(x) is int)
    # A function is an activation, too, but none that JSON holds.
    return sizes and is_of(RECORDED[name], value) and not callable(value)


def _plain(name, value):
    if RECORDED[name] is float and type(value) is int:
        return float(value)
    return list(value) if isinstance(value, tuple) else value
