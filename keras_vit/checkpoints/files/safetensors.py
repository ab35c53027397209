"""`.safetensors` files, read and written one tensor at a time.

The README of the project of that name describes the format.
"""

import json
import math
import struct
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from keras_vit.checkpoints.files.tensors import (
    DAMAGED,
    HARMFUL,
    MAX_TENSORS,
    RECORD_KEY,
    Tensor,
    TensorFile,
    check_name,
    check_plausible,
    read_record,
    refuse,
    refusing,
)

__all__ = ["open_safetensors", "write_safetensors"]

DTYPES = {
    "F64": "float64",
    "F32": "float32",
    "F16": "float16",
    "BF16": "bfloat16",
    "I64": "int64",
    "I32": "int32",
    "I16": "int16",
    "I8": "int8",
    "U8": "uint8",
    "BOOL": "bool",
}
MAX_HEADER_BYTES = 10_000_000  # 500 for each of MAX_TENSORS


def open_safetensors(path) -> TensorFile:
    """List the tensors of a `.safetensors` file; each is read on demand.

    Raises:
        ValueError: when the header does not describe the file.
        OSError: when the file cannot be opened.
    """
    path = Path(path)
    with refusing(path, "the header"):
        header, start = _read_header(path)
        metadata = header.pop("__metadata__", {})
        _check_layout(path, header, path.stat().st_size - start)
        tensors = {
            name: _tensor_of(path, start, entry)
            for name, entry in header.items()
        }
    if not isinstance(metadata, dict):
        refuse(path, "has metadata that are no dictionary", DAMAGED)
    fields, known = read_record(path, metadata.get(RECORD_KEY))
    return TensorFile(str(path), tensors, fields, metadata, trained_as=known)


def _read_header(path) -> tuple:
    """Return the header as a dict, and the offset of the numbers."""
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if size > 8 and MAX_HEADER_BYTES < length <= size - 8:
            refuse(
                path,
                f"has a header of {length:,} bytes, where at most "
                f"{MAX_HEADER_BYTES:,} are read",
                HARMFUL,
            )
        if size < 8 or not 2 <= length <= min(size - 8, MAX_HEADER_BYTES):
            refuse(
                path,
                f"declares a header of {length} bytes in a file of {size}",
                "It is no safetensors file, or it was cut off: fetch it again.",
            )
        text = file.read(length)
    try:
        header = json.loads(text, object_pairs_hook=_without_duplicates)
    except (ValueError, RecursionError) as error:
        refuse(path, f"has a header that is no JSON ({error})"[:300], DAMAGED)
    if not isinstance(header, dict) or len(header) > MAX_TENSORS:
        refuse(path, "has a header that is no dictionary of tensors", DAMAGED)
    return header, 8 + length


def _without_duplicates(pairs):
    result = dict(pairs)
    if len(result) < len(pairs):
        raise ValueError("the same name twice")
    return result


def _check_layout(path, header, size) -> None:
    """Raise a ValueError unless the tensors cover the file exactly."""
    for name, entry in header.items():
        check_name(path, name)
        begin, end = entry["data_offsets"]
        if type(begin) is not int or type(end) is not int:
            refuse(path, "has offsets that are no integers", DAMAGED, name)
        dtype = _dtype_of(path, name, entry["dtype"])
        shape = tuple(entry["shape"])
        check_plausible(path, name, shape, dtype, end - begin)
    end = 0
    for name in sorted(header, key=lambda x: header[x]["data_offsets"]):
        entry = header[name]
        if entry["data_offsets"][0] != end:
            refuse(
                path, "overlaps another tensor or leaves a gap", DAMAGED, name
            )
        end = entry["data_offsets"][1]
    if end != size:
        refuse(
            path, f"holds {size} bytes of numbers, its header {end}", DAMAGED
        )


def _dtype_of(path, name, code) -> np.dtype:
    if not isinstance(code, str) or code not in DTYPES:
        refuse(
            path,
            f"is of the unknown dtype {code!r}"[:100],
            f"Expected one of {', '.join(DTYPES)}.",
            name,
        )
    if code == "BF16":
        import ml_dtypes

        return np.dtype(ml_dtypes.bfloat16)
    return np.dtype(DTYPES[code])


def _tensor_of(path, start, entry) -> Tensor:
    shape = tuple(entry["shape"])
    dtype = _dtype_of(path, None, entry["dtype"])
    offset = start + entry["data_offsets"][0]

    def read():
        count = math.prod(shape)
        array = np.fromfile(path, dtype, count=count, offset=offset)
        if array.size < count:
            raise EOFError(f"ends after {array.size} of {count} numbers")
        return array.reshape(shape)

    return Tensor(shape, dtype, read)


def write_safetensors(
    path, shapes: dict, arrays: Iterable, metadata: dict | None = None
) -> None:
    """Write a float32 `.safetensors` file, one tensor at a time.

    Args:
        path: path of the file.
        shapes: dict from name to shape, in the order of `arrays`.
        arrays: pairs of name and array.
        metadata: dict of strings, for its header.
    """
    header, end = {"__metadata__": metadata or {"format": "pt"}}, 0
    for name, shape in shapes.items():
        begin, end = end, end + 4 * math.prod(shape)
        header[name] = {
            "dtype": "F32",
            "shape": list(shape),
            "data_offsets": [begin, end],
        }
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with Path(path).open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for _, array in arrays:
            np.ascontiguousarray(array, "<f4").tofile(file)
