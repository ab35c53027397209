"""Each row of `cases_table.py` in a process of its own."""

import hashlib
import os
import pathlib
import shlex
import shutil
import subprocess
import sys

import cases_table
import pytest
import setups

from keras_vit.io.run_folder import MANIFEST
from keras_vit.training.run import files as run_folder

ROOT = pathlib.Path(__file__).parents[2]
SECONDS = 180
WRITTEN_BY_RUNS = {
    MANIFEST,
    *(x for x in run_folder.FILES if "*" not in x),
}
MODEL = (
    *("--model.image_size=8", "--model.patch_size=4", "--model.channels=1"),
    *("--model.hidden_dim=8", "--model.num_layers=1", "--model.mlp_dim=8"),
    *("--model.num_heads=2", "--training.steps=4", "--training.batch_size=4"),
    *("--training.checkpoint_every_steps=2", "--optimizer.warmup_steps=1"),
    *("--preprocessing.evaluation=squash", "--training.log_every_steps=1"),
)
PROGRAMS = {
    "keras-vit": [sys.executable, "-m", "keras_vit.cli"],
    "finetune": [sys.executable, str(ROOT / "recipes" / "finetune.py"), *MODEL],
}
# Words at the end of a command that change where it runs.
PLACES = {
    "<closed": "<&-",
    ">closed": ">&-",
    "ascii": "",
}


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    folder = tmp_path_factory.mktemp("base")
    setups.base(folder)
    return folder


def hashes(folder):
    return {
        os.fsencode(path): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file()
    }


def run(command, folder):
    program, *words = shlex.split(command)
    shell = " ".join(PLACES[x] for x in words if x in PLACES)
    ascii_only = (
        {"PYTHONIOENCODING": "ascii:strict"} if "ascii" in words else {}
    )
    words = [*PROGRAMS[program], *(x for x in words if x not in PLACES)]
    return subprocess.run(
        ["bash", "-c", f"exec {shlex.join(words)} {shell}"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), **ascii_only},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=SECONDS,
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "case", cases_table.CASES, ids=lambda case: case.name.replace(" ", "-")
)
def test_a_case(case, prepared, tmp_path):
    folder = tmp_path / "case"
    shutil.copytree(prepared, folder)
    setups.make(case.setup, folder)
    before = hashes(folder)
    found = run(case.command, folder)
    out = found.stdout.decode("utf-8", "surrogateescape")
    error = found.stderr.decode("utf-8", "surrogateescape")
    assert "Traceback" not in error, error
    assert found.returncode == case.code, error or out
    told = error if case.code else out + error
    if case.code:
        (told,) = [x for x in error.splitlines() if "error: " in x]
    for words in case.words:
        assert words in told
    for words in case.never:
        assert words not in out + error
    after = hashes(folder)
    # What a run that is replaced has written is the run's.
    of_runs = {os.fsencode(folder / "run" / x) for x in WRITTEN_BY_RUNS}
    kept = before.keys() - of_runs
    assert {name: after.get(name) for name in kept} == {
        name: before[name] for name in kept
    }
