"""Downloads a file into the cache of Keras: resumed, retried and verified.

`keras.utils.get_file` neither resumes nor retries, and verifies only after it
gave the file its name; docs/decisions/downloads.md says why pooch and
huggingface_hub do not stand here. The file lies where `get_file` keeps its
files and finds it.
"""

import base64
import contextlib
import dataclasses
import email.utils
import hashlib
import http.client
import json
import os
import re
import shutil
import ssl
import tempfile
import time
import urllib.error
import zipfile
from email.message import Message
from pathlib import Path

import keras

from keras_vit.checkpoints.files.safetensors import open_safetensors
from keras_vit.checkpoints.public.network import open_address, shown

__all__ = [
    "Download",
    "check_beginning",
    "file_digest",
    "is_offline",
    "is_whole",
]

CHUNK = 1 << 20  # bytes
ATTEMPTS = 4
MD5_BYTES = 16
LENGTH = re.compile("[0-9]{1,18}")
RANGE = re.compile("bytes (?:[0-9]+-[0-9]+|[*])/([0-9]{1,18})")
RETRIED_STATUS = {408, 416, 425, 429, 500, 502, 503, 504}
NETWORK_ERRORS = (
    urllib.error.URLError,
    http.client.HTTPException,
    ConnectionError,
    TimeoutError,
    ssl.SSLError,
)


@dataclasses.dataclass(frozen=True)
class Download:
    """A file, at its address and in the cache of Keras.

    Attributes:
        url: str, its address.
        file_name: str, its name in the cache, unlike those of all others.
        num_bytes: int, its size, or None if that is not known.
        sha256: str, 64 hexadecimal digits, or None if that is not known.

    Example:
        >>> Download("https://host/a.npz", "a.npz").fetch()
        '/home/user/.keras/models/a.npz'
    """

    url: str
    file_name: str
    num_bytes: int | None = None
    sha256: str | None = None

    @property
    def path(self) -> Path:
        """Return where the file is once it was fetched."""
        return _keras_home() / "models" / self.file_name

    @property
    def part(self) -> Path:
        """Return where the bytes are until all have come and were verified."""
        return self.path.with_name(f"{self.file_name}.part")

    def fetch(self) -> str:
        """Download the file unless it is in the cache, and return its path.

        Raises:
            OSError: no network, no such file, or no space.
            ValueError: the file is not what it should be.
        """
        if self.path.is_file():
            size = self.path.stat().st_size
            if self.num_bytes not in (None, size):
                raise ValueError(
                    f"{self.path} has {size:,} bytes, and {self.num_bytes:,} "
                    f"are expected. Delete it. {self._by_hand()}"
                )
        elif is_offline():
            raise OSError(
                f"HF_HUB_OFFLINE is set, and there is no {self.path}. "
                f"{self._by_hand()}"
            )
        else:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with _one_process(self.path):
                if not self.path.is_file():
                    self._receive()
        return str(self.path)

    def _by_hand(self):
        """Return what a person can do where this machine cannot download."""
        expected = [f"{self.num_bytes:,} bytes"] if self.num_bytes else []
        expected += [f"SHA-256 {self.sha256}"] if self.sha256 else []
        what = f" ({', '.join(expected)})" if expected else ""
        return (
            f"Fetch {shown(self.url)}{what} on a machine with a network and "
            f"put it at {self.path}, or pass the path of your copy as weights."
        )

    def _receive(self):
        if keras.config.is_interactive_logging_enabled():
            print(f"Downloading {shown(self.url)} to {self.path}")
        self.part.touch()
        try:
            headers = _receive(
                self.url,
                self.part,
                file_name=self.file_name,
                num_bytes=self.num_bytes,
            )
            self._check_digests(_digests_of_server(headers))
            self._check_end()
        except (ValueError, OSError) as error:
            kind = ValueError if isinstance(error, ValueError) else OSError
            raise kind(f"{error} {self._by_hand()}") from error
        finally:
            if self.part.stat().st_size == 0:
                self.part.unlink()
                _version_file(self.part).unlink(missing_ok=True)
        os.replace(self.part, self.path)
        _version_file(self.part).unlink(missing_ok=True)

    def _check_digests(self, expected):
        if self.sha256:
            expected = {**expected, "sha256": self.sha256}
        for algorithm, digest in expected.items():
            found = file_digest(self.part, algorithm)
            if found != digest:
                os.truncate(self.part, 0)
                raise ValueError(
                    f"The {algorithm} of {shown(self.url)} is {found}, and "
                    f"{digest} is expected: the file is damaged or another one."
                )

    def _check_end(self):
        if not is_whole(self.part):
            os.truncate(self.part, 0)
            raise ValueError(
                f"{shown(self.url)} is damaged, or was cut off before it came "
                "to the server: its end is missing."
            )


