"""One run, one process: the lock of a run folder.

The lock is a file in the folder that says which process has it: where, since
when. It is made by the one call that is atomic on every file system, and goes
with the run. A process that was killed leaves its lock behind. On the machine
of the lock the process number and the moment of its start tell whether the
process lives. On another one, which shares the disk, they tell nothing: there
the lock is watched, whose time its process renews. No two clocks are compared.
In a store the lock is an object that its process puts anew.
"""

import contextlib
import datetime
import json
import os
import pathlib
import platform
import sys
import threading
import time
from collections.abc import Iterator

from keras_vit.io.atomic_files import PARTIAL
from keras_vit.training.run import store as run_store

__all__ = ["LOCK", "kept", "locked"]

LOCK = ".keras_vit_lock.json"
RENEWED_SECONDS = 5  # NFS shows a change of another host within some seconds.
STALE_SECONDS = 60
POLL_SECONDS = 1

STORE_RENEWED_SECONDS = 15  # Stores take each object some times a second.

_held: set[pathlib.Path] = set()
_stacks: list[contextlib.ExitStack] = []


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
    mirror = run_store.mirror_of(folder)
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

    def __init__(self, mirror: run_store.Mirror):
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
