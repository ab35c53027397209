"""From what `weights=` takes to the path of a file, downloaded if need be.

A download is resumed, retried and verified. `keras.utils.get_file` neither
resumes nor retries, and verifies only after it gave the file its name;
docs/decisions/downloads.md says why pooch and huggingface_hub do not stand
here. The file lies where `get_file` keeps its files and finds it.
"""

import base64
import contextlib
import dataclasses
import difflib
import email.utils
import hashlib
import http.client
import json
import os
import re
import shutil
import ssl
import sys
import tempfile
import time
import urllib.error
import urllib.parse
import zipfile
from email.message import Message
from pathlib import Path

import keras

from keras_vit.checkpoints.files.safetensors import open_safetensors
from keras_vit.checkpoints.public import catalog
from keras_vit.checkpoints.public.network import (
    attempted,
    check_address,
    open_address,
    shown,
    without_secrets,
)
from keras_vit.io.stores import fetched, of_store

__all__ = [
    "Download",
    "cached_path",
    "check_beginning",
    "file_digest",
    "is_address",
    "is_offline",
    "is_whole",
    "resolve",
    "shipped_path",
]

# Weights that come with the package; the README there says how they were made.
FOLDER = Path(__file__).parents[2] / "weights"
# A file of several towers: `file.npz:img`.
SUBTREE = re.compile(r"(?P<source>.+\.npz):(?P<subtree>[^/\\:]+)")
REPOSITORY = re.compile(
    r"(?:hf://|https://huggingface\.co/)(?P<name>[\w.-]+/[\w.-]+)"
    r"(?:@|/tree/|/?$)(?P<revision>[^@]*)"
)
USER_AND_NAME = re.compile(r"(?P<user>\w[\w.-]*)/[\w.-]+(?:@[\w./-]+)?")
KAGGLE = re.compile(r"kaggle://(?P<handle>[\w-]+/[\w-]+(?:/[\w.-]+){2,3})")
PATH_BEGINNINGS = (".", "~", os.sep)
PATH_SUFFIXES = (".npz", ".safetensors", ".h5", ".keras", ".json")
# All that the formats are made of; no pickles.
REPOSITORY_FILES = (
    *("*.json", "model*.safetensors", "*.weights.h5"),
    *("model.keras", "merges.txt", "spiece.model", "tokenizer.model"),
)
# What came stays: each goes on where the last one failed.
REPOSITORY_ATTEMPTS = 10
TENSORS = ("*.safetensors", "*.h5", "*.keras")
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


def resolve(
    source: str | os.PathLike,
    model: str | None = None,
    *,
    texts: bool = False,
) -> str:
    """Return the path of a checkpoint, downloaded if need be.

    Args:
        source: one of

            - a path, with `:subtree` behind an `.npz` of several towers;
            - a name of `keras_vit.checkpoints.public.catalog`, with the model
              before it where `model` is None: "ViT_B16/imagenet21k";
            - "fractals", the weights that come with the package;
            - the `https://` address of a file;
            - `hf://user/repository[@revision]`, or the `https://` address of
              its page, or `user/repository` alone; these need huggingface_hub;
            - a name of timm's, with its tag or without;
            - the address of a file or folder in a store, gs:// or s3://, which
              needs the extra `storage`;
            - `kaggle://user/model/framework/variation[/version]`, which needs
              kagglehub.
        model: str, the application that the weights are for, or None.
        texts: bool, whether the text tower of a repository is needed, too,
            where it is in a second file.

    Returns:
        The path of a file or folder, with the `:subtree` of `source`.

    Raises:
        ValueError: the source is of no such form, or what came is not a
            checkpoint.
        OSError: the download failed, or there is no network; the message says
            what to fetch and where to put it.

    Example:
        >>> resolve("ViT-L_16.npz:img")
        'ViT-L_16.npz:img'
    """
    text = os.fspath(source)
    subtree = SUBTREE.fullmatch(text)
    if subtree:
        path = resolve(subtree["source"], model, texts=texts)
        return f"{path}:{subtree['subtree']}"
    if isinstance(source, os.PathLike) or os.path.exists(text):
        return text
    if of_store(text):
        return str(fetched(text))
    if "://" in text:
        return _fetch_address(text, texts=texts)
    if text.startswith(PATH_BEGINNINGS):
        return os.path.expanduser(text)
    return _fetch_name(text, model, texts)


