"""The folder of a run: its files, its lock, and its copy in an object store.

Each file is written beside its place, fsynced and then renamed, so that a file
that exists is whole. The first file is the manifest: it says that the folder is
of a run, and which files in it are the run's. No other file is ever moved or
removed. result.json is the last: a folder that has it is a finished run. A
model.keras is a zip archive, in which Keras ignores the class names that stand
beside the model.

One run, one process: the lock is a file in the folder that says which process
has it: where, since when. It is made by the one call that is atomic on every
file system, and goes with the run. A process that was killed leaves its lock
behind. On the machine of the lock the process number and the moment of its
start tell whether the process lives. On another one, which shares the disk,
they tell nothing: there the lock is watched, whose time its process renews. No
two clocks are compared. In a store the lock is an object that its process puts
anew.

A run on an object store works in a folder on this machine, and what it wrote
there is put into the store after each checkpoint, at its end and where it
fails: a checkpoint behind all else, as the objects are put whole and in this
order. So the store always has a run that a machine which was taken away left at
that checkpoint. Who continues it gets the objects first. For local folders
nothing of this is done.
"""

import atexit
import collections
import contextlib
import datetime
import fnmatch
import json
import os
import pathlib
import platform
import re
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator

from keras_vit.data.manifest import MANIFEST as IMAGES
from keras_vit.data.manifest import OVERVIEW
from keras_vit.io.atomic_files import (
    PARTIAL,
    replacing,
    write_json,
    write_yaml,
)
from keras_vit.io.run_folder import CONFIG, MANIFEST, RESULT
from keras_vit.io.run_folder import read_config as read_run_config
from keras_vit.io.stores import Store, is_address, whole_address
from keras_vit.version import __version__

__all__ = [
    "ENVIRONMENT",
    "LOCK",
    "Mirror",
    "begin",
    "check",
    "flat",
    "get",
    "is_begun",
    "kept",
    "local",
    "locked",
    "mirror_of",
    "publish",
    "published",
    "put",
    "read_config",
    "remove_others",
    "remove_partial",
    "save_model",
    "shown",
    "taken",
    "write_examples",
    "write_result",
    "write_summary",
]

ENVIRONMENT = "environment.json"
EXAMPLES = "examples"
# What a run may write, in the order in which a replaced run is moved: killed
# in between, it still looks finished. The examples are listed by name.
FILES = (
    CONFIG,
    ENVIRONMENT,
    "class_names.json",
    IMAGES,
    OVERVIEW,
    "history.csv",
    "metrics.jsonl",
    "trackers.json",
    "model.keras",
    "predictions.npz",
    "predictions.csv",
    "per_class.csv",
    "attention.npz",
    "augmented.npz",
    "over_time.npz",
    "few_shot.csv",
    "few_shot.png",
    "mae.png",
    "masked_patch.png",
    "pseudo_labels.npz",
    "report.html",
    "curves.png",
    "confusion.png",
    "checkpoints/step-*.npz",
    "checkpoints/average.keras",
    "checkpoints/best-*.npz",
    "tensorboard/events.out.tfevents.*",
    *(f"{inside}{PARTIAL}*" for inside in ("", "checkpoints/", f"{EXAMPLES}/")),
    RESULT,
)
ALL = (MANIFEST, *FILES, f"{EXAMPLES}/*.png")
EXAMPLE = re.compile(rf"{EXAMPLES}/[^/\\*?\[]+\.png")
LOCK = ".keras_vit_lock.json"
RENEWED_SECONDS = 5  # NFS shows a change of another host within some seconds.
STALE_SECONDS = 60
POLL_SECONDS = 1
STORE_RENEWED_SECONDS = 15  # Stores take each object some times a second.
_held: set[pathlib.Path] = set()
_stacks: list[contextlib.ExitStack] = []


@contextlib.contextmanager
def taken(
    path: str | os.PathLike, *, overwrite: bool
) -> Iterator[pathlib.Path]:
    """Locks a folder that a run may use: until the end no other process may.

    Raises:
        ValueError: as `check` does, and when another process has the folder.

    Example:
        >>> with taken("runs/digits", overwrite=False) as folder:
        ...     begin(folder, config, environment)
    """
    folder = check(path, overwrite=overwrite)
    with locked(folder):
        get(folder, *ALL, *(f"{PREVIOUS}/{x}" for x in ALL))
        # Another process may have ended between the two.
        yield check(path, overwrite=overwrite)


