"""Whether the bytes that came are those that were published."""

import base64
import hashlib
import re
from email.message import Message
from pathlib import Path

__all__ = ["check_beginning", "digests_of_server", "file_digest"]

ZIP = rb"PK\x03\x04"
HDF5 = rb"\x89HDF\r\n\x1a\n"
# Eight bytes that are the length of the header, which is JSON.
SAFETENSORS = rb".{6}\x00\x00\{"
BEGINNINGS = {
    ".npz": ZIP,
    ".keras": ZIP,
    ".h5": HDF5,
    ".safetensors": SAFETENSORS,
}


def check_beginning(beginning: bytes, file_name: str) -> None:
    """Raises a ValueError unless a file begins as its kind does.

    Args:
        beginning: bytes, at least 16 unless the file is shorter.
        file_name: str; of an unknown suffix any kind of weights is right.

    Example:
        >>> check_beginning(b"PK\\x03\\x04", "ViT-B_16.npz")
    """
    every = b"|".join(BEGINNINGS.values())
    expected = BEGINNINGS.get(Path(file_name).suffix, every)
    if not re.match(expected, beginning, re.DOTALL):
        raise ValueError(
            f"{file_name} is no file of weights: it begins with "
            f"{beginning[:16]!r}. Is it a web page, for signing in perhaps?"
        )


def file_digest(path: str | Path, algorithm: str = "sha256") -> str:
    """The digest of a file, read in pieces.

    Args:
        path: str or Path.
        algorithm: str, "sha256" or "md5".

    Returns:
        str of hexadecimal digits.

    Example:
        >>> len(file_digest("ViT-B_16.npz"))
        64
    """
    with open(path, "rb") as file:
        return hashlib.file_digest(file, algorithm).hexdigest()


def digests_of_server(headers: Message) -> dict[str, str]:
    """Digests that Google's storage sends along, by algorithm.

    Args:
        headers: of the response.

    Returns:
        {"md5": hexadecimal digits}, or empty. Its CRC32C is not used.

    Example:
        >>> headers = Message()
        >>> headers["x-goog-hash"] = "md5=1B2M2Y8AsgTpgAmY7PhCfg=="
        >>> digests_of_server(headers)
        {'md5': 'd41d8cd98f00b204e9800998ecf8427e'}
    """
    items = ",".join(headers.get_all("x-goog-hash", [])).split(",")
    pairs = (item.strip().partition("=") for item in items)
    return {
        algorithm: base64.b64decode(value).hex()
        for algorithm, _, value in pairs
        if algorithm == "md5"
    }