def is_address(text: str) -> bool:
    """Return whether only fetching shows if there are weights of a name.

    A name such as "google/vit-base-patch16-224" is of a repository where it
    begins with no folder that is here, nor with an application or nearly so.

    Example:
        >>> is_address("google/siglip-base-patch16-224")
        True
        >>> is_address("ViT_B16/imagenet")
        False
    """
    if "://" in text:
        return True
    owner = USER_AND_NAME.fullmatch(text)
    known = [*catalog.MODELS, *catalog.WITHOUT_WEIGHTS]
    return bool(
        owner
        and not difflib.get_close_matches(owner["user"], known)
        and not os.path.isdir(owner["user"])
        and not text.endswith(PATH_SUFFIXES)
    )


def shipped_path(name: str, model: str | None = None) -> str | None:
    """Return the path of weights in the package; None of other names.

    Raises:
        ValueError: when they are wanted as those of an application.
    """
    file = catalog.SHIPPED.get(name.lower())
    if file is None:
        return None
    if model is not None:
        raise ValueError(
            f"The weights {name!r} are of a small model without a name, not "
            f"of {model}. Leave the model's name out (model.name in recipes), "
            "or call keras_vit.load_checkpoint."
        )
    return str(FOLDER / file)


def cached_path(entry: catalog.Entry) -> Path:
    """Return where the file of an entry is once it was downloaded.

    Raises:
        ValueError: it is a repository, whose place huggingface_hub decides.

    Example:
        >>> cached_path(catalog.find("ViT_B16", "imagenet21k")).name
        'ViT_B16_imagenet21k.npz'
    """
    if entry.is_repository:
        raise ValueError(
            f"{entry.name!r} is a repository, not a file. huggingface_hub "
            "knows where its files are."
        )
    return Download(entry.url, entry.file_name).path


def _fetch_name(name, model, texts):
    shipped = shipped_path(name, model)
    if shipped is not None:
        return shipped
    try:
        entry = catalog.find(model, name)
    except ValueError as error:
        if is_address(name):
            try:
                return _fetch_address(f"hf://{name}", texts=texts)
            except OSError as failure:
                raise OSError(
                    f"There is no path {name!r}. {failure}"
                ) from failure
        if name.endswith(PATH_SUFFIXES):
            return name  # Who opens it says that there is no such file.
        raise ValueError(f"{error} Nor is there such a path.") from error
    if entry.url.endswith(catalog.PICKLES):
        raise ValueError(
            f"The weights {name!r} are published as a pickle alone, "
            f"{entry.url}, and pickles are not opened. Where you trust it, "
            "convert it with torch.load(..., weights_only=True) and "
            "safetensors.torch.save_file, and pass the path with "
            f"architecture={entry.architecture!r}."
        )
    if entry.is_repository:
        size = entry.approximate_mebibytes
        about = f", about {size:,.0f} MiB" if size else ""
        return _fetch_address(entry.url, about, texts)
    return Download(
        entry.url, entry.file_name, entry.num_bytes, entry.sha256
    ).fetch()


def _fetch_address(address, about="", texts=False):
    repository = REPOSITORY.fullmatch(address)
    if repository:
        return _fetch_repository(
            repository["name"], repository["revision"] or None, about, texts
        )
    if kaggle := KAGGLE.fullmatch(address):
        return _fetch_from_kaggle(kaggle["handle"])
    if not address.startswith("https://"):
        raise ValueError(
            "Expected an address that starts with https:// or hf://user/name, "
            "gs://, s3://, or kaggle://user/model/framework/variation. "
            f"Received: {shown(address)!r}."
        )
    check_address(address)
    # Many files share a basename: the digest tells their addresses apart.
    digest = hashlib.sha256(address.encode()).hexdigest()[:16]
    path = urllib.parse.unquote(urllib.parse.urlsplit(address).path)
    name = re.sub(r"[^\w.+-]", "_", path.rpartition("/")[2]) or "weights"
    return Download(address, f"{digest}_{name}").fetch()


