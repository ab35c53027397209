"""The memory that is left, without Keras or a backend."""

import pathlib

__all__ = ["available_memory", "shortage"]


def available_memory() -> int | None:
    """Bytes that this process can still take of the machine's memory.

    Of what is free, what a container leaves and what `ulimit -v` leaves, the
    least; None where the system does not say.
    """
    found = [_free_memory(), _left_in_container(), _left_of_limit()]
    return min((x for x in found if x is not None), default=None)


def shortage(needed: int) -> str:
    """Return in words that so many bytes are more than there are, or "".

    Example:
        >>> shortage(10**15)
        '1,000,000.0 GB, and 12.3 GB are free'
    """
    free = available_memory()
    if free is None or needed <= free:
        return ""
    free = max(free, 0)
    return f"{needed / 10**9:,.1f} GB, and {free / 10**9:,.1f} GB are free"


def _free_memory():
    return _kilobytes("/proc/meminfo", "MemAvailable")


def _left_in_container():
    folder = pathlib.Path("/sys/fs/cgroup")
    try:
        limit = int((folder / "memory.max").read_text())
        return limit - int((folder / "memory.current").read_text())
    except (OSError, ValueError):  # "max" is no limit.
        return None


def _left_of_limit():
    try:
        import resource
    except ImportError:  # Windows
        return None
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    used = _kilobytes("/proc/self/status", "VmSize")
    if limit == resource.RLIM_INFINITY or used is None:
        return None
    return limit - used


def _kilobytes(path, name) -> int | None:
    """A line `name: 123 kB` of a file of Linux, in bytes."""
    try:
        lines = pathlib.Path(path).read_text().splitlines()
    except OSError:
        return None
    found = (line.split() for line in lines if line.startswith(f"{name}:"))
    return next((1024 * int(words[1]) for words in found), None)
