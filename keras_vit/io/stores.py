"""Object stores: what lies at gs:// and s3:// addresses, through fsspec.

An object is put whole or not at all, and there is no rename: who reads never
sees half of one. The credentials, and the addresses of other services of the
same kind, are those that s3fs and gcsfs find: environment, files, machine.
"""

import base64
import contextlib
import hashlib
import json
import logging
import os
import pathlib
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator
from typing import Any, BinaryIO

from keras_vit.io.atomic_files import replacing
from keras_vit.io.checks import check_installed

__all__ = [
    "Store",
    "check_local",
    "fetched",
    "is_address",
    "of_store",
    "on_disk",
    "whole_address",
]

# Of an address the name of the store -> the module of fsspec that opens it.
STORES = {"gs": "gcsfs", "s3": "s3fs"}
# What gcsfs puts in one part, between such boundaries.
IN_ONE_PART, BOUNDARY = 5 * 2**20, b"--==0=="
# As pathlib shortens it as well; and no drive of Windows.
ADDRESS = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]+):/+(?P<path>.*)")


def is_address(path: str | os.PathLike) -> bool:
    """Whether this is an address such as gs://bucket/run, and no local path.

    Example:
        >>> is_address("s3://bucket/run"), is_address("runs/digits")
        (True, False)
    """
    return ADDRESS.fullmatch(os.fspath(path)) is not None


def check_local(name: str, path: str | os.PathLike | None) -> None:
    """Raises a ValueError for an address where a path has to be."""
    if path is not None and is_address(path):
        raise ValueError(
            f"{name} is a path on this machine. Received: {os.fspath(path)!r}. "
            "Give a path, and copy what is written there to the store."
        )


def of_store(path: str | os.PathLike) -> bool:
    """Whether this is an address of a store that is opened here."""
    found = ADDRESS.fullmatch(os.fspath(path))
    return found is not None and found["scheme"] in STORES


def whole_address(path: str | os.PathLike) -> str:
    """An address with both slashes, of which pathlib drops one.

    Raises:
        ValueError: when it is of no store, or names no bucket.

    Example:
        >>> whole_address("s3:/bucket/run/")
        's3://bucket/run'
    """
    found = ADDRESS.fullmatch(os.fspath(path))
    if found is None or found["scheme"] not in STORES:
        raise ValueError(
            f"There is no store for {os.fspath(path)!r}. Expected a local "
            f"path, or an address of {' or '.join(f'{x}://' for x in STORES)}."
        )
    inside = found["path"].strip("/")
    if not inside.strip("."):
        raise ValueError(
            f"The address {os.fspath(path)!r} names no bucket. Expected one "
            f"such as {found['scheme']}://bucket/folder."
        )
    odd = {".", ".."} & set(inside.split("/"))
    if odd or not inside.isprintable():
        raise ValueError(
            f"The address {os.fspath(path)!r} names no object: its parts are "
            "names, and not '.', '..' or what cannot be printed."
        )
    return f"{found['scheme']}://{inside}"


