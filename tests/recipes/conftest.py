"""One tiny run of the recipe that the tests of this folder look at."""

import contextlib
import io
import pathlib
from typing import NamedTuple

import pytest
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
