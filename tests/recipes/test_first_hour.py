"""The first hour of a stranger, with one backend and the wheel alone."""

import pathlib
import subprocess
import sys

import pytest

TOOL = pathlib.Path(__file__).parents[2] / "tools" / "first_hour.py"


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["jax", "torch", "tensorflow"])
def test_every_command_works_and_says_nothing_else(backend):
    done = subprocess.run(
        [sys.executable, TOOL, backend, "--offline"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