def _fetch_repository(name, revision, about, texts):
    try:
        import huggingface_hub
    except ImportError as error:
        raise ValueError(
            f"huggingface_hub, which downloads {name!r}, is not installed. "
            'Install it: pip install "keras-vision-transformer[hub]". Or '
            f"download the files of https://huggingface.co/{name} into a "
            "folder and pass its path."
        ) from error
    from keras_vit.checkpoints.dialects import PAIR_WEIGHTS

    try:
        folder = _snapshot(huggingface_hub, name, revision, about)
        if _lacks_pair(Path(folder), texts):
            files = (*REPOSITORY_FILES, PAIR_WEIGHTS)
            folder = _snapshot(huggingface_hub, name, revision, about, files)
    except Exception as error:  # Its errors differ between its versions.
        page = f"https://huggingface.co/{name}/tree/{revision or 'main'}"
        raise OSError(
            f"The repository {name!r} could not be fetched: "
            f"{without_secrets(str(error), None)} Put "
            f"config.json and model*.safetensors of {page} into a folder and "
            "pass the folder's path, or put the repository into the cache of "
            f"huggingface_hub: hf download {name}"
        ) from error
    return _with_weights(folder, name)


def _lacks_pair(folder, texts):
    """Return whether what is needed is in the file of both halves alone."""
    from keras_vit.checkpoints.dialects import PAIR_CONFIG

    if not (folder / PAIR_CONFIG).is_file():
        return False
    config = folder / "config.json"
    told = config.read_text("utf-8") if config.is_file() else ""
    return not any(folder.glob("*.safetensors")) or (
        texts and '"text_config"' not in told
    )


def _snapshot(hub, name, revision, about, files=REPOSITORY_FILES):
    """Return the folder of a repository; what is fetched is said before."""

    def fetch(here, patterns):
        return hub.snapshot_download(
            name,
            revision=revision,
            allow_patterns=list(patterns),
            local_files_only=here,
        )

    if not is_offline():
        try:
            fetch(True, files)
        except Exception:  # It is not here; its errors differ by version.
            # Small files first: of no such repository nothing is said.
            attempted(
                lambda: fetch(False, REPOSITORY_FILES[:1]), REPOSITORY_ATTEMPTS
            )
            print(f"Fetching {catalog.HUB}/{name}{about}", file=sys.stderr)
    return attempted(lambda: fetch(is_offline(), files), REPOSITORY_ATTEMPTS)


def _fetch_from_kaggle(handle):
    try:
        import kagglehub
    except ImportError as error:
        raise ValueError(
            f"kagglehub, which downloads {handle!r}, is not installed. "
            'Install it: pip install "keras-vision-transformer[hub]". Or '
            "download the files of the model into a folder and pass its path."
        ) from error
    if is_offline():
        raise OSError(
            f"HF_HUB_OFFLINE is set: kaggle://{handle} is not downloaded. "
            "Pass the path of a folder with its files."
        )
    try:
        folder = kagglehub.model_download(handle)
    except Exception as error:  # Of several kinds, one of them its own.
        words = without_secrets(" ".join(str(error).split()), None)
        raise OSError(
            f"kaggle://{handle} could not be fetched: {words} Download the "
            "files of the model into a folder and pass its path."
        ) from error
    return _with_weights(folder, handle)


def _with_weights(folder, name):
    """Return the folder of a repository if it holds weights to be opened."""
    if not any(path for kind in TENSORS for path in Path(folder).glob(kind)):
        raise ValueError(
            f"The repository {name!r} holds no *.safetensors, *.h5 or *.keras "
            "in its main folder. Pickles (*.bin, *.pth) are not opened."
            f"{_instead(name)}"
        )
    return folder


def _instead(name):
    known = [entry for entry in catalog.entries() if entry.name == name]
    originals = [e.same_weights_as for e in known if e.same_weights_as]
    if not originals:
        return ""
    return f" The same weights are {known[0].model}/{originals[0]}."


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
