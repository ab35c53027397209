"""Bytes from a server into a file: resumed, and tried again."""

import email.utils
import http.client
import os
import shutil
import ssl
import time
import urllib.error
import urllib.request
from email.message import Message
from pathlib import Path

import keras

from keras_vit.checkpoints.public.integrity import check_beginning

__all__ = ["receive"]

CHUNK = 1 << 20
ATTEMPTS = 4
TIMEOUT = 60  # Seconds without a byte.
RETRIED_STATUS = {408, 416, 425, 429, 500, 502, 503, 504}
NETWORK_ERRORS = (
    urllib.error.URLError,
    http.client.HTTPException,
    ConnectionError,
    TimeoutError,
    ssl.SSLError,
)


def receive(
    url: str, part: Path, *, file_name: str, num_bytes: int | None = None
) -> Message:
    """Appends to a file what it lacks, in as many attempts as it takes.

    Args:
        url: str, https address.
        part: Path of a file that exists: empty, or what an earlier attempt
            left. It stays when an attempt fails.
        file_name: str, whose suffix tells how the file begins.
        num_bytes: int, its size, or None if that is not known.

    Returns:
        The headers of the last response.

    Raises:
        OSError: the server does not answer or has no such file, or there is
            no space.
        ValueError: the server has another file.

    Example:
        >>> receive("https://host/a.npz", Path("a.part"), file_name="a.npz")
    """
    failures = 0
    most = _size(part)
    while True:
        before = _size(part)
        try:
            return _receive_once(url, part, file_name, num_bytes)
        except NETWORK_ERRORS as error:
            if _is_complete(error, before):
                return error.headers  # pyright: ignore[reportAttributeAccessIssue]
            _raise_if_final(error, url)
            if getattr(error, "code", None) == 416:
                os.truncate(part, 0)  # It is longer than the file.
            # An attempt that brought something was no failure.
            failures = 1 if _size(part) > most else failures + 1
            most = max(most, _size(part))
            if failures == ATTEMPTS:
                raise OSError(f"{url} did not arrive: {error}") from error
            time.sleep(2 ** (failures - 1))


def _size(part):
    return part.stat().st_size


def _is_complete(error, size):
    """Whether the server says that there is nothing behind `size` bytes."""
    if getattr(error, "code", None) != 416:
        return False
    return error.headers.get("Content-Range") == f"bytes */{size}"


def _raise_if_final(error, url):
    reason = getattr(error, "reason", None)
    code = getattr(error, "code", None)
    if isinstance(reason, ssl.SSLCertVerificationError):
        raise OSError(f"The certificate of {url}: {reason}") from error
    if code and code not in RETRIED_STATUS:
        message = f"The server answers {code} for {url}: {reason}."
        raise OSError(message) from error


def _receive_once(url, part, file_name, num_bytes):
    start = _size(part)
    headers = {"Range": f"bytes={start}-"} if start else {}
    request = urllib.request.Request(url, headers=headers)
    with urllib.request.urlopen(request, timeout=TIMEOUT) as response:
        if url.startswith("https:") > response.url.startswith("https:"):
            raise ValueError(f"{url} redirects to {response.url}.")
        if response.status != 206:
            start = 0  # The server gives no ranges.
        elif _is_another_file(response.headers, part, start):
            os.truncate(part, 0)
            raise ConnectionError("The file changed during the download.")
        length = response.headers["Content-Length"]
        total = None if length is None else start + int(length)
        _check_total(url, part, total, start, num_bytes)
        size = _write(response, part, start, total, file_name)
        if total is not None and size < total:
            raise ConnectionError(f"{size:,} of {total:,} bytes came.")
        return response.headers


def _is_another_file(headers, part, start):
    """Whether these bytes do not go on where the part ends."""
    changed = email.utils.parsedate_to_datetime(
        headers.get("Last-Modified") or email.utils.formatdate(0)
    )
    ours = f"bytes {start}-"
    return (
        not headers.get("Content-Range", ours).startswith(ours)
        or changed.timestamp() > part.stat().st_mtime
    )


def _check_total(url, part, total, start, num_bytes):
    if None not in (total, num_bytes) and total != num_bytes:
        raise ValueError(
            f"{url} has {total:,} bytes, and {num_bytes:,} are expected: it "
            "is not the published file."
        )
    free = shutil.disk_usage(part.parent).free
    if total is not None and total - start > free:
        raise OSError(
            f"{part.parent} has {free:,} bytes left, and {url} needs "
            f"{total - start:,}. Make space, or set KERAS_HOME to a folder on "
            "another disk."
        )


def _write(response, part, start, total, file_name):
    progress = keras.utils.Progbar(total, unit_name="byte")
    size = start
    chunk = response.read(CHUNK)
    if start == 0 and (chunk or not total):
        check_beginning(chunk, file_name)
    with part.open("ab" if start else "wb") as file:
        while chunk:
            file.write(chunk)
            size += len(chunk)
            progress.update(size)
            chunk = response.read(CHUNK)
    return size
