"""On a disk whose writes fail nothing is lost, and the same command goes on."""

import os
import pathlib
import random
import subprocess
import sys

import pytest
import random_kills

SCRIPT = pathlib.Path(__file__).with_name("faulty_files.py")
ROOT = SCRIPT.parents[2]
TRIES = 4


def run(script, folder, **environment):
    options = random_kills.COMMAND[1:]
    return subprocess.run(
        [sys.executable, str(script), *options, f"--run_dir={folder}"],
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=random_kills.SECONDS,
    )


def calls(found) -> int:
    return int(found.stdout.split()[-1])


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["ENOSPC", "EIO"])
def test_a_run_on_a_failing_disk_goes_on(tmp_path, kind):
    """Each try of the same command fails at another write, then none does."""
    whole = run(SCRIPT, tmp_path / "whole", FAULTS=f"{kind} 0")
    assert whole.returncode == 0, whole.stderr[-3000:]
    draw, folder = random.Random(kind), tmp_path / "run"
    for _ in range(TRIES):
        at = draw.randint(1, calls(whole))
        found = run(SCRIPT, folder, FAULTS=f"{kind} {at}")
        if not found.returncode:  # It was done before that write.
            break
        assert found.returncode == 2, found.stderr[-3000:]
        assert "Traceback" not in found.stderr, found.stderr[-3000:]
        # EIO is an "Input/output error: ..." itself.
        lines = found.stderr.splitlines()
        assert len([x for x in lines if ".py: error: " in x]) == 1
    else:
        last = run(SCRIPT, folder, FAULTS=f"{kind} 0")
        assert last.returncode == 0, last.stderr[-3000:]
    random_kills.compare(
        random_kills.contents(tmp_path / "whole"),
        random_kills.contents(folder),
    )
