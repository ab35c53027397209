"""Runs on an object store: a copy on this machine, kept like the store.

A run works in a local folder, and what it wrote there is put into the store
after each checkpoint, at its end and where it fails: a checkpoint behind all
else, as the objects are put whole and in this order. So the store always has a
run that a machine which was taken away left at that checkpoint. Who continues
it gets the objects first. For local folders nothing here does anything.
"""

import atexit
import contextlib
import fnmatch
import os
import pathlib
import re
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator

from keras_vit.io.atomic_files import PARTIAL
from keras_vit.io.run_folder import CONFIG, MANIFEST, RESULT
from keras_vit.io.stores import Store, is_address, whole_address

__all__ = [
    "Mirror",
    "get",
    "local",
    "mirror_of",
    "publish",
    "published",
    "put",
    "remove_others",
    "shown",
]

PREFIX = "keras_vit-run-"
IN_USE = "in-use"  # A file that is locked as long as its process lives.
PREVIOUS = ".previous-run"
# Small, and enough to know what a run is: the rest comes when it is taken.
FIRST = (
    *(MANIFEST, CONFIG, "environment.json", RESULT),
    *(f"{PREVIOUS}/{MANIFEST}", f"{PREVIOUS}/{RESULT}"),
)
CHECKPOINT = r"checkpoints/step-\d+\.npz"
SHARDS = r"checkpoints/step-\d+-[0-9a-f]{8}-\d+\.npz"
# What is put before all else and behind it, as patterns: a checkpoint behind
# what belongs to it.
PUT = (MANIFEST,), (SHARDS, CHECKPOINT, RESULT)
# And removed: first what makes the others those of a run.
REMOVED = (RESULT, CONFIG, CHECKPOINT), (MANIFEST,)
# What a run itself removes. Other files that are missing here are kept there:
# folders for temporary files are emptied by age.
PRUNED = "checkpoints/*-*.npz", f"{PREVIOUS}/*"
MISSED = (1, 3, 9)  # seconds, until what is listed is looked for again
WAITS = (5, 20, 60)  # seconds, behind those of the libraries

_mirrors: dict[str, "Mirror"] = {}


class Mirror:
    """The folder of a run on this machine, and its objects in the store.

    Args:
        address: of the run.

    Attributes:
        folder: the local folder.
        store: the `Store`.
        check: called before anything is put or removed; raises where this
            process may no longer do so.
    """

    def __init__(self, address: str):
        self.store = Store(address)
        home = _new_home()
        # Keys may have any character.
        name = re.sub(r"[^\w.-]|^\.+", "_", address.rpartition("/")[2])
        self.folder = home / name
        self.folder.mkdir()
        self.check: Callable[[], None] = lambda: None
        self._known: dict[str, tuple] = {}
        self._busy = threading.RLock()

    def get(self, patterns: Iterable[str]) -> None:
        """Brings files of some names to what the store has.

        A listing may lack what is there, and what it has may not be found for
        a moment: who asks for the object itself decides.

        Raises:
            OSError: when an object that is listed again and again is missing.
        """
        with self._busy:
            for pause in (*MISSED, None):
                missing = self._get_listed(patterns)
                if not missing:
                    return
                if pause is not None:
                    time.sleep(pause)
        raise OSError(
            f"{self.store.address} lists {missing[0]!r}, which is not there. "
            "Give the same command again."
        )

    def _get_listed(self, patterns) -> list[str]:
        """Gets what is listed; the names of what is not there after all."""
        missing = []
        versions = {
            name: version
            for name, version in self.store.find().items()
            if _matches(name, patterns) and not _is_temporary(name)
        }
        for name, version in versions.items():
            path = self.folder / name
            if self._known.get(name, ((), None))[1] == version:
                continue
            if self.store.download(name, path):
                self._known[name] = _stamp(path), version
            else:
                missing.append(name)
        for name in self._known.keys() - versions.keys():
            if _matches(name, patterns):
                path = self.folder / name
                if self.store.download(name, path):
                    self._known[name] = _stamp(path), None
                else:
                    path.unlink(missing_ok=True)
                    del self._known[name]
        return missing

    def publish(self, *, exactly: bool = False) -> None:
        """Brings the store to what the folder has.

        Args:
            exactly: whether to remove all that is gone, and not only old
                checkpoints and what a run replaced.
        """
        with self._busy:
            found = self._files()
            changed = [x for x in found if found[x] != self._stamp_of(x)]
            gone = {
                name
                for name in self._known.keys() - found.keys()
                if exactly or _matches(name, PRUNED)
            }
            if changed or gone:
                self.check()
            moved = {self._stamp_of(name): name for name in gone}
            for name in sorted(changed, key=lambda x: _place(x, *PUT)):
                if (old := moved.get(found[name])) is not None:
                    self.store.copy(old, name)
                else:
                    self._upload(name)
                self._known[name] = found[name], None
            self._remove(gone)

    def put(self, path: pathlib.Path, *, keep: bool) -> None:
        """Puts one file, and removes the local one unless it is to be kept."""
        name = path.relative_to(self.folder).as_posix()
        with self._busy:
            self._upload(name)
            if keep:
                self._known[name] = _stamp(path), None
            else:
                path.unlink()

    def remove_shards(self, kept: Iterable[str]) -> None:
        """Removes the shards that other processes put, but for some."""
        kept = {f"checkpoints/{name}" for name in kept}
        with self._busy:
            names = self.store.find("checkpoints/").keys() - kept
            self._remove({x for x in names if re.fullmatch(SHARDS, x)})

    def _remove(self, names):
        self.store.remove(sorted(names, key=lambda x: _place(x, *REMOVED)))
        for name in names:
            self._known.pop(name, None)

    def _stamp_of(self, name):
        return self._known.get(name, ((), None))[0]

    def _files(self) -> dict[str, tuple]:
        paths = (x for x in self.folder.rglob("*") if x.is_file())
        found = {}
        for path in paths:
            name = path.relative_to(self.folder).as_posix()
            if not _is_temporary(name):
                with contextlib.suppress(FileNotFoundError):
                    found[name] = _stamp(path)
        return found

    def _upload(self, name):
        """Puts a file as it is now, though a new one may take its place."""
        path = self.folder / name
        held = self.folder.parent / "put" / name
        held.parent.mkdir(parents=True, exist_ok=True)
        held.unlink(missing_ok=True)
        # Files that grow are copied; the others are replaced as a whole.
        take = os.link if path.suffix in (".npz", ".keras") else shutil.copyfile
        take(path, held)
        try:
            self.store.upload(held, name)
        finally:
            held.unlink()