def check(path: str | os.PathLike, *, overwrite: bool) -> pathlib.Path:
    """Checks that a run may use a folder, which need not exist.

    Raises:
        ValueError: when the folder holds a finished run and overwrite is
            False, holds files that no run wrote, or is no folder.
    """
    folder = local(path)
    if folder.exists() and not folder.is_dir():
        raise ValueError(
            f"{str(folder)!r} is not a folder. Choose another --run_dir."
        )
    found = list(folder.iterdir()) if folder.exists() else []
    # A run that is killed in its first moment leaves only these.
    found = [
        file for file in found if not file.name.startswith((PARTIAL, LOCK))
    ]
    if found and _listed(folder) is None:
        raise ValueError(
            f"The folder {shown(folder)!r} holds files that are not of a run: "
            f"it has no {MANIFEST}. Choose another --run_dir."
        )
    if (folder / RESULT).exists() and not overwrite:
        raise ValueError(
            f"The folder {shown(folder)!r} holds a finished run. Choose "
            "another --run_dir, a higher --training.epochs to train it longer, "
            "or --overwrite true to replace it."
        )
    return folder


def save_model(model, class_names, path: str | os.PathLike) -> None:
    """Save a model with its class names, without optimizer, LoRA merged.

    Of several processes, which all call it, the first one writes.

    Args:
        model: the Keras model to save.
        class_names: see `keras_vit.checkpoints.engine.keras_files.save_model`.
        path: the file, with the suffix .keras.

    Raises:
        ValueError: when there is not one name per output.
    """
    from keras_vit.checkpoints.engine import keras_files
    from keras_vit.models.configured_model import merged
    from keras_vit.training.build import in_units
    from keras_vit.training.distribution.processes import (
        gathered,
        is_first,
        to_numpy,
    )

    keras_files.check_class_names(model, class_names)
    with in_units(model):
        model = merged(model, to_numpy)
        with gathered(model):
            if is_first():
                keras_files.save_model(model, class_names, path)


def read_config(folder: pathlib.Path) -> dict:
    """Read the config.yaml of a run, which may be a copy of an address.

    Raises:
        ValueError: when it is missing, or is no config.
    """
    return read_run_config(folder, shown(folder / CONFIG))


def flat(config: dict, prefix: str = "") -> dict:
    """The fields of a config by their names on the command line."""
    fields = {}
    for name, value in config.items():
        if isinstance(value, dict):
            fields |= flat(value, f"{prefix}{name}.")
        else:
            fields[prefix + name] = value
    return fields


def begin(folder: pathlib.Path, config: dict, environment: dict) -> None:
    """Begins a run in a folder that `check` allows.

    What an earlier run wrote is moved into `.previous-run`, which
    `write_result` removes; all other files stay as they are.
    """
    _move_aside(folder)
    publish(folder, exactly=True)
    folder.mkdir(parents=True, exist_ok=True)
    write_json(
        folder / MANIFEST, {"keras_vit": __version__, "files": list(FILES)}
    )
    write_json(folder / ENVIRONMENT, environment)
    write_yaml(folder / CONFIG, config)
    publish(folder)


def remove_partial(folder: pathlib.Path) -> None:
    """Removes what a killed process of a run had begun to write."""
    _remove(folder, [x for x in FILES if PARTIAL in x])


def write_result(folder: pathlib.Path, result: dict) -> None:
    """Writes result.json: the run is finished, what it replaced is removed."""
    write_json(folder / RESULT, result)
    publish(folder)
    _remove_previous(folder)
    publish(folder)


def write_summary(folder: pathlib.Path, result: dict) -> None:
    """Writes result.json of several runs, whose folders are below."""
    write_json(folder / RESULT, result)
    publish(folder)


def is_begun(folder: pathlib.Path) -> bool:
    """Whether a run wrote more than its first two files."""
    first = {folder / ENVIRONMENT, *folder.glob(f"{PARTIAL}*")}
    return not first.issuperset(_files(folder, _listed(folder) or ()))


def _listed(folder) -> list[str] | None:
    """The files of the run by the manifest, as patterns; None without one."""
    path = folder / MANIFEST
    if not path.is_file():
        return None
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        listed = content["files"]
        # A manifest that others edited names nothing that runs do not write.
        return [x for x in listed if x in FILES or EXAMPLE.fullmatch(x)]
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise ValueError(
            f"{shown(path)!r} is damaged, so that it is unknown which files "
            "are of the run. Choose another --run_dir."
        ) from error


def _files(folder, listed) -> list[pathlib.Path]:
    """The files of a run that are there, result.json last."""
    return [
        path
        for pattern in sorted(listed, key=lambda x: x == RESULT)
        for path in folder.glob(pattern)
        if path.is_file()
    ]


