"""TensorBoard events of the lines of metrics, where a writer is installed."""

import csv
import importlib.util
import json
import math
import os
import pathlib
import time
from collections.abc import Callable

import keras

from keras_vit.files import replacing, write_csv
from keras_vit.training.distribution import peak_memory, sync_state
from keras_vit.training.distribution.processes import is_first
from keras_vit.training.inputs import Plan
from keras_vit.training.non_finite import FirstNonFinite, GradientWatch

__all__ = [
    "FOLDER",
    "MetricsLog",
    "event_writer",
    "read_history",
]

FLUSH_SECONDS = 2
FOLDER = "tensorboard"
NOT_NUMBERS_OF_INTEREST = ("step", "epoch")


def event_writer(folder: pathlib.Path, step: int) -> Callable[[dict], None]:
    """Makes what writes each line of metrics as TensorBoard events.

    Args:
        folder: the run folder.
        step: int, the step that the run continues from; TensorBoard forgets
            what it had of later ones.

    Returns:
        A function of a line, a dictionary of numbers with "step" among them.
        Where no writer is installed, a line says so, and the function does
        nothing.

    Example:
        >>> write = event_writer(folder, step=0)
        >>> write({"step": 50, "loss": 2.3})
    """
    for needed, make in WRITERS.items():
        if all(map(importlib.util.find_spec, needed)):
            return _lines(make(folder / FOLDER, step))
    print("No TensorBoard events: pip install tensorboardX for them.")
    return lambda row: None


def _lines(scalar):
    def write(row: dict) -> None:
        for name, value in row.items():
            if name not in NOT_NUMBERS_OF_INTEREST and value is not None:
                scalar(name, value, row["step"])

    return write


def _tensorboardx(folder, step):
    import tensorboardX

    # A thread writes; its own flush() does not wait for what is in the queue.
    return tensorboardX.SummaryWriter(
        str(folder),
        purge_step=step + 1 if step else None,
        flush_secs=FLUSH_SECONDS,
    ).add_scalar


def _tensorflow(folder, step):
    import tensorflow as tf

    writer = tf.summary.create_file_writer(str(folder))

    def scalar(name, value, step):
        with writer.as_default():
            tf.summary.scalar(name, value, step=step)
        writer.flush()

    return scalar


# What each needs; the first that there is writes. TensorFlow's summaries live
# in the package tensorboard.
WRITERS = {
    ("tensorboardX",): _tensorboardx,
    ("tensorboard", "tensorflow"): _tensorflow,
}


METRICS = "metrics.jsonl"
HISTORY = "history.csv"
MAX_NAMES = 32  # images that an error names


