"""Messages of protocol buffers, read without a description of their fields.

https://protobuf.dev/programming-guides/encoding.
"""

from collections.abc import Iterator
from typing import BinaryIO

__all__ = ["VARINT", "messages", "varint"]

VARINT, FIXED64, MESSAGE, FIXED32 = 0, 1, 2, 5  # kinds of fields on the wire
FIXED = {FIXED64: 8, FIXED32: 4}
LONGEST_VARINT = 10  # bytes


def messages(
    file: BinaryIO, start: int, size: int
) -> Iterator[tuple[int, int, int]]:
    """Yield number, first byte and size of the fields that are no numbers.

    Args:
        file: with the message.
        start: int, its first byte.
        size: int, its number of bytes.

    Raises:
        ValueError: when it is damaged, or no message.
    """
    end = start + size
    while start < end:
        file.seek(start)
        tag = varint(file)
        kind = tag & 7
        if kind == MESSAGE:
            length = varint(file)
            start = file.tell()
            if start + length > end:
                raise ValueError("a field is longer than the message")
            yield tag >> 3, start, length
            start += length
        elif kind in FIXED:
            start = file.tell() + FIXED[kind]
        elif kind == VARINT:
            varint(file)
            start = file.tell()
        else:
            raise ValueError("it is no message")


def varint(file: BinaryIO) -> int:
    """Read the number that a file is at.

    Raises:
        ValueError: when the file ends before, or it is longer than 64 bits.
    """
    number = 0
    for i in range(LONGEST_VARINT):
        byte = file.read(1)
        if not byte:
            raise ValueError("it ends too early")
        number |= (byte[0] & 0x7F) << (7 * i)
        if byte[0] < 0x80:
            return number
    raise ValueError("it is no message")