def _matches(name, patterns) -> bool:
    """Whether a name is of a pattern, and of nothing outside the folder."""
    parts = name.split("/")
    plain = "\\" not in name and not {"", ".", ".."}.intersection(parts)
    return plain and any(fnmatch.fnmatchcase(name, x) for x in patterns)


def _is_temporary(name):
    base = name.rpartition("/")[2]
    return base.startswith((PARTIAL, ".keras_vit_lock"))


def _stamp(path) -> tuple:
    about = path.stat()
    return about.st_ino, about.st_size, about.st_mtime_ns


def _place(name, first, last) -> tuple[int, str]:
    """Where a name is in an order, of the run or of the one it replaces."""
    plain = name.removeprefix(f"{PREVIOUS}/")
    places = dict(enumerate(first, start=-len(first)))
    places |= enumerate(last, start=1)
    found = (i for i, x in places.items() if re.fullmatch(x, plain))
    return next(found, 0), name


def _new_home() -> pathlib.Path:
    """A new folder, which is removed at the end, or by the next process."""
    parent = pathlib.Path(tempfile.gettempdir())
    for old in parent.glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):
            if _is_left(old / IN_USE):
                shutil.rmtree(old, ignore_errors=True)
    home = pathlib.Path(tempfile.mkdtemp(prefix=PREFIX)).resolve()
    lock = (home / IN_USE).open("w")
    _lock_file(lock)
    atexit.register(_remove_home, home, lock)
    return home


def _is_left(path):
    """Whether the process of a folder has ended without removing it."""
    with path.open() as file:
        return _lock_file(file)


def _lock_file(file) -> bool:
    try:
        import fcntl
    except ImportError:
        return False  # Windows: what killed processes leave, users remove.
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return True


def _remove_home(home, lock):
    lock.close()
    shutil.rmtree(home, ignore_errors=True)


def local(path: str | os.PathLike) -> pathlib.Path:
    """The local folder of a run: the path itself, or the copy of an address.

    Of a run that is in the store, the copy has the files that tell what it
    is; `run_folder.taken` gets all.

    Raises:
        ValueError: when there is no such kind of store, or no bucket.
        OSError: when the store cannot be used.

    Example:
        >>> local("runs/digits")
        PosixPath('runs/digits')
    """
    if not is_address(path):
        return pathlib.Path(path)
    address = whole_address(path)
    if address not in _mirrors:
        mirror = Mirror(address)
        mirror.get(FIRST)
        _mirrors[address] = mirror
    return _mirrors[address].folder


def mirror_of(folder: pathlib.Path) -> Mirror | None:
    """The `Mirror` that a folder, or a file, is of; None of other folders."""
    for mirror in _mirrors.values():
        if folder.is_relative_to(mirror.folder):
            return mirror
    return None


def shown(folder: pathlib.Path) -> str:
    """A folder as its user gave it: by its address, where it is a copy."""
    mirror = mirror_of(folder)
    if mirror is None:
        return str(folder)
    inside = folder.relative_to(mirror.folder).as_posix()
    return "/".join(
        [mirror.store.address, *([inside] if inside != "." else [])]
    )


def get(folder: pathlib.Path, *patterns: str) -> None:
    """Brings files that another process put to what the store has."""
    if (mirror := mirror_of(folder)) is not None:
        mirror.get(patterns)


def publish(folder: pathlib.Path, *, exactly: bool = False) -> None:
    """Puts what is new in the folder of a run into its store.

    Where the store does not answer, it is asked again: a training has time.

    Args:
        folder: of the run, or a file in it.
        exactly: see `Mirror.publish`.

    Raises:
        OSError: when the store does not take it, or another process has
            taken the run.
    """
    if (mirror := mirror_of(folder)) is not None:
        _patiently(lambda: mirror.publish(exactly=exactly))


def put(path: pathlib.Path, *, keep: bool) -> None:
    """Puts a file, and removes the local one unless it is to be kept."""
    if (mirror := mirror_of(path)) is not None:
        _patiently(lambda: mirror.put(path, keep=keep))


def _patiently(work):
    for pause in WAITS:
        try:
            return work()
        except PermissionError:
            raise
        except OSError as error:
            print(f"{error}. Again in {pause} s.", file=sys.stderr)
            time.sleep(pause)
    return work()


def remove_others(folder: pathlib.Path, kept: Iterable[str]) -> None:
    """Removes the shards in the store of checkpoints that are not there."""
    if (mirror := mirror_of(folder)) is not None:
        mirror.remove_shards(kept)


@contextlib.contextmanager
def published(folder: pathlib.Path) -> Iterator[None]:
    """Publishes at the end of the block, also where it raises."""
    try:
        yield
    except BaseException:
        # The metrics tell why it ended. That the store fails is no news then.
        with contextlib.suppress(Exception):
            if (mirror := mirror_of(folder)) is not None:
                mirror.publish()
        raise
    publish(folder)