class Store:
    """The objects below an address of a store, by their names from there on.

    Args:
        address: such as "s3://bucket/runs/digits".

    Attributes:
        address: the same, with both slashes.

    Raises:
        ValueError: when there is no such kind of store, or its package is
            not installed. The methods raise what `explaining` says.

    Example:
        >>> Store("s3://bucket/runs/digits").read("result.json")
        b'{"top1": 0.99}'
    """

    def __init__(self, address: str | os.PathLike):
        self.address = whole_address(address)
        self._scheme, _, self._root = self.address.partition("://")
        self._files = _file_system(self._scheme)

    def find(self, below: str = "") -> dict[str, str]:
        """The objects by name, each with what tells its content from others."""
        root = f"{self._root}/"
        with explaining(self.address):
            try:
                found = self._files.find(root + below, detail=True)
            except FileNotFoundError:
                return {}
        return {
            path.removeprefix(root): _version(about)
            for path, about in found.items()
            if path.startswith(root) and not path.endswith("/")
        }

    def version(self) -> str | None:
        """That of the object at the address itself; None where is none."""
        with explaining(self.address):
            try:
                about = self._files.info(self._root)
            except FileNotFoundError:
                return None
        return _version(about) if about["type"] == "file" else None

    def read(self, name: str) -> bytes | None:
        """The content of an object, None where there is none."""
        with explaining(self.address):
            try:
                return self._files.cat_file(self._path(name))
            except FileNotFoundError:
                return None

    def write(self, name: str, content: bytes) -> None:
        """Puts an object in place of what was there."""
        with explaining(self.address):
            self._put(name, content)

    def create(self, name: str, content: bytes) -> bool:
        """Puts an object where there is none; whether it is this one now."""
        with explaining(self.address):
            try:
                self._files.pipe_file(self._path(name), content, mode="create")
                return True
            except FileNotFoundError:
                raise
            except OSError:
                # It may have come in an attempt whose answer was lost.
                found = self.read(name)
                if found is None:
                    raise
                return found == content

    def upload(self, path: pathlib.Path, name: str) -> None:
        """Puts a local file, which must not change meanwhile."""
        with explaining(self.address):
            if path.stat().st_size < IN_ONE_PART:
                content = path.read_bytes()
                if self._is_ambiguous(content):
                    return self._put(name, content)
            self._files.put_file(str(path), self._path(name))

    def _is_ambiguous(self, content):
        """Whether gcsfs puts the end of a content, or more, otherwise.

        It puts the content of a small object between boundaries, behind a line
        feed, before which a carriage return belongs to the boundary.
        """
        return self._scheme == "gs" and (
            content.endswith(b"\r") or BOUNDARY in content
        )

    def _put(self, name, content):
        if not self._is_ambiguous(content):
            self._files.pipe_file(self._path(name), content)
            return
        bucket, _, key = self._path(name).partition("/")
        of_uploads = self._files.base.replace("/storage/", "/upload/storage/")
        found = self._files.call(
            "POST",
            f"{of_uploads}b/{bucket}/o",
            uploadType="media",
            name=key,
            headers={"Content-Type": "application/octet-stream"},
            data=content,
            json_out=True,
        )
        digest = hashlib.md5(content, usedforsecurity=False).digest()
        if base64.b64decode(found["md5Hash"]) != digest:
            raise OSError("MD5 checksum failed")

    def download(self, name: str, path: pathlib.Path) -> bool:
        """Gets an object as a local file; False where there is none."""
        path.parent.mkdir(parents=True, exist_ok=True)
        with explaining(self.address), replacing(path) as temporary:
            try:
                self._files.get_file(self._path(name), str(temporary))
            except FileNotFoundError:
                temporary.touch()
                gone = True
            else:
                gone = False
        if gone:
            path.unlink()
        return not gone

    def copy(self, name: str, new: str) -> None:
        """Copies an object within the store."""
        with explaining(self.address):
            self._files.cp_file(self._path(name), self._path(new))

    def remove(self, names: Iterable[str]) -> None:
        """Removes objects one after the other; those that are gone are."""
        with explaining(self.address):
            for name in names:
                with contextlib.suppress(FileNotFoundError):
                    self._files.rm_file(self._path(name))

    def open(self, name: str, buffer_size: int) -> BinaryIO:
        """Opens an object to read it by position.

        Args:
            name: of the object.
            buffer_size: bytes that are read ahead; 0 reads what is asked.
        """
        options: dict = {"cache_type": "none"}
        if buffer_size:
            options = {"cache_type": "readahead", "block_size": buffer_size}
        with explaining(self.address):
            return self._files.open(self._path(name), "rb", **options)

    def read_range(self, name: str, start: int, size: int) -> bytes:
        """Reads bytes of an object, fewer where it ends before.

        Raises:
            FileNotFoundError: when there is no such object.
        """
        with explaining(self.address):
            end = start + size
            return self._files.cat_file(self._path(name), start=start, end=end)

    def _path(self, name):
        return f"{self._root}/{name}" if name else self._root


def fetched(
    address: str | os.PathLike, wanted: Callable[[str], bool] | None = None
) -> pathlib.Path:
    """A copy on this machine of an object, or of all below an address.

    It lies in the cache of Keras, once for each content. Of a run its
    checkpoints and what is hidden are left out.

    Args:
        address: of an object, or of a folder.
        wanted: whether a name below the address is copied; all if None.

    Raises:
        ValueError: when nothing is there.
        OSError: when the store cannot be used.

    Example:
        >>> fetched("s3://bucket/runs/digits")
        PosixPath('/home/user/.keras/stores/0b7d4c1e5f2a9d36/digits')
    """
    store = Store(address)
    if (version := store.version()) is not None:
        versions = {"": version}
    else:
        versions = {
            name: version
            for name, version in store.find().items()
            if _is_read(name) and (wanted is None or wanted(name))
        }
    if not versions:
        raise ValueError(f"There is nothing at {store.address}.")
    text = json.dumps([store.address, sorted(versions.items())])
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    name = re.sub(r"[^\w.-]|^\.+", "_", store.address.rpartition("/")[2])
    path = _cache() / digest / name
    if not path.exists():
        _fetch(store, versions, path)
    return path


