"""What an extra installs and nothing else, of the packages that are here."""

import importlib.metadata
import os
import pathlib
import subprocess
import sys

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

# The builds that the tests run on.
INSTEAD = {"tensorflow": "tensorflow-cpu"}


class Environment:
    """Python with the wheel and the packages of an extra.

    Args:
        wheel: the folder of the unpacked wheel.
        extra: "jax", "tensorflow" or "torch".
        folder: an empty folder, to work in and to link the packages into.
    """

    def __init__(
        self, wheel: pathlib.Path, extra: str, folder: pathlib.Path
    ) -> None:
        self.packages = folder / "packages"
        self.packages.mkdir()
        self.work = folder / "work"
        self.work.mkdir()
        (metadata,) = wheel.glob("*.dist-info/METADATA")
        message = importlib.metadata.PathDistribution(metadata.parent)
        for name in _needed(message.requires or [], {extra}):
            self._link(importlib.metadata.distribution(name))
        self.variables = {
            **os.environ,
            "KERAS_BACKEND": extra,
            "KERAS_HOME": str(folder / "home"),
            "PYTHONPATH": os.pathsep.join(map(str, (wheel, self.packages))),
        }

    def _link(self, distribution) -> None:
        for file in distribution.files or []:
            name = file.parts[0]
            place = self.packages / name
            if name != ".." and not place.exists():
                place.symlink_to(distribution.locate_file(name))

    def run(self, *words) -> subprocess.CompletedProcess:
        """Runs Python with some words, as text."""
        # -S: without the packages of the environment of the tests.
        return subprocess.run(
            [sys.executable, "-S", *words],
            cwd=self.work,
            env=self.variables,
            capture_output=True,
            text=True,
            timeout=600,
        )


def _needed(lines, extras) -> set[str]:
    """Names of all packages that requirements ask for, and these for others."""
    found: set[str] = set()
    left = [(line, frozenset(extras)) for line in lines]
    seen = set()
    while left:
        line, wanted = left.pop()
        asked = Requirement(line)
        if asked.marker and not any(
            asked.marker.evaluate({"extra": extra}) for extra in {"", *wanted}
        ):
            continue
        name = canonicalize_name(asked.name)
        name = INSTEAD.get(name, name)
        if (name, frozenset(asked.extras)) in seen:
            continue
        seen.add((name, frozenset(asked.extras)))
        further = frozenset(asked.extras)
        if name == "keras-vision-transformer":
            left += [(x, further) for x in lines]
            continue
        found.add(name)
        left += [
            (x, further)
            for x in importlib.metadata.distribution(name).requires or []
        ]
    return found
