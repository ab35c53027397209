"""A recipe on a file system one of whose writes fails.

    FAULTS="ENOSPC 700" python tests/robustness/faulty_files.py OPTIONS

is `recipes/finetune.py OPTIONS` with these patched for paths below the run
folder: `open` for writing and `write` of what it returns, `os.open`,
`os.write`, `os.fsync`, `os.replace`, `os.rename`. The call of that number
fails. A write
that fails writes half of its bytes before, as a full disk may. HDF5 writes by C
and is not reached; its files are renamed by Python.
"""

import builtins
import errno
import io
import os
import pathlib
import sys

ROOT = pathlib.Path(__file__).parents[2]
WRITING = set("wax+")


class Faults:
    """Fails one call for a path below a folder.

    Args:
        number: what it fails with, such as `errno.ENOSPC`.
        at: which call, from 1; 0 for none.
        folder: the run folder.

    Attributes:
        calls: how many there were.
    """

    def __init__(self, number: int, at: int, folder: str):
        self.number, self.at = number, at
        self.folder = os.path.abspath(folder)
        self.calls = 0

    def may_fail(self, path) -> None:
        """Counts a call, and raises an OSError if it is that one."""
        if not isinstance(path, (str, os.PathLike)):
            return
        if os.path.abspath(os.fspath(path)).startswith(self.folder):
            self.calls += 1
            if self.calls == self.at:
                text = os.strerror(self.number)
                raise OSError(self.number, text, os.fspath(path))

    def patch(self) -> None:
        self._patch_open()
        for name in ("replace", "rename"):
            self._patch_two_paths(name)
        self._patch_descriptors()

    def _patch_open(self):
        opened = builtins.open

        def open_(file, mode="r", *args, **kwargs):
            if not WRITING & set(mode):
                return opened(file, mode, *args, **kwargs)
            self.may_fail(file)
            found = opened(file, mode, *args, **kwargs)
            write = getattr(found, "write", None)
            if write is None:
                return found
            return _Failing(found, file, self)

        builtins.open = io.open = open_

    def _patch_two_paths(self, name):
        call = getattr(os, name)

        def renamed(source, target, **options):
            self.may_fail(target)
            return call(source, target, **options)

        setattr(os, name, renamed)

    def _patch_descriptors(self):
        paths: dict[int, str] = {}
        opened, synced, written = os.open, os.fsync, os.write

        def open_(path, flags, *args, **kwargs):
            if flags & (os.O_WRONLY | os.O_RDWR):
                self.may_fail(path)
            descriptor = opened(path, flags, *args, **kwargs)
            paths[descriptor] = path
            return descriptor

        def fsync(descriptor):
            self.may_fail(paths.get(descriptor))
            return synced(descriptor)

        def write(descriptor, content):
            self.may_fail(paths.get(descriptor))
            return written(descriptor, content)

        os.open, os.fsync, os.write = open_, fsync, write


class _Failing:
    """A file some of whose writes write a half and then fail."""

    def __init__(self, file, path, faults):
        self._file, self._path, self._faults = file, path, faults

    def write(self, content):
        try:
            self._faults.may_fail(self._path)
        except OSError:
            self._file.write(content[: len(content) // 2])
            raise
        return self._file.write(content)

    def __getattr__(self, name):
        return getattr(self._file, name)

    def __enter__(self):
        self._file.__enter__()
        return self

    def __exit__(self, *error):
        return self._file.__exit__(*error)

    def __iter__(self):
        return iter(self._file)


def main(words) -> int:
    sys.path.insert(0, str(ROOT / "recipes"))
    import finetune
    import matplotlib.pyplot  # noqa: F401 - before files fail
    import tensorflow  # noqa: F401

    kind, at = os.environ["FAULTS"].split()
    (folder,) = [x.partition("=")[2] for x in words if "--run_dir=" in x]
    faults = Faults(getattr(errno, kind), int(at), folder)
    faults.patch()
    try:
        return finetune.main(words)
    finally:
        print(f"calls {faults.calls}", flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