def is_offline() -> bool:
    """Return whether HF_HUB_OFFLINE forbids the network."""
    setting = os.environ.get("HF_HUB_OFFLINE", "")
    return setting.upper() in ("1", "ON", "YES", "TRUE")


def _keras_home():
    """Return the folder that `get_file` keeps its files under."""
    home = Path(os.environ.get("KERAS_HOME") or "~/.keras").expanduser()
    with contextlib.suppress(OSError):
        home.mkdir(parents=True, exist_ok=True)
    if os.access(home, os.W_OK):
        return home
    return Path(tempfile.gettempdir()) / ".keras"


def file_digest(path: str | Path, algorithm: str = "sha256") -> str:
    """Compute the hexadecimal SHA-256 or "md5" of a file, read in pieces."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, algorithm).hexdigest()


def _digests_of_server(headers):
    """Return the MD5 that Google's storage sends; its CRC32C is not used."""
    items = ",".join(headers.get_all("x-goog-hash", [])).split(",")
    pairs = (item.strip().partition("=") for item in items)
    found = {kind: _decoded(value) for kind, _, value in pairs}
    known = len(found.get("md5", b"")) == MD5_BYTES
    return {"md5": found["md5"].hex()} if known else {}


def _decoded(value: str) -> bytes:
    """Read Base64; return nothing where it is none."""
    try:
        return base64.b64decode(value, validate=True)
    except ValueError:
        return b""


def _receive(
    url: str, part: Path, *, file_name: str, num_bytes: int | None = None
) -> Message:
    """Append to a part what the file lacks, in as many attempts as it takes.

    The part may be empty, or what an earlier attempt left, and stays when an
    attempt fails. The headers of the last response are returned.
    """
    failures = 0
    most = _size(part)
    while True:
        before = _size(part)
        try:
            return _receive_once(url, part, file_name, num_bytes)
        except NETWORK_ERRORS as error:
            if isinstance(error, urllib.error.HTTPError):
                error.close()
            if _is_complete(error, part, before):
                return error.headers  # pyright: ignore[reportAttributeAccessIssue]
            _raise_if_final(error, url)
            if getattr(error, "code", None) == 416:
                os.truncate(part, 0)  # It is longer than the file.
            # An attempt that brought something was no failure.
            failures = 1 if _size(part) > most else failures + 1
            most = max(most, _size(part))
            if failures == ATTEMPTS:
                raise OSError(
                    f"{shown(url)} did not arrive: {error}"
                ) from error
            time.sleep(2 ** (failures - 1))


def _size(part):
    return part.stat().st_size


def _is_complete(error, part, size):
    """Return whether the server says that nothing is behind `size` bytes."""
    if getattr(error, "code", None) != 416:
        return False
    ends = error.headers.get("Content-Range") == f"bytes */{size}"
    return ends and not _is_another_version(error.headers, part, size)


def _raise_if_final(error, url):
    reason = getattr(error, "reason", None)
    code = getattr(error, "code", None)
    if isinstance(reason, ssl.SSLCertVerificationError):
        raise OSError(f"The certificate of {shown(url)}: {reason}") from error
    if code and code not in RETRIED_STATUS:
        message = f"The server answers {code} for {shown(url)}: {reason}."
        raise OSError(message) from error


def _receive_once(url, part, file_name, num_bytes):
    start = _size(part)
    headers = {"Range": f"bytes={start}-"} if start else {}
    with open_address(url, headers) as response:
        if response.status != 206:
            start = 0  # The server gives no ranges.
        elif _is_another_file(response.headers, part, start):
            os.truncate(part, 0)
            raise ConnectionError("The file changed during the download.")
        total = _total(response.headers, start)
        _check_total(url, part, total, start, num_bytes)
        size = _write(response, part, start, file_name)
        if total is not None and size < total:
            raise ConnectionError(f"{size:,} of {total:,} bytes came.")
        if total is None and not is_whole(part):
            raise ConnectionError(f"{size:,} bytes came, and no end.")
        return response.headers


def _total(headers, start) -> int | None:
    """Return the size of the whole file; None where no server says it."""
    if found := RANGE.fullmatch(headers.get("Content-Range", "")):
        return int(found[1])
    length = headers.get("Content-Length", "")
    return start + int(length) if LENGTH.fullmatch(length) else None


