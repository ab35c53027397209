"""A tiny run, and mocked data sets, that the tests of this folder share."""

import contextlib
import io
import pathlib
from typing import NamedTuple

import pytest
import vtab_builders
from recipe_scripts import TINY, script


class FinishedRun(NamedTuple):
    folder: pathlib.Path
    config: pathlib.Path
    exit_code: int
    output: str


@pytest.fixture(scope="session")
def finished_run(tmp_path_factory) -> FinishedRun:
    folder = tmp_path_factory.mktemp("recipes")
    config = folder / "tiny.yaml"
    config.write_text(TINY)
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        exit_code = script("finetune").main(
            ["--config", str(config), "--run_dir", str(folder / "run")]
        )
    return FinishedRun(folder / "run", config, exit_code, output.getvalue())


@pytest.fixture(scope="session")
def sized(tmp_path_factory):
    """The metadata of each data set of VTAB, with its sizes."""
    root = tmp_path_factory.mktemp("tfds")
    vtab_builders.describe(root)
    return root


@pytest.fixture
def mocked(sized):
    with vtab_builders.mocked(sized):
        yield
