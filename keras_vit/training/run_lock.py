"""One run, one process: the lock of a run folder.

The lock is a file in the folder that says which process has it: where, since
when. It is made by the one call that is atomic on every file system, and goes
with the run. A process that was killed leaves its lock behind. On the machine
of the lock the process number and the moment of its start tell whether the
process lives. On another one, which shares the disk, they tell nothing: there
the lock is watched, whose time its process renews. No two clocks are compared.
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

from keras_vit.files import PARTIAL

__all__ = ["LOCK", "kept", "locked"]

LOCK = ".keras_vit_lock.json"
RENEWED_SECONDS = 5  # NFS shows a change of another host within some seconds.
STALE_SECONDS = 60
POLL_SECONDS = 1

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
    path = folder.resolve() / LOCK
    if path in _held:
        yield
        return
    with contextlib.ExitStack() as own:
        (_stacks[-1] if _stacks else own).enter_context(_lock(path))
        yield


@contextlib.contextmanager
def _lock(path):
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(_this_process())
    while not _made(path, text):
        _remove_stale(path)
    ended = threading.Event()
    threading.Thread(target=_renew, args=(path, ended), daemon=True).start()
    _held.add(path)
    try:
        yield
    finally:
        _held.discard(path)
        ended.set()
        with contextlib.suppress(OSError):
            if (now := _read(path)) and now[0] == text:
                path.unlink()


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


def _made(path, text) -> bool:
    """Whether the lock could be made, and was not there."""
    try:
        with path.open("x") as file:
            file.write(text)
    except FileExistsError:
        return False
    return True


def _renew(path, ended):
    while not ended.wait(RENEWED_SECONDS):
        with contextlib.suppress(OSError):
            os.utime(path)


def _remove_stale(path):
    """Removes a lock whose process has ended; a ValueError if it lives."""
    found = _read(path)
    if found is None:
        return
    holder = _holder(found[0])
    if _lives(path, holder):
        raise ValueError(
            f"The run in {str(path.parent)!r} belongs to process "
            f"{holder.get('process', '?')} on {holder.get('host', '?')}, since "
            f"{str(holder.get('time', '?'))[:19]} UTC. End that process, or "
            "choose another --run_dir."
        )
    # Renamed before it is removed: of two processes that find a stale lock,
    # the second must not remove that of the first.
    aside = path.with_name(f"{PARTIAL}lock-{os.getpid()}")
    with contextlib.suppress(FileNotFoundError):
        path.rename(aside)
        if _read(aside) != found:
            aside.rename(path)
            return
        aside.unlink()


def _read(path) -> tuple[str, int] | None:
    """The text of a lock and the time of its renewal; None without one."""
    try:
        # Opened: NFS looks anew only then.
        with path.open(encoding="utf-8", errors="replace") as file:
            return file.read(), os.fstat(file.fileno()).st_mtime_ns
    except FileNotFoundError:
        return None


def _holder(text) -> dict:
    """Who holds a lock; nothing is known where it is damaged."""
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def _lives(path, holder) -> bool:
    machine, process = holder.get("machine"), holder.get("process")
    if machine and machine == _machine() and isinstance(process, int):
        return _started(process) == holder.get("started")
    return _is_renewed(path)


def _is_renewed(path) -> bool:
    """Watches a lock of another machine."""
    before = _read(path)
    print(
        f"Another machine has left {path.name}: waiting up to {STALE_SECONDS} "
        "seconds for a sign of its process.",
        file=sys.stderr,
        flush=True,
    )
    end = time.monotonic() + STALE_SECONDS
    while time.monotonic() < end:
        time.sleep(POLL_SECONDS)
        if (now := _read(path)) != before:
            return now is not None
    return False
