"""A run that is stopped and continued is the run that was not, to the bit."""

import os
import pathlib
import random
import signal
import subprocess
import sys
import time

import keras
import numpy as np
import pytest
import tiny_training as tiny
from same_runs import assert_same, results

from keras_vit.training import checkpointing, metrics_log

TESTS = pathlib.Path(__file__).parents[1]


class Interrupt(keras.callbacks.Callback):
    """Ends the run in the midst of an epoch."""

    def __init__(self, at):
        super().__init__()
        self.at = at

    def on_epoch_begin(self, epoch, logs=None):
        self.epoch = epoch

    def on_train_batch_begin(self, batch, logs=None):
        if (self.epoch, batch) == self.at:
            raise KeyboardInterrupt


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("uninterrupted")
    return folder, tiny.bits(tiny.train(folder)[0])


@pytest.mark.once
def test_a_continued_run_is_the_same_to_the_bit(uninterrupted, tmp_path):
    folder, bits = uninterrupted
    for at in [(0, 3), (2, 2)]:
        with pytest.raises(KeyboardInterrupt):
            tiny.train(tmp_path, callbacks=[Interrupt(at)])
    network, _ = tiny.train(tmp_path, callbacks=[Interrupt(None)])
    assert tiny.bits(network) == bits
    assert_same(tmp_path, folder)


@pytest.mark.slow
def test_a_resume_without_the_generators_would_be_another_run(
    uninterrupted, tmp_path
):
    with pytest.raises(KeyboardInterrupt):
        tiny.train(tmp_path, callbacks=[Interrupt((1, 0))])
    path = tmp_path / checkpointing.FOLDER / "step-000000005.npz"
    with np.load(path) as file:
        arrays = dict(file)
    for name, value in arrays.items():
        if value.shape == (2,) and value.dtype.kind in "iu":  # of SeedGenerator
            arrays[name] = value + np.array([0, 3], value.dtype)
    arrays.pop("generator/cpu", None)
    np.savez(path, **arrays)
    network, _ = tiny.train(tmp_path)
    assert tiny.bits(network) != uninterrupted[1]


@pytest.mark.once
def test_a_finished_training_is_not_continued(uninterrupted):
    folder, bits = uninterrupted
    before = results(folder)
    network, _ = tiny.train(folder)
    assert tiny.bits(network) == bits
    assert results(folder)[1:] == before[1:]


def start(folder, *arguments, **environment):
    path = {"PYTHONPATH": str(TESTS.parent)}
    script = str(TESTS / "support" / "tiny_training.py")
    return subprocess.Popen(
        [sys.executable, script, str(folder), *arguments],
        env={**os.environ, **path, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )


def finished(folder, *arguments, **environment):
    """Lets the run end; gives the checksum of its weights."""
    process = start(folder, *arguments, **environment)
    output, _ = process.communicate(timeout=600)
    assert process.returncode == 0
    return output.splitlines()[-1]


def is_saving(folder):
    partials = (folder / checkpointing.FOLDER).glob(".partial-step*")
    return any(partials)


def has_lines(folder, count):
    path = folder / metrics_log.METRICS
    return path.exists() and path.read_text().count("\n") >= count


def kill(folder, reached, delay=0.0):
    """Starts the run and kills it some seconds after it reached a point."""
    process = start(folder)
    while process.poll() is None and not reached(folder):
        time.sleep(0.0005)
    time.sleep(delay)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert process.returncode == -signal.SIGKILL, "it ended before the kill"


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    return folder, finished(folder)


@pytest.mark.slow
def test_a_run_killed_twice_ends_the_same(whole, tmp_path):
    kill(tmp_path, lambda folder: has_lines(folder, 5))
    kill(tmp_path, is_saving)
    assert finished(tmp_path) == whole[1]
    assert_same(tmp_path, whole[0])


# Of 13 lines in all: before the first checkpoint, in a step, between epochs.
LINES = [(seed, random.Random(seed).randrange(10)) for seed in range(15)]


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "count"), LINES)
def test_killed_at_any_moment_it_ends_the_same(whole, tmp_path, seed, count):
    delay = random.Random(-seed - 1).uniform(0, 0.03)
    kill(tmp_path, lambda folder: has_lines(folder, count), delay)
    assert finished(tmp_path) == whole[1]
    assert_same(tmp_path, whole[0])


@pytest.mark.slow
@pytest.mark.parametrize("delay", [0, 0.001, 0.002, 0.004, 0.008])
def test_killed_while_saving_it_ends_the_same(whole, tmp_path, delay):
    kill(tmp_path, is_saving, delay)
    assert finished(tmp_path) == whole[1]
    assert_same(tmp_path, whole[0])


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    folder = tmp_path_factory.mktemp("plain")
    tiny.plain(folder)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("other", ["tensorflow", "jax", "torch"])
def test_a_run_of_one_backend_goes_on_in_another(plain, tmp_path, other):
    pytest.importorskip(other)
    with pytest.raises(KeyboardInterrupt):
        tiny.plain(tmp_path, callbacks=[Interrupt((2, 2))])
    finished(tmp_path, "plain", KERAS_BACKEND=other)
    arrays, *_, rows = results(tmp_path)
    others, *_, expected = results(plain)
    # The generators of torch are of no other backend.
    shared = [name for name in arrays if not name.startswith("generator/")]
    for name in shared:
        np.testing.assert_allclose(
            arrays[name], others[name], rtol=1e-3, atol=1e-5
        )
    assert [row["loss"] for row in rows] == pytest.approx(
        [row["loss"] for row in expected], rel=1e-4
    )
