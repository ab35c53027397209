"""How a file that cannot be used is refused."""

import contextlib
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Iterator
from typing import NoReturn

__all__ = ["refuse", "refusing"]

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


def refuse(
    path, problem: str, cure: str, tensor: str | None = None
) -> NoReturn:
    """Raises a ValueError that names the file, the tensor and the cure.

    Args:
        path: the file.
        problem: str, what is wrong, without a full stop.
        cure: str, what to do about it, a sentence.
        tensor: str, the tensor, where it is one.

    Raises:
        ValueError: always.
    """
    where = f"{str(path)!r}" + (f", tensor {tensor!r}" if tensor else "")
    raise ValueError(f"{where}: {problem}. {cure}")


@contextlib.contextmanager
def refusing(path, what: str, tensor: str | None = None) -> Iterator[None]:
    """Turns whatever a damaged file makes a reader raise into a ValueError.

    Args:
        path: the file.
        what: str, what is read, for the message.
        tensor: str, the tensor, where it is one.

    Raises:
        ValueError: in place of the errors of zip, zlib, struct, NumPy that
            do not name the file.
    """
    try:
        yield
    except DAMAGE as error:
        told = isinstance(error, (ValueError, OSError))
        if told and str(path) in str(error):
            raise  # it says already what is wrong where
        cause = f"{type(error).__name__}: {error}"[:300]
        where = f"{str(path)!r}" + (f", tensor {tensor!r}" if tensor else "")
        raise ValueError(
            f"{where}: {what} cannot be read ({cause}). The file is damaged "
            "or of another kind than its name says: fetch it again."
        ) from error
