import importlib.util
import sys
import time
import types

import pytest

from keras_vit.training import metrics_log

ROW = {"step": 50, "epoch": 1.5, "loss": 2.5, "peak_memory": None}


class Writer:
    """Stands in for tensorboardX: what would be written."""

    made = []

    def __init__(self, folder, purge_step=None, flush_secs=120):
        self.folder, self.purge_step, self.scalars = folder, purge_step, []
        self.made.append(self)

    def add_scalar(self, name, value, step):
        self.scalars.append((name, value, step))


@pytest.fixture
def writer(monkeypatch):
    module = types.ModuleType("tensorboardX")
    module.__spec__ = importlib.util.spec_from_loader("tensorboardX", None)
    setattr(module, "SummaryWriter", Writer)  # noqa: B010
    monkeypatch.setitem(sys.modules, "tensorboardX", module)
    monkeypatch.setattr(Writer, "made", [])
    return Writer


def test_each_number_of_a_line_is_a_scalar_of_its_step(writer, tmp_path):
    metrics_log.event_writer(tmp_path, step=0)(ROW)
    (made,) = writer.made
    assert made.folder == str(tmp_path / "tensorboard")
    assert made.scalars == [("loss", 2.5, 50)]
    assert made.purge_step is None


def test_what_comes_after_the_step_of_a_continued_run_is_forgotten(
    writer, tmp_path
):
    metrics_log.event_writer(tmp_path, step=40)
    assert writer.made[0].purge_step == 41


def test_without_a_writer_one_line_says_so(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(metrics_log, "WRITERS", {("no_such_package",): None})
    metrics_log.event_writer(tmp_path, step=0)(ROW)
    assert capsys.readouterr().out.count("\n") == 1
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("needed", list(metrics_log.WRITERS))
def test_events_are_what_tensorboard_reads(needed, tmp_path, monkeypatch):
    for package in ("tensorboard", *needed):
        pytest.importorskip(package)
    from tensorboard.backend.event_processing import event_accumulator
    from tensorboard.util import tensor_util

    make = metrics_log.WRITERS[needed]
    monkeypatch.setattr(metrics_log, "WRITERS", {needed: make})
    write = metrics_log.event_writer(tmp_path, step=0)
    write(ROW)
    write({"step": 100, "loss": 1.25})
    read = event_accumulator.EventAccumulator(str(tmp_path / "tensorboard"))
    found, end = [], time.monotonic() + 30
    while len(found) < 2 and time.monotonic() < end:  # a thread writes
        read.Reload()
        # TensorFlow writes a scalar as a tensor.
        if "loss" in read.Tags()["scalars"]:
            events = read.Scalars("loss")
            found = [(event.step, event.value) for event in events]
        elif "loss" in read.Tags()["tensors"]:
            found = [
                (
                    event.step,
                    float(tensor_util.make_ndarray(event.tensor_proto)),
                )
                for event in read.Tensors("loss")
            ]
    assert found == [(50, 2.5), (100, 1.25)]
