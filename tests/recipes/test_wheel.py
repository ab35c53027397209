"""The commands of the wheel, unpacked where there is no clone."""

import os
import pathlib
import subprocess
import sys
import zipfile

import pytest

ROOT = pathlib.Path(__file__).parents[2]
# In one process: each start takes seconds.
HELP = """
import pathlib, sys
from keras_vit import shipped_recipes
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


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A function of the words of Python, run beside the unpacked wheel."""
    folder = tmp_path_factory.mktemp("installed")
    build = ["-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(
        [sys.executable, *build], cwd=ROOT, check=True, capture_output=True
    )
    (wheel,) = folder.glob("*.whl")
    zipfile.ZipFile(wheel).extractall(folder)
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