class MetricsLog(keras.callbacks.Callback):
    """Writes down how the training goes, and stops it when it goes wrong.

    A line of metrics.jsonl has the means over the steps since the line before
    (or since the checkpoint, if that was later), and the learning rate, the
    norm of the gradients before they are clipped, images per second of
    training alone, and the peak memory in bytes at its end. The line of a
    checkpoint has the metrics of the evaluation as well. A line of
    history.csv has the means since the checkpoint before.

    Nothing is read from the device between the lines: the callback looks when
    a batch begins, at what the batches before left.

    Args:
        folder: pathlib.Path, the run folder.
        plan: a `Plan`.
        losses: the `FirstNonFinite` of the model.
        gradients: the `GradientWatch` of its optimizer.
        names_of: function from the number of a step, counted from 0, to the
            names of its images.
        step: int, the step that the run continues from; what the files have
            of later ones is removed.
        listeners: functions that get each line, a dictionary.

    Attributes:
        history: list of dictionaries, the lines of history.csv.

    Raises:
        FloatingPointError: in the training, after a loss or gradient that is
            not finite.

    Example:
        >>> log = MetricsLog(folder, plan, losses, gradients, stream.names_of)
        >>> model.fit(batches, callbacks=[log])
    """

    def __init__(
        self,
        folder: pathlib.Path,
        plan: Plan,
        losses: FirstNonFinite,
        gradients: GradientWatch,
        names_of,
        *,
        step: int = 0,
        listeners=(),
    ):
        super().__init__()
        self.folder, self.plan = folder, plan
        self.losses, self.gradients = losses, gradients
        self.names_of = names_of
        self.listeners = listeners
        self.history = [
            row for row in read_history(folder) if row["step"] <= step
        ]
        if (folder / HISTORY).exists():
            _write_history(folder, self.history)
        _cut_metrics(folder / METRICS, step)

    def on_epoch_begin(self, epoch, logs=None):
        self._stretch = epoch
        self._batches, self._means = 0, {}
        self._seconds, self._row = 0.0, None
        self._begin = time.perf_counter()

    def on_train_batch_begin(self, batch, logs=None):
        before = self.plan.step(self._stretch, self._batches)
        now = self.plan.step(self._stretch, batch)
        if now // self.plan.log_every > before // self.plan.log_every:
            sync_state(self.model)
            self._write(self._close())

    def on_test_begin(self, logs=None):
        # The evaluation resets the metrics and takes its own time.
        self._row = self._close()

    def on_epoch_end(self, epoch, logs=None):
        logs = {} if logs is None else logs
        row = self._close() if self._row is None else self._row
        evaluated = {
            name: value
            for name, value in logs.items()
            if name.startswith("val_")
        }
        self._write({**row, **evaluated})
        images = self._batches * self.plan.batch_size
        images /= self.plan.batches_per_step
        # Callbacks that come later, and Keras's own line, have these as well.
        logs["learning_rate"] = row["learning_rate"]
        logs["images_per_second"] = images / self._seconds
        place = {name: row[name] for name in ("step", "epoch")}
        self.history.append({**place, **logs})
        _write_history(self.folder, self.history)

    def _close(self) -> dict:
        """The line of the batches since the one before."""
        results = self.model.get_metrics_result()
        means = {
            name: float(value)
            for name, value in results.items()
            if not isinstance(value, dict)
        }
        batches = int(_number(self.losses.batches))
        self._check()
        # Reading the metrics waited for the device.
        seconds = time.perf_counter() - self._begin
        row = self._line(means, batches, seconds)
        self._batches, self._means = batches, means
        self._seconds += seconds
        self._begin = time.perf_counter()
        return row

    def _line(self, means, batches, seconds) -> dict:
        new = batches - self._batches
        step = self.plan.step(self._stretch, batches)
        images = new * self.plan.batch_size / self.plan.batches_per_step
        return {
            "step": step,
            "epoch": step / self.plan.steps_per_epoch,
            **{
                # Keras's means are over the whole stretch.
                name: (
                    mean * batches - self._means.get(name, 0) * self._batches
                )
                / new
                for name, mean in means.items()
            },
            "learning_rate": float(_number(self.model.optimizer.learning_rate)),
            "gradient_norm": float(_number(self.gradients.norm)),
            "images_per_second": images / seconds,
            "peak_memory": peak_memory(),
        }

    def _check(self) -> None:
        """Raises where a loss or gradient since the last look is not finite."""
        first, parts = (
            int(_number(self.losses.first)),
            self.plan.batches_per_step,
        )
        found = [int(_number(self.gradients.first)), math.inf]
        if first:
            begun = self._stretch * self.plan.checkpoint_every
            found.append(begun + (first - 1) // parts + 1)
        step = min(number for number in found if number)
        if step < math.inf:
            _stop(self.folder, step, self.names_of(step - 1))

    def _write(self, row: dict) -> None:
        if not is_first():
            return
        with (self.folder / METRICS).open("a") as file:
            file.write(json.dumps(row) + "\n")
            file.flush()
            os.fsync(file.fileno())
        for listener in self.listeners:
            listener(row)


def _number(variable):
    # The variables of a tf.distribute strategy do not convert themselves.
    return keras.ops.convert_to_numpy(variable)


def _stop(folder, step, names):
    shown = ", ".join(map(str, names[:MAX_NAMES]))
    more = len(names) - MAX_NAMES
    shown += f" and {more} more" if more > 0 else ""
    raise FloatingPointError(
        f"The loss or its gradient is not finite at step {step}. Images of "
        f"its batch: {shown}. The last checkpoint in {str(folder)!r} is from "
        "before it. Lower optimizer.learning_rate, set optimizer.clip_norm, "
        "lengthen the warm-up or look at the images, in a new --run_dir."
    )


def read_history(folder: pathlib.Path) -> list[dict]:
    """Reads history.csv.

    Args:
        folder: the run folder.

    Returns:
        A dictionary of numbers a line; none where there is no such file.

    Example:
        >>> read_history(folder)[-1]["val_accuracy"]
        0.99
    """
    path = folder / HISTORY
    if not path.exists():
        return []
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        row.update({k: float(value) for k, value in row.items() if value})
        row["step"] = int(row["step"])
    return [
        {k: value for k, value in row.items() if value != ""} for row in rows
    ]


def _write_history(folder, rows) -> None:
    if not is_first():
        return
    write_csv(folder / HISTORY, rows)


def _cut_metrics(path, step) -> None:
    """Removes the lines of later steps, and one that is not whole."""
    if not (path.exists() and is_first()):
        return
    kept = []
    for line in path.read_text().splitlines():
        try:
            if json.loads(line)["step"] > step:
                break
        except ValueError:
            break
        kept.append(line + "\n")
    with replacing(path) as temporary:
        temporary.write_text("".join(kept))
