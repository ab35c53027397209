"""SIGTERM, Ctrl-C and the clock end a run after its step, to go on later."""

import contextlib
import os
import signal
import time

import keras
import numpy as np
import pytest
import tiny_training as tiny
from same_runs import assert_same

from keras_vit.runtime.interrupts import (
    Terminated,
    TimeIsUp,
    interrupt_behind,
    postponed,
)
from keras_vit.training import checkpointing
from keras_vit.training.checkpointing import Preemption, deadline_of


class Signal(keras.callbacks.Callback):
    """Sends this process a signal in a method, at (epoch,) or with a batch."""

    def __init__(self, moment, at, number=signal.SIGTERM, times=1):
        super().__init__()
        self.at, self.number, self.times = at, number, times
        setattr(self, moment, self._send)

    def on_epoch_begin(self, epoch, logs=None):
        self.epoch = epoch

    def _send(self, batch=None, logs=None):
        if self.at in ((self.epoch, batch), (self.epoch,)):
            for _ in range(self.times):
                os.kill(os.getpid(), self.number)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    return folder, tiny.bits(tiny.train(folder, callbacks=[Signal("x", ())])[0])


def stopped(folder, kind, *signals, **options):
    """Ends a run early; gives the record of the checkpoint that it leaves."""
    with pytest.raises(kind) as caught:
        tiny.train(folder, callbacks=signals, **options)
    assert caught.type is kind
    assert not list((folder / checkpointing.FOLDER).glob(".partial-*"))
    return tiny.newest(folder / checkpointing.FOLDER)[1]


def check_goes_on(folder, whole):
    """To the same weights, lines, history and states, to the bit."""
    network, _ = tiny.train(folder)
    assert tiny.bits(network) == whole[1]
    assert_same(folder, whole[0])


# Intervals of 5 steps, an evaluation of 2 batches at the end of each.
MOMENTS = {
    "in a step": ("on_train_batch_begin", (1, 2), 8, 3),
    "in the last step of an interval": ("on_train_batch_begin", (1, 4), 10, 5),
    "in an evaluation": ("on_test_batch_end", (1, 0), 10, 5),
    "while it saves": ("on_epoch_end", (1,), 10, None),
    "as it ends": ("on_epoch_end", (4,), 22, None),
}


@pytest.mark.slow
@pytest.mark.parametrize("moment", MOMENTS)
def test_it_ends_after_the_step_and_goes_on(whole, tmp_path, moment):
    method, at, step, batches = MOMENTS[moment]
    record = stopped(tmp_path, Terminated, Signal(method, at))
    assert record["step"] == step
    assert record.get("part", {}).get("batches") == batches
    check_goes_on(tmp_path, whole)


def test_stopped_again_and_again_it_is_the_same(whole, tmp_path):
    """By Ctrl-C as well, twice in an interval, and in the last step."""
    moments = [((0, 1), 2), ((0, 1), 4), ((4, 1), 22)]
    for at, step in moments:
        signals = Signal("on_train_batch_begin", at, signal.SIGINT)
        assert stopped(tmp_path, KeyboardInterrupt, signals)["step"] == step
    check_goes_on(tmp_path, whole)


@pytest.mark.slow
def test_where_nothing_would_be_lost_it_ends_at_once(tmp_path):
    """In the first step, which compiles, and right after a checkpoint."""
    with pytest.raises(Terminated):
        tiny.train(tmp_path, callbacks=[Signal("on_train_batch_begin", (0, 0))])
    assert checkpointing.read_newest(tmp_path / checkpointing.FOLDER) is None
    signals = Signal("on_train_batch_begin", (1, 0))
    record = stopped(tmp_path, Terminated, signals)
    assert (record["step"], record.get("part")) == (5, None)


@pytest.mark.slow
def test_a_second_signal_ends_at_once(tmp_path):
    before = signal.getsignal(signal.SIGINT)
    signals = Signal("on_train_batch_begin", (1, 2), signal.SIGINT, times=2)
    assert stopped(tmp_path, KeyboardInterrupt, signals)["step"] == 5
    assert signal.getsignal(signal.SIGINT) == before


@pytest.mark.slow
def test_the_clock_ends_it_after_one_step_at_least(whole, tmp_path):
    for step in (1, 2):
        record = stopped(tmp_path, TimeIsUp, deadline=time.monotonic())
        assert record["step"] == step
    check_goes_on(tmp_path, whole)


def test_time_is_left_for_the_checkpoint():
    assert deadline_of(None) is None
    with postponed() as signals:
        watch = Preemption(signals, deadline_of(1))
        assert not watch.ends(reserve=3500)
        assert watch.ends(reserve=3600)
        assert watch.kind is TimeIsUp
        assert not Preemption(signals).ends(reserve=1e9)


def test_processes_agree_at_once_where_they_have_to(monkeypatch):
    """Not after the calls that the first one said, as in other moments."""
    others = np.zeros(4, "int32")
    monkeypatch.setattr(checkpointing, "place", lambda: (0, 2))
    monkeypatch.setattr(
        checkpointing, "stacked", lambda own: np.stack([own, others])
    )
    with postponed() as signals:
        watch = Preemption(signals, time.monotonic() + 1e6)
        for _ in range(20):
            assert not watch.ends()
        others[0] = 1  # The first kind, of the other process.
        assert not watch.ends()
        assert watch.ends(now=True)
        assert watch.kind is checkpointing.KINDS[0]


@pytest.mark.slow
def test_a_number_that_is_not_finite_is_in_no_checkpoint(tmp_path):
    with pytest.raises(FloatingPointError, match="step 7"):
        tiny.train(
            tmp_path,
            batches=tiny.Poisoned((6,)),
            callbacks=[Signal("on_train_batch_begin", (1, 1))],
        )
    assert tiny.newest(tmp_path / checkpointing.FOLDER)[1]["step"] == 5


@pytest.mark.slow
def test_other_metrics_than_before_are_refused(tmp_path):
    stopped(tmp_path, Terminated, Signal("on_train_batch_begin", (0, 2)))
    arrays, _ = tiny.newest(tmp_path / checkpointing.FOLDER)
    with pytest.raises(ValueError, match="variables of metrics"):
        checkpointing.restore_metrics([], arrays)


def test_a_signal_that_nobody_asked_for_is_raised_at_the_end():
    with pytest.raises(Terminated), postponed() as signals:
        signals.waits = True
        os.kill(os.getpid(), signal.SIGTERM)
        assert signals.found is Terminated


def test_a_signal_that_is_dropped_is_raised_later():
    """In a finalizer, Python prints what is raised and goes on."""
    with pytest.raises(Terminated), postponed() as signals:
        with contextlib.suppress(Terminated):
            os.kill(os.getpid(), signal.SIGTERM)
        assert Preemption(signals).ends()


def test_a_signal_that_is_ignored_stays_so():
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        with postponed() as signals:
            os.kill(os.getpid(), signal.SIGTERM)
            assert signals.found is None
        assert signal.getsignal(signal.SIGTERM) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGTERM, before)


@pytest.mark.once
@pytest.mark.parametrize("kind", [KeyboardInterrupt, Terminated])
def test_an_interrupt_is_seen_behind_the_error_of_tidying_up(kind):
    try:
        try:
            raise kind
        finally:
            raise OSError("a file that was not there yet")
    except OSError as error:
        assert type(interrupt_behind(error)) is kind
    alone = OSError()
    assert interrupt_behind(alone) is alone