def _move_aside(folder):
    """Moves a finished run into PREVIOUS; removes an unfinished one."""
    listed = _listed(folder)
    if listed is None:
        listed = [f"{PARTIAL}*"]
    if not (folder / RESULT).exists():
        _remove(folder, listed)
        return
    previous = folder / PREVIOUS
    if (previous / RESULT).exists():
        _remove_previous(folder)  # This run was killed before it did so.
    previous.mkdir(exist_ok=True)
    with replacing(previous / MANIFEST) as path:
        shutil.copyfile(folder / MANIFEST, path)
    found = _files(folder, listed)
    for path in found:
        target = previous / path.relative_to(folder)
        target.parent.mkdir(exist_ok=True)
        path.replace(target)
    _remove_empty(found)
    print(f"The run before is in {shown(previous)} until this one is finished.")


def _remove_previous(folder):
    previous = folder / PREVIOUS
    with contextlib.suppress(ValueError):  # What is damaged stays.
        _remove(previous, _listed(previous) or [])
    (previous / MANIFEST).unlink(missing_ok=True)
    _remove_empty([previous / MANIFEST])


def _remove(folder, listed):
    found = _files(folder, listed)
    for path in found:
        path.unlink(missing_ok=True)
    _remove_empty(found)


def _remove_empty(files):
    """Removes the folders of files that are gone, if nothing is left there."""
    for folder in sorted({x.parent for x in files}, reverse=True):
        with contextlib.suppress(OSError):
            folder.rmdir()


def write_examples(folder: pathlib.Path, images, labels, class_names) -> None:
    """Saves images as examples/<class>_<n>.png, n from 0 in each class.

    A file that is there already and that no run wrote is left as it is.

    Args:
        folder: the run folder.
        images: uint8 array of shape (N, H, W, C).
        labels: integer array of shape (N,).
        class_names: sequence of str.
    """
    from PIL import Image

    seen, named = collections.Counter(), {}
    for image, label in zip(images, labels, strict=True):
        name = _file_name(class_names[label])
        named[f"{EXAMPLES}/{name}_{seen[name]}.png"] = image
        seen[name] += 1
    listed = _listed(folder) or []
    named = {
        name: image
        for name, image in named.items()
        if name in listed or not (folder / name).exists()
    }
    # Before they are there: what is not listed is never removed.
    files = list(dict.fromkeys([*listed, *named]))
    content = {"keras_vit": __version__, "files": files}
    write_json(folder / MANIFEST, content)
    (folder / EXAMPLES).mkdir(exist_ok=True)
    for name, image in named.items():
        grey = image.shape[-1] == 1
        with replacing(folder / name) as path:
            Image.fromarray(image[..., 0] if grey else image).save(path)


def _file_name(class_name: str) -> str:
    """A class name as a part of a file name, of at most 200 bytes."""
    return re.sub(r"[^\w-]+", "-", class_name)[:50]


@contextlib.contextmanager
def kept() -> Iterator[None]:
    """Keeps the locks that are taken within, to its end."""
    with contextlib.ExitStack() as stack:
        _stacks.append(stack)
        try:
            yield
        finally:
            _stacks.remove(stack)


@contextlib.contextmanager
def locked(folder: pathlib.Path) -> Iterator[None]:
    """Holds the lock of a run folder, which is made where there is none.

    A process may take the lock that it holds. Within `kept` the lock outlives
    the block.

    Raises:
        ValueError: when another process holds it.

    Example:
        >>> with locked(pathlib.Path("runs/digits")):
        ...     train()
    """
    folder = folder.resolve()
    if folder in _held:
        yield
        return
    mirror = mirror_of(folder)
    lock = _FileLock(folder) if mirror is None else _StoreLock(mirror)
    with contextlib.ExitStack() as own:
        (_stacks[-1] if _stacks else own).enter_context(_lock(folder, lock))
        yield


@contextlib.contextmanager
def _lock(folder, lock):
    text = json.dumps(_this_process())
    while not lock.make(text):
        _remove_stale(lock)
    ended = threading.Event()
    threading.Thread(target=_renew, args=(lock, ended), daemon=True).start()
    _held.add(folder)
    try:
        yield
    finally:
        _held.discard(folder)
        ended.set()
        with contextlib.suppress(OSError):
            lock.release(text)


def _this_process() -> dict:
    now = datetime.datetime.now(datetime.UTC)
    return {
        "host": platform.node(),
        "machine": _machine(),
        "process": os.getpid(),
        "started": _started(os.getpid()),
        "time": now.isoformat(" ", "microseconds"),
    }


def _machine() -> str | None:
    """What numbers processes: a start of Linux, a container on it."""
    try:
        boot = pathlib.Path("/proc/sys/kernel/random/boot_id").read_text()
        return f"{boot.strip()} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return None  # Another system: locks are watched.


def _started(process: int) -> str | None:
    """When a process started, in ticks; None where there is none."""
    try:
        text = pathlib.Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return None
    # Its name, in parentheses, may have anything in it. A zombie has ended.
    state, *fields = text.rpartition(")")[2].split()
    return None if state in "ZX" else fields[18]


