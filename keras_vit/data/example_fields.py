"""Images and labels in serialised tf.train.Examples, without reading images.

An Example is a message of Features, which maps names to a Feature: a list of
bytes, of floats or of integers
(https://github.com/tensorflow/tensorflow/blob/master/tensorflow/core/example).
The parser of TensorFlow reads all of it; an index needs where the image is and
what the label is.
"""

import io
from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

__all__ = ["Fields", "image_and_label"]

VARINT, FIXED64, MESSAGE, FIXED32 = 0, 1, 2, 5  # kinds of fields on the wire
FIXED = {FIXED64: 8, FIXED32: 4}
LONGEST_VARINT = 10  # bytes
BYTES, FLOATS, INTEGERS = 1, 2, 3  # fields of a Feature
KINDS = {BYTES: "bytes", FLOATS: "floats", INTEGERS: "integers"}
LARGEST_LABEL = 2**20  # bytes


class Fields(NamedTuple):
    """First byte and size of the image, and the labels of an Example."""

    start: int
    size: int
    labels: list[int]


def image_and_label(
    file: BinaryIO, size: int, image_key: str, label_key: str
) -> Fields:
    """Finds the image and the labels of the Example that a file is at.

    Args:
        file: at the first byte of the Example.
        size: int, bytes of the Example.
        image_key: name of a feature of bytes.
        label_key: name of a feature of integers.

    Returns:
        A `Fields`, whose start counts from the start of the file.

    Raises:
        ValueError: when the message is damaged, or a feature is missing or of
            another kind.
    """
    image = labels = None
    for name, start, length in _features(file, size):
        if name == image_key.encode():
            image = _image(file, start, length)
        elif name == label_key.encode():
            labels = _labels(file, start, length)
        if image and labels is not None:
            return Fields(*image, labels)
    missing = image_key if image is None else label_key
    raise ValueError(f"it has no feature {missing!r}")


def _features(file: BinaryIO, size: int) -> Iterator[tuple[bytes, int, int]]:
    """Name, first byte and size of each Feature."""
    for _, start, length in _messages(file, file.tell(), size):
        for _, entry, entry_length in _messages(file, start, length):
            name, place = b"", None
            for number, first, found in _messages(file, entry, entry_length):
                if number == 1:
                    name = _read(file, first, found)
                else:
                    place = first, found
            if place:
                yield name, *place


def _messages(
    file: BinaryIO, start: int, size: int
) -> Iterator[tuple[int, int, int]]:
    """Number, first byte and size of the fields that are no numbers."""
    end = start + size
    while start < end:
        file.seek(start)
        tag = _varint(file)
        kind = tag & 7
        if kind == MESSAGE:
            length = _varint(file)
            start = file.tell()
            if start + length > end:
                raise ValueError("a field is longer than the message")
            yield tag >> 3, start, length
            start += length
        elif kind in FIXED:
            start = file.tell() + FIXED[kind]
        elif kind == VARINT:
            _varint(file)
            start = file.tell()
        else:
            raise ValueError("it is no tf.train.Example")


def _image(file: BinaryIO, start: int, size: int) -> tuple[int, int]:
    (place,) = _values(file, start, size, BYTES) or [None]
    images = list(_messages(file, *place)) if place else []
    if len(images) != 1:
        raise ValueError(
            f"its feature of the image has {len(images)} values of bytes"
        )
    return images[0][1:]


def _values(file, start, size, kind) -> list[tuple[int, int]]:
    """Where the list of a Feature is; none, when that is empty."""
    found = list(_messages(file, start, size))
    other = [number for number, *_ in found if number != kind]
    if other:
        raise ValueError(
            f"a feature has {KINDS.get(other[0], 'unknown values')} where "
            f"{KINDS[kind]} are expected"
        )
    return [(first, length) for _, first, length in found]


def _labels(file: BinaryIO, start: int, size: int) -> list[int]:
    labels = []
    for place in _values(file, start, size, INTEGERS):
        content = _read(file, *place)
        packed = io.BytesIO(content)
        while packed.tell() < len(content):
            tag = _varint(packed)
            if tag & 7 == VARINT:
                labels.append(_signed(_varint(packed)))
                continue
            end = _varint(packed)
            end += packed.tell()
            while packed.tell() < end:
                labels.append(_signed(_varint(packed)))
    return labels


def _read(file: BinaryIO, start: int, size: int) -> bytes:
    if size > LARGEST_LABEL:
        raise ValueError(f"a name or label of {size:,} bytes is too long")
    file.seek(start)
    return file.read(size)


def _signed(number: int) -> int:
    return number - 2**64 if number >= 2**63 else number


def _varint(file: BinaryIO) -> int:
    number = 0
    for i in range(LONGEST_VARINT):
        byte = file.read(1)
        if not byte:
            raise ValueError("it ends too early")
        number |= (byte[0] & 0x7F) << (7 * i)
        if byte[0] < 0x80:
            return number
    raise ValueError("it is no tf.train.Example")