def on_disk(path: str) -> str:
    """The path itself, or that of what was fetched from an address.

    Example:
        >>> on_disk("runs/digits")
        'runs/digits'
    """
    return str(fetched(path)) if of_store(path) else path


def _fetch(store, versions, path):
    """Downloads beside the place, so that what is there is whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        temporary = pathlib.Path(folder, path.name)
        for name in versions:
            if not store.download(name, temporary / name):
                raise OSError(
                    f"{store.address} changes while it is read: {name!r} is "
                    "gone. Give the same command again."
                )
        with contextlib.suppress(FileExistsError):
            # Another process may have been faster.
            if not path.exists():
                temporary.rename(path)


def _is_read(name: str) -> bool:
    """Whether a name is of a visible file inside, and of no checkpoint."""
    parts = name.split("/")
    inside = "\\" not in name and not {"", ".", ".."}.intersection(parts)
    left_out = parts[0] in ("checkpoints", "tensorboard")
    return inside and not left_out and not parts[0].startswith(".")


def _cache() -> pathlib.Path:
    home = os.environ.get("KERAS_HOME") or os.path.expanduser("~/.keras")
    return pathlib.Path(home, "stores")


def _version(about: dict) -> str:
    """A hash or number of the content; no two stores name it alike."""
    names = "generation", "ETag", "etag", "md5Hash"
    found = next((about[x] for x in names if about.get(x)), "")
    return f"{str(found).strip(chr(34))}-{about['size']}"


def _file_system(scheme: str) -> Any:
    check_installed(f"Opening {scheme}:// addresses", STORES[scheme])
    return MAKERS[scheme]()


# Other processes write at the same time: what was listed is soon untrue.
ALWAYS = {"use_listings_cache": False}


def _s3():
    import s3fs

    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3")
    endpoint = endpoint or os.environ.get("AWS_ENDPOINT_URL")
    # fsspec keeps one file system for the same arguments.
    return s3fs.S3FileSystem(endpoint_url=endpoint, **ALWAYS)


def _gs():
    import gcsfs

    # It logs what it raises, with its traceback.
    logging.getLogger("gcsfs").setLevel(logging.CRITICAL)
    options = {"consistency": "md5", **ALWAYS}
    host = os.environ.get("STORAGE_EMULATOR_HOST")
    if not host:
        return gcsfs.GCSFileSystem(**options)
    # Emulators have neither credentials nor gRPC, which the other asks.
    host = host if "://" in host else f"http://{host}"
    return gcsfs.core.GCSFileSystem(endpoint_url=host, token="anon", **options)


MAKERS = {"gs": _gs, "s3": _s3}


@contextlib.contextmanager
def explaining(address: str) -> Iterator[None]:
    """Raises errors of the libraries as Python's own, in one line.

    Raises:
        ValueError: when there is no such bucket.
        PermissionError: when the credentials are missing or do not suffice.
        OSError: when the store does not answer, after the libraries' retries.
    """
    bucket = address.partition("://")[2].partition("/")[0]
    try:
        yield
    except Exception as error:
        text = (str(error).strip() or type(error).__name__).splitlines()[0]
        if address in text:
            raise  # Explained further inside.
        if isinstance(error, FileNotFoundError):
            raise ValueError(
                f"There is no bucket {bucket!r}: {address} cannot be used. "
                "Create it, or give another address."
            ) from error
        if _is_refused(error, text):
            raise PermissionError(
                f"No permission for {address}: {text}. Give credentials that "
                "may list, read, write and delete objects there."
            ) from error
        if isinstance(error, OSError) and error.filename is not None:
            raise  # Of a file on this machine.
        raise OSError(f"{address} cannot be reached: {text}") from error


def _is_refused(error, text):
    known = "NoCredentialsError", "DefaultCredentialsError", "RefreshError"
    # Of botocore, where s3fs makes an error of its own of it.
    response = getattr(error.__cause__, "response", None)
    of_botocore = response if isinstance(response, dict) else {}
    status = of_botocore.get("ResponseMetadata", {}).get("HTTPStatusCode")
    return (
        isinstance(error, PermissionError)
        or type(error).__name__ in known
        or str(getattr(error, "code", status)) in ("401", "403")
        or text.startswith("Forbidden")
    )