def _is_another_file(headers, part, start):
    """Return whether these bytes do not go on where the part ends.

    Who knows no version of a part, which another program left, compares times.
    """
    begins = headers.get("Content-Range", "").startswith(f"bytes {start}-")
    return not begins or _is_another_version(headers, part, start)


def _is_another_version(headers, part, start):
    try:
        before = json.loads(_version_file(part).read_text())
    except (FileNotFoundError, ValueError):
        return _changed(headers) > part.stat().st_mtime
    pairs = zip(before, _version(headers, start), strict=True)
    return any(x != y for x, y in pairs if None not in (x, y))


def _version_file(part):
    """Return where it is noted what a part is the beginning of."""
    return part.with_suffix(".version.part")


def _version(headers, start) -> list:
    """Return what tells the versions of a server's file apart."""
    names = "ETag", "Last-Modified"
    return [_total(headers, start), *(headers.get(x) for x in names)]


def _changed(headers) -> float:
    """Return when the server's file was changed; 0 where nobody knows."""
    try:
        time = email.utils.parsedate_to_datetime(headers["Last-Modified"])
        return time.timestamp()
    except (TypeError, ValueError, OverflowError):
        return 0.0


def _check_total(url, part, total, start, num_bytes):
    if None not in (total, num_bytes) and total != num_bytes:
        raise ValueError(
            f"{shown(url)} has {total:,} bytes, and {num_bytes:,} are "
            "expected: it is not the published file."
        )
    free = shutil.disk_usage(part.parent).free
    if total is not None and total - start > free:
        raise OSError(
            f"{part.parent} has {free:,} bytes left, and {shown(url)} needs "
            f"{total - start:,}. Make space, or set KERAS_HOME to a folder on "
            "another disk."
        )


def _write(response, part, start, file_name):
    total = _total(response.headers, start)
    progress = keras.utils.Progbar(total, unit_name="byte")
    size = start
    chunk = response.read(CHUNK)
    if start == 0 and (chunk or not total):
        check_beginning(chunk, file_name)
    with part.open("ab" if start else "wb") as file:
        version = json.dumps(_version(response.headers, start))
        _version_file(part).write_text(version)
        while chunk:
            file.write(chunk)
            size += len(chunk)
            progress.update(size)
            chunk = response.read(CHUNK)
    return size


@contextlib.contextmanager
def _one_process(path):
    """Let the processes of one machine wait for the one that downloads.

    What is locked is a file that stays: one that is renamed or removed leaves
    those that wait with the lock of a file that is no longer there.
    """
    lock = path.parent / ".locks" / f"{path.name}.lock"
    lock.parent.mkdir(exist_ok=True)
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(ImportError, OSError):  # Windows, some NFS.
            import fcntl

            handle = stack.enter_context(lock.open("ab"))
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


# How a file of weights begins, and where it ends.
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
LONGEST_BEGINNING = 9
OTHERS = {
    rb"\x1f\x8b": "It is packed by gzip: unpack it, and pass its path.",
    rb"\s*<": "Is it a web page, for signing in perhaps?",
    rb"version https://git-lfs": "It is a pointer of Git LFS to the file.",
}


def check_beginning(beginning: bytes, file_name: str) -> None:
    """Raise a ValueError unless a file begins as its kind does.

    Of an unknown suffix any kind of weights is right.
    """
    every = b"|".join(BEGINNINGS.values())
    expected = BEGINNINGS.get(Path(file_name).suffix, every)
    if re.match(expected, beginning, re.DOTALL):
        return
    guesses = [x for start, x in OTHERS.items() if re.match(start, beginning)]
    raise ValueError(
        f"{file_name} is no file of weights: it begins with "
        f"{beginning[:16]!r}. {' '.join(guesses)}".rstrip()
    )


def is_whole(path: Path) -> bool:
    """Return whether the end of a file of weights is there.

    A server that names no length may be cut off without an error.

    The central directory of a zip archive is at its end, HDF5 has the length
    in its first bytes, and safetensors in its header. What is between is not
    read.
    """
    with path.open("rb") as file:
        beginning = file.read(LONGEST_BEGINNING)
    for kind, opened in ENDS.items():
        if re.match(kind, beginning, re.DOTALL):
            try:
                opened(path)
            except (OSError, ValueError, zipfile.BadZipFile):
                return False
            return True
    return False


def _open_zip(path):
    with zipfile.ZipFile(path):
        pass


def _open_hdf5(path):
    import h5py

    with h5py.File(path):
        pass


ENDS = {ZIP: _open_zip, HDF5: _open_hdf5, SAFETENSORS: open_safetensors}
