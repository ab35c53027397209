"""The commands of the wheel, unpacked where there is no clone."""

import os
import pathlib
import subprocess
import sys
import zipfile

import pytest
from fresh_environment import Environment

ROOT = pathlib.Path(__file__).parents[2]
# In one process: each start takes seconds.
HELP = """
import pathlib, sys
from keras_vit.runtime import shipped_recipes
from keras_vit.cli import main
from keras_vit.cli.command_line import COMMANDS

assert shipped_recipes.INSTALLED == pathlib.Path("keras_vit/recipes").resolve()
for name in [*COMMANDS, *shipped_recipes.scripts()]:
    try:
        main([name, "--help"])
    except SystemExit as ended:
        assert ended.code == 0, name
    print("helped:", name)
"""


# In the order in which they need each other.
COMMANDS = (
    "finetune --config quickstart --smoke",
    "evaluate --model.weights runs/quickstart-smoke",
    "few-shot --model.weights runs/quickstart-smoke --crop squash",
    "predict runs/quickstart-smoke runs/quickstart-smoke/examples",
    "explain runs/quickstart-smoke runs/quickstart-smoke/examples -o explained",
    "embed runs/quickstart-smoke runs/quickstart-smoke/examples -o found.npz",
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The folder of the unpacked wheel."""
    folder = tmp_path_factory.mktemp("installed")
    build = ["-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(
        [sys.executable, *build], cwd=ROOT, check=True, capture_output=True
    )
    (wheel,) = folder.glob("*.whl")
    zipfile.ZipFile(wheel).extractall(folder)
    return folder


@pytest.fixture(scope="module")
def run(folder):
    """A function of the words of Python, run beside the unpacked wheel."""
    environment = {**os.environ, "PYTHONPATH": str(folder)}

    def run(*words):
        done = subprocess.run(
            [sys.executable, *words],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=600,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


@pytest.mark.slow
def test_every_command_helps(run):
    helped = [x for x in run("-c", HELP).splitlines() if "helped:" in x]
    assert {"helped: predict", "helped: vtab"} <= {*helped}
    assert len(helped) > 20


@pytest.mark.slow
def test_a_config_by_name_trains(run):
    words = ["finetune", "--config", "quickstart", "--smoke"]
    out = run("-m", "keras_vit.cli", *words)
    assert out.splitlines()[-1] == "report and model: runs/quickstart-smoke"
    found = run("-m", "keras_vit.cli", "reproduce", "5", "--list")
    assert "keras-vit sweep --config paper/table4_cifar10 " in found


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["jax", "torch", "tensorflow"])
def test_one_backend_alone_trains_evaluates_and_predicts(
    backend, folder, tmp_path
):
    fresh = Environment(folder, backend, tmp_path)
    others = {"jax", "torch", "tensorflow"} - {backend}
    for other in others:
        assert fresh.run("-c", f"import {other}").returncode
    for command in COMMANDS:
        done = fresh.run("-m", "keras_vit.cli", *command.split())
        assert done.returncode == 0, (command, done.stderr)
    if backend == "tensorflow":
        return
    # What it does not do it says in a line, before anything is written.
    before = {*fresh.work.rglob("*")}
    for words in (
        "finetune --data.name cifar10 --run_dir runs/cifar10",
        "finetune --data.reader tensorflow --run_dir runs/other",
        "few-shot --model.weights x --data.name cifar10 --run_dir runs/x",
        "evaluate --model.weights x --data.name cifar10 --run_dir runs/x",
        "vtab --run_dir runs/vtab",
    ):
        done = fresh.run("-m", "keras_vit.cli", *words.split())
        assert done.returncode == 2, (words, done.stderr)
        assert done.stderr.splitlines()[-1].count("pip install") == 1
        assert "[recipes]" in done.stderr.splitlines()[-1]
    assert {*fresh.work.rglob("*")} == before