class _FileLock:
    """The lock of a folder on a disk."""

    def __init__(self, folder: pathlib.Path):
        self.seconds = RENEWED_SECONDS
        self.place = str(folder)
        self.path = folder / LOCK

    def make(self, text: str) -> bool:
        """Whether the lock could be made, and was not there."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with self.path.open("x") as file:
                file.write(text)
        except FileExistsError:
            return False
        return True

    def renew(self) -> None:
        os.utime(self.path)

    def read(self) -> tuple[str, object] | None:
        """The text of the lock and what tells its renewal; None without."""
        return _read(self.path)

    def remove(self, found) -> None:
        """Removes the lock if it is still what was found.

        Renamed before it is removed: of two processes that find a stale lock,
        the second must not remove that of the first.
        """
        aside = self.path.with_name(f"{PARTIAL}lock-{os.getpid()}")
        with contextlib.suppress(FileNotFoundError):
            self.path.rename(aside)
            if _read(aside) != found:
                aside.rename(self.path)
                return
            aside.unlink()

    def release(self, text: str) -> None:
        if (now := self.read()) and now[0] == text:
            self.path.unlink()


def _read(path) -> tuple[str, int] | None:
    try:
        # Opened: NFS looks anew only then.
        with path.open(encoding="utf-8", errors="replace") as file:
            return file.read(), os.fstat(file.fileno()).st_mtime_ns
    except FileNotFoundError:
        return None


class _StoreLock:
    """The lock of a run in a store: its text, and a number that is renewed.

    No store removes an object on a condition, so that two processes which
    find a stale lock at once may both make theirs. Which of them has the run
    is what the store says before each write: see `Mirror.check`.
    """

    def __init__(self, mirror: "Mirror"):
        self.seconds = STORE_RENEWED_SECONDS
        self.place = mirror.store.address
        self.mirror, self.store = mirror, mirror.store
        self.text, self.renewals = "", 0

    def make(self, text: str) -> bool:
        if not self.store.create(LOCK, f"{text}\n".encode()):
            return False
        self.text, self.mirror.check = text, self.check
        return True

    def check(self) -> None:
        """Raises where another process has taken the run.

        A store may miss for a moment what is there.
        """
        if (now := self.read()) is None:
            time.sleep(POLL_SECONDS)
            now = self.read()
        if now is None or now[0] != self.text:
            raise PermissionError(
                f"Another process has taken the run in {self.place}, as this "
                "one gave no sign for a while: this one ends."
            )

    def renew(self) -> None:
        self.check()
        self.renewals += 1
        self.store.write(LOCK, f"{self.text}\n{self.renewals}".encode())

    def read(self) -> tuple[str, object] | None:
        content = self.store.read(LOCK)
        if content is None:
            return None
        text, _, renewals = content.decode(errors="replace").partition("\n")
        return text, renewals

    def remove(self, found) -> None:
        if self.read() == found:
            self.store.remove([LOCK])

    def release(self, text: str) -> None:
        self.mirror.check = lambda: None
        if (now := self.read()) and now[0] == text:
            self.store.remove([LOCK])


def _renew(lock, ended):
    while not ended.wait(lock.seconds):
        with contextlib.suppress(OSError):
            lock.renew()


def _remove_stale(lock):
    """Removes a lock whose process has ended; a ValueError if it lives."""
    found = lock.read()
    if found is None:
        return
    holder = _holder(found[0])
    if _lives(lock, holder):
        raise ValueError(
            f"The run in {lock.place!r} belongs to process "
            f"{holder.get('process', '?')} on {holder.get('host', '?')}, since "
            f"{str(holder.get('time', '?'))[:19]} UTC. End that process, or "
            "choose another --run_dir."
        )
    lock.remove(found)


def _holder(text) -> dict:
    """Who holds a lock; nothing is known where it is damaged."""
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def _lives(lock, holder) -> bool:
    machine, process = holder.get("machine"), holder.get("process")
    if machine and machine == _machine() and isinstance(process, int):
        return _started(process) == holder.get("started")
    return _is_renewed(lock)


def _is_renewed(lock) -> bool:
    """Watches a lock of another machine."""
    before = lock.read()
    print(
        f"Another machine has left {LOCK}: waiting up to {STALE_SECONDS} "
        "seconds for a sign of its process.",
        file=sys.stderr,
        flush=True,
    )
    end = time.monotonic() + STALE_SECONDS
    while time.monotonic() < end:
        time.sleep(POLL_SECONDS)
        if (now := lock.read()) != before:
            return now is not None
    return False


# --- The copy in a store ---

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
