"""Public files in the cache of Keras.

`keras.utils.get_file` neither resumes nor tries again, and verifies only after
it gave the file its name. So the file is put, verified, where `get_file` keeps
its files, and `get_file` then finds it there.
"""

import contextlib
import dataclasses
import os
import tempfile
from pathlib import Path

import keras

from keras_vit.checkpoints.public.integrity import (
    digests_of_server,
    file_digest,
)
from keras_vit.checkpoints.public.receive import receive

__all__ = ["Download", "is_offline", "keras_home"]


def is_offline() -> bool:
    """Whether HF_HUB_OFFLINE forbids the network.

    Returns:
        bool.

    Example:
        >>> os.environ["HF_HUB_OFFLINE"] = "1"
        >>> is_offline()
        True
    """
    setting = os.environ.get("HF_HUB_OFFLINE", "")
    return setting.upper() in ("1", "ON", "YES", "TRUE")


def keras_home() -> Path:
    """The folder that get_file keeps its files under: KERAS_HOME or ~/.keras.

    Returns:
        Path, of a folder that can be written to.

    Example:
        >>> keras_home()
        PosixPath('/home/user/.keras')
    """
    home = Path(os.environ.get("KERAS_HOME") or "~/.keras").expanduser()
    with contextlib.suppress(OSError):
        home.mkdir(parents=True, exist_ok=True)
    if os.access(home, os.W_OK):
        return home
    return Path(tempfile.gettempdir()) / ".keras"


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
        """Where the file is once it was fetched."""
        return keras_home() / "models" / self.file_name

    @property
    def part(self) -> Path:
        """Where the bytes are until all have come and were verified."""
        return self.path.with_name(f"{self.file_name}.part")

    def fetch(self) -> str:
        """Downloads the file unless it is in the cache.

        Returns:
            str, its path.

        Raises:
            OSError: no network, no such file, or no space.
            ValueError: the file is not what it should be.
        """
        if self.path.is_file():
            self._check_cached()
        elif is_offline():
            raise OSError(
                f"HF_HUB_OFFLINE is set, and there is no {self.path}. "
                f"{self.by_hand()}"
            )
        else:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with _one_process(self.path):
                if not self.path.is_file():
                    self._receive()
        return keras.utils.get_file(
            self.file_name,
            origin=self.url,
            cache_dir=str(keras_home()),
            cache_subdir="models",
        )

    def by_hand(self) -> str:
        """What a person can do where this machine cannot download."""
        expected = [f"{self.num_bytes:,} bytes"] if self.num_bytes else []
        expected += [f"SHA-256 {self.sha256}"] if self.sha256 else []
        what = f" ({', '.join(expected)})" if expected else ""
        return (
            f"Fetch {self.url}{what} on a machine with a network and put it at "
            f"{self.path}, or pass the path of your copy as weights."
        )

    def _check_cached(self):
        size = self.path.stat().st_size
        if self.num_bytes not in (None, size):
            raise ValueError(
                f"{self.path} has {size:,} bytes, and {self.num_bytes:,} are "
                f"expected. Delete it. {self.by_hand()}"
            )

    def _receive(self):
        if keras.config.is_interactive_logging_enabled():
            print(f"Downloading {self.url} to {self.path}")
        self.part.touch()
        try:
            headers = receive(
                self.url,
                self.part,
                file_name=self.file_name,
                num_bytes=self.num_bytes,
            )
            self._check_digests(digests_of_server(headers))
        except ValueError as error:
            raise ValueError(f"{error} {self.by_hand()}") from error
        except OSError as error:
            raise OSError(f"{error} {self.by_hand()}") from error
        finally:
            if self.part.stat().st_size == 0:
                self.part.unlink()
        os.replace(self.part, self.path)

    def _check_digests(self, expected):
        if self.sha256:
            expected = {**expected, "sha256": self.sha256}
        for algorithm, digest in expected.items():
            found = file_digest(self.part, algorithm)
            if found != digest:
                os.truncate(self.part, 0)
                raise ValueError(
                    f"The {algorithm} of {self.url} is {found}, and {digest} "
                    "is expected: the file is damaged or another one."
                )


@contextlib.contextmanager
def _one_process(path):
    """Lets the processes of one machine wait for the one that downloads.

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
