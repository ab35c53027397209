"""Metrics as TensorBoard reads them."""

import errno
import time

import pytest

from keras_vit.training import metrics_log

ROW = {"step": 50, "epoch": 1.5, "loss": 2.5, "peak_memory": None}


def only(monkeypatch, *needed):
    """Leaves one writer; the test is skipped where it is not installed."""
    for package in ("tensorboard", *needed):
        pytest.importorskip(package)
    make = metrics_log.WRITERS[needed]
    monkeypatch.setattr(metrics_log, "WRITERS", {needed: make})


def read(folder):
    """Tags, and steps and values of the losses that TensorBoard shows."""
    from tensorboard.backend.event_processing import event_accumulator
    from tensorboard.util import tensor_util

    events = event_accumulator.EventAccumulator(str(folder / "tensorboard"))
    events.Reload()
    tags = events.Tags()
    if tags["scalars"]:
        found = [(x.step, x.value) for x in events.Scalars("loss")]
        return tags["scalars"], found
    # TensorFlow writes a scalar as a tensor.
    tensors = events.Tensors("loss")
    return tags["tensors"], [
        (x.step, float(tensor_util.make_ndarray(x.tensor_proto)))
        for x in tensors
    ]


@pytest.mark.parametrize("needed", list(metrics_log.WRITERS))
def test_events_are_what_tensorboard_reads(needed, tmp_path, monkeypatch):
    only(monkeypatch, *needed)
    write = metrics_log.event_writer(tmp_path, step=0)
    write(ROW)
    write({"step": 100, "loss": 1.25})
    assert read(tmp_path) == (["loss"], [(50, 2.5), (100, 1.25)])


def test_what_comes_after_the_step_of_a_continued_run_is_forgotten(
    tmp_path, monkeypatch
):
    only(monkeypatch, "tensorboardX")
    write = metrics_log.event_writer(tmp_path, step=0)
    write({"step": 40, "loss": 3.0})
    write(ROW)
    time.sleep(1.1)  # The name of a file is of the second.
    metrics_log.event_writer(tmp_path, step=40)({"step": 45, "loss": 2.0})
    assert read(tmp_path)[1] == [(40, 3.0), (45, 2.0)]


def test_a_full_disk_is_said_to_who_writes(tmp_path, monkeypatch):
    """A thread that it ended would let the training wait forever."""
    only(monkeypatch, "tensorboardX")
    from tensorboardX.event_file_writer import EventsWriter

    write = metrics_log.event_writer(tmp_path, step=0)

    def full(self, event):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(EventsWriter, "write_event", full)
    with pytest.raises(OSError, match="No space left"):
        write(ROW)


def test_without_a_writer_one_line_says_so(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(metrics_log, "WRITERS", {("no_such_package",): None})
    metrics_log.event_writer(tmp_path, step=0)(ROW)
    assert capsys.readouterr().out.count("\n") == 1
    assert not list(tmp_path.iterdir())
