"""Ctrl-C and SIGTERM end a run with one line, and leave nothing half done."""

import os
import pathlib
import random
import signal
import subprocess
import sys
import time

import pytest

ROOT = pathlib.Path(__file__).parents[2]
ENDLESS = (
    *("--data.name=digits", "--model.image_size=8", "--model.patch_size=4"),
    *("--model.channels=1", "--model.hidden_dim=8", "--model.num_layers=1"),
    *("--model.mlp_dim=8", "--model.num_heads=2", "--training.steps=100000"),
    *("--training.checkpoint_every_steps=20", "--training.log_every_steps=5"),
    *("--preprocessing.evaluation=squash", "--optimizer.warmup_steps=1"),
)


def start(run_dir):
    script = str(ROOT / "recipes" / "finetune.py")
    return subprocess.Popen(
        [sys.executable, script, *ENDLESS, f"--run_dir={run_dir}"],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ended(process, number):
    """Exit code and last words of a process that gets a signal."""
    process.send_signal(number)
    _, error = process.communicate(timeout=120)
    return process.returncode, error


def wait_for(process, reached):
    end = time.monotonic() + 300
    while not reached() and process.poll() is None and time.monotonic() < end:
        time.sleep(0.002)
    assert process.poll() is None, process.communicate()[1]


MOMENTS = {
    "as it begins": lambda run: (run / "config.yaml").exists,
    "in the first step": lambda run: (run / "class_names.json").exists,
    "in a later step": lambda run: (run / "metrics.jsonl").exists,
    "as it saves": lambda run: (
        lambda: any((run / "checkpoints").glob(".partial-step*"))
    ),
    "as it has saved": lambda run: (
        lambda: any((run / "checkpoints").glob("step-*"))
    ),
}
CODES = {signal.SIGINT: 130, signal.SIGTERM: 143}


@pytest.mark.slow
@pytest.mark.parametrize("number", CODES, ids=lambda x: x.name)
@pytest.mark.parametrize("moment", MOMENTS)
def test_a_run_ends_in_one_line_and_order(tmp_path, moment, number):
    process = start(tmp_path)
    try:
        wait_for(process, MOMENTS[moment](tmp_path))
        time.sleep(random.Random(moment).uniform(0, 0.05))
        code, error = ended(process, number)
    finally:
        process.kill()
    assert code == CODES[number], error
    assert "Traceback" not in error
    (line,) = [x for x in error.splitlines() if "the same command" in x]
    assert line.startswith(("Interrupted; ", "Terminated; "))
    left = [x.name for x in tmp_path.rglob(".*")]
    assert left == []
