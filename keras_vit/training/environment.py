"""What a run ran on: versions, devices and the state of the code."""

import os
import pathlib
import platform
import subprocess
import sys

import keras
import numpy as np

from keras_vit.training.distribution import devices
from keras_vit.version import __version__

__all__ = ["environment", "versions"]

PACKAGE = pathlib.Path(__file__).parents[1]


def versions() -> dict[str, str]:
    """Versions of what decides the numbers of a run.

    Returns:
        Name to version, of keras_vit, Python, Keras, its backend and NumPy.

    Example:
        >>> versions()["keras"]
        '3.15.1'
    """
    backend = keras.backend.backend()
    return {
        "keras_vit": __version__,
        "python": platform.python_version(),
        "keras": keras.__version__,
        backend: sys.modules[backend].__version__,
        "numpy": np.__version__,
    }


def environment() -> dict:
    """Everything about the machine and the code that a reader may ask for.

    Returns:
        Versions, backend, devices, platform, number of processors, and the
        commit of the code, None where it is not in a git repository.

    Example:
        >>> environment()["backend"]
        'jax'
    """
    return {
        "versions": versions(),
        "backend": keras.backend.backend(),
        "devices": devices(),
        "platform": platform.platform(),
        "processors": os.cpu_count(),
        "commit": _commit(PACKAGE),
    }


def _commit(package: pathlib.Path) -> str | None:
    """Commit of the repository that holds the package, if one does."""
    # An installed package may lie in a folder of somebody else's repository.
    if not (package.parent / ".git").exists():
        return None
    command = ["git", "describe", "--always", "--dirty", "--abbrev=40"]
    try:
        described = subprocess.run(
            [*command, "--exclude=*"],
            cwd=package,
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return described.stdout.strip()
