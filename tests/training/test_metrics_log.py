import json

import keras
import numpy as np
import pytest
import tiny_training as tiny

from keras_vit.training import metrics_log
from keras_vit.training.metrics_log import FirstNonFinite, GradientWatch
from keras_vit.training.stages import Plan


class Losses(keras.callbacks.Callback):
    """The loss of each step, out of Keras's running mean."""

    def __init__(self):
        super().__init__()
        self.values = []

    def on_epoch_begin(self, epoch, logs=None):
        self.total = 0.0

    def on_train_batch_end(self, batch, logs=None):
        total = (logs or {})["loss"] * (batch + 1)
        self.values.append(total - self.total)
        self.total = total


def lines(folder):
    text = (folder / metrics_log.METRICS).read_text()
    return [json.loads(line) for line in text.splitlines()]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    losses = Losses()
    network, rows = tiny.train(folder, callbacks=[losses])
    return folder, network, rows, losses.values


def test_there_is_a_line_every_two_steps_and_at_each_checkpoint(run):
    steps = [line["step"] for line in lines(run[0])]
    assert steps == [2, 4, 5, 6, 8, 10, 12, 14, 15, 16, 18, 20, 22]


def test_the_loss_is_the_mean_since_the_line_before(run):
    folder, _, _, losses = run
    begin = 0
    for line in lines(folder):
        expected = np.mean(losses[begin : line["step"]])
        assert line["loss"] == pytest.approx(expected, rel=1e-5)
        begin = line["step"]


def test_the_history_has_the_mean_since_the_checkpoint_before(run):
    _, _, rows, losses = run
    assert [row["step"] for row in rows] == [5, 10, 15, 20, 22]
    for row, begin in zip(rows, (0, 5, 10, 15, 20), strict=True):
        expected = np.mean(losses[begin : row["step"]])
        assert row["loss"] == pytest.approx(expected, rel=1e-5)


def test_the_last_line_of_a_stretch_has_the_evaluation(run):
    folder, _, rows, _ = run
    evaluated = {x["step"]: x for x in lines(folder) if "val_loss" in x}
    assert list(evaluated) == [row["step"] for row in rows]
    for row in rows:
        assert evaluated[row["step"]]["val_loss"] == row["val_loss"]


def test_the_learning_rate_is_that_of_the_schedule(run):
    by_step = {line["step"]: line["learning_rate"] for line in lines(run[0])}
    assert by_step[2] == pytest.approx(0.005)  # half of the warm-up of 4
    assert by_step[4] == pytest.approx(0.01)
    half = 4 + (tiny.PLAN.total - 4) // 2  # 13, between 12 and 14
    assert by_step[half - 1] > 0.005 > by_step[half + 1]
    assert by_step[22] == pytest.approx(0, abs=1e-9)


def test_the_evaluation_counts_each_image_once(run):
    """Against the loss and accuracy of the 10 images, without padding."""
    _, network, rows, _ = run
    examples = tiny.examples(10, seed=1)
    logits = keras.ops.convert_to_numpy(network(examples.contents))
    logits = logits.astype("float64")
    log_sums = np.log(np.exp(logits).sum(-1))
    losses = log_sums - logits[np.arange(10), examples.labels]
    correct = logits.argmax(-1) == examples.labels
    # The weights are the average that the last evaluation saw.
    assert rows[-1]["val_loss"] == pytest.approx(losses.mean(), rel=1e-5)
    assert rows[-1]["val_accuracy"] == pytest.approx(correct.mean())


def test_history_file_is_the_history(run):
    folder, _, rows, _ = run
    assert metrics_log.read_history(folder) == [
        pytest.approx(row) for row in rows
    ]


def test_speed_and_memory_are_positive(run):
    for line in lines(run[0]):
        assert line["images_per_second"] > 0
        assert line["peak_memory"] > 1e6


PLAN = Plan(
    total=6,
    steps_per_epoch=3,
    batch_size=4,
    checkpoint_every=3,
    evaluate_every=3,
)


def log_in(folder, step):
    optimizer = keras.optimizers.SGD()
    loss = tiny.loss()
    return metrics_log.MetricsLog(
        folder,
        PLAN,
        FirstNonFinite(loss),
        GradientWatch(optimizer),
        str,
        step=step,
    )


def test_later_lines_and_torn_ones_are_cut(tmp_path):
    metrics = tmp_path / "metrics.jsonl"
    metrics.write_text('{"step": 3}\n{"step": 5}\n{"ste')
    (tmp_path / "history.csv").write_text("step,loss\n3,0.5\n6,0.25\n")
    log = log_in(tmp_path, step=3)
    assert metrics.read_text() == '{"step": 3}\n'
    assert log.history == [{"step": 3, "loss": 0.5}]
    assert metrics_log.read_history(tmp_path) == log.history


def test_a_torn_line_of_the_step_itself_is_cut(tmp_path):
    metrics = tmp_path / "metrics.jsonl"
    metrics.write_text('{"step": 3}\n{"step": 3, "lo')
    log_in(tmp_path, step=3)
    assert metrics.read_text() == '{"step": 3}\n'
