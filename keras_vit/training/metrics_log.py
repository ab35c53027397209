"""Where the metrics of a training go: its files and trackers of experiments.

metrics.jsonl and history.csv are written always. A loss or gradient that is not
finite ends the training. What is logged stays in variables on the device, which
are read only at the steps that are logged.

Trackers are TensorBoard, Weights & Biases and MLflow. Keras's callbacks for
them have other steps and names of metrics, and forget nothing where a run
resumes from an earlier checkpoint; its own of TensorBoard needs TensorFlow.
The id of a run of the last two is kept in the run folder, so that a run that
resumes goes on in the same one. Where they report to is set by their own
variables: WANDB_PROJECT, WANDB_MODE, MLFLOW_TRACKING_URI,
MLFLOW_EXPERIMENT_NAME and so on. A failure there is logged once and does not
end the training.
"""

import contextlib
import csv
import importlib.util
import json
import logging
import math
import os
import pathlib
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import keras
from keras import ops

from keras_vit.io.atomic_files import replacing, write_csv, write_json
from keras_vit.io.checks import EXTRAS, check_installed
from keras_vit.runtime.machine import peak_memory, sync_state
from keras_vit.runtime.workarounds import observe_gradients
from keras_vit.training.distribution.processes import is_first
from keras_vit.training.run import files as run_folder
from keras_vit.training.run.files import shown
from keras_vit.training.stages import Plan

__all__ = [
    "AccuracyWatch",
    "FirstNonFinite",
    "GradientWatch",
    "MetricsLog",
    "check_trackers",
    "event_writer",
    "read_history",
    "report_result",
    "tracking",
]

METRICS = "metrics.jsonl"
HISTORY = "history.csv"
MAX_NAMES = 32  # images that an error names
LOGGER = logging.getLogger(__name__)
EVENTS = "tensorboard"  # the folder
IDS = "trackers.json"
PROJECT = "keras_vit"  # where the environment names none
STATUSES = ("FINISHED", "FAILED", "KILLED")
LONGEST_VALUE = 500  # characters of a parameter of MLflow
PICTURES = ("report.html", "curves.png", "confusion.png")


class FirstNonFinite(keras.metrics.Metric):
    """A metric that counts batches and finds the first non-finite loss.

    The logs do not show it. Keras resets it with the other metrics, at the
    start of each epoch and each evaluation.

    Args:
        loss: the Keras loss that the model is compiled with.

    Attributes:
        batches: variable of the batches since the reset.
        first: variable, the number of the first batch whose loss is not
            finite, counted from 1; 0 when all were.
    """

    def __init__(self, loss, name="first_non_finite"):
        super().__init__(name=name)
        self.loss = loss
        # Replicas count the same: their numbers are not added up.
        options = {"dtype": "int32", "aggregation": "only_first_replica"}
        self.batches = self.add_variable((), "zeros", **options)
        self.first = self.add_variable((), "zeros", **options)

    def update_state(self, y_true, y_pred, sample_weight=None):
        self.batches.assign_add(1)
        finite = ops.isfinite(self.loss(y_true, y_pred))
        _remember(self.first, finite, self.batches)

    def result(self):
        return {}


class GradientWatch:
    """Measures the gradients of each update of an optimizer.

    Args:
        optimizer: a Keras optimizer that is not built.

    Attributes:
        norm: variable, the L2 norm of all gradients of the last update,
            before they are clipped.
        first: variable, the number of the first update whose gradients are
            not finite, counted from 1; 0 when all were.
    """

    def __init__(self, optimizer: keras.optimizers.Optimizer):
        if isinstance(optimizer, keras.optimizers.LossScaleOptimizer):
            optimizer = optimizer.inner_optimizer
        # Replicas see the same gradients, those of the whole batch.
        one = {"aggregation": "only_first_replica"}
        self.norm = optimizer.add_variable((), name="gradient_norm", **one)
        self.first = optimizer.add_variable(
            (), dtype="int32", name="first", **one
        )
        self._optimizer = optimizer
        observe_gradients(optimizer, self._measure)

    def _measure(self, gradients):
        squares = [
            ops.sum(ops.square(ops.cast(gradient, "float32")))
            for gradient in gradients
        ]
        norm = ops.sqrt(sum(squares))
        self.norm.assign(norm)
        number = ops.cast(self._optimizer.iterations, "int32") + 1
        _remember(self.first, ops.isfinite(norm), number)


def _remember(first, finite, number):
    """Assign a number that is not finite, unless there is an earlier one."""
    value = ops.convert_to_tensor(first)
    found = ops.logical_and(ops.equal(value, 0), ops.logical_not(finite))
    first.assign(ops.where(found, ops.convert_to_tensor(number), value))


class MetricsLog(keras.callbacks.Callback):
    """Logs the metrics, and stops a training that is not finite.

    A line of metrics.jsonl has the means over the steps since the previous
    line (or the checkpoint, if that was later), and the learning rate, the
    norm of the gradients before clipping, images per second of training
    alone, and the peak memory in bytes at its end. The line of a checkpoint
    has the metrics of the evaluation as well. A line of history.csv has the
    means since the previous checkpoint.

    Args:
        folder: the run folder.
        plan: the `Plan`: at which steps to write, evaluate and end.
        losses: the `FirstNonFinite` of the model.
        gradients: the `GradientWatch` of its optimizer.
        names_of: function from the number of a step, counted from 0, to the
            names of its images.
        step: the step that the run continues from, None of one that begins;
            lines of later ones are removed from the files.
        part: what `position` returned, with the "batches" that were done in
            the first interval; None where it begins with this `fit`.
        listeners: functions that get each line, a dictionary.

    Attributes:
        history: the lines of history.csv, as dictionaries.
        skipped: batches of this interval that were done before this `fit`.

    Raises:
        FloatingPointError: in the training, after a loss or gradient that is
            not finite.
    """

    def __init__(
        self,
        folder: pathlib.Path,
        plan: Plan,
        losses: FirstNonFinite,
        gradients: GradientWatch,
        names_of,
        *,
        step: int | None = None,
        part: dict | None = None,
        listeners=(),
    ):
        super().__init__()
        self.folder, self.plan = folder, plan
        self.losses, self.gradients = losses, gradients
        self.names_of = names_of
        self.listeners = listeners
        self.skipped, self._part = 0, part
        step = -1 if step is None else step  # Nor is one of step 0 left.
        self.history = [
            row for row in read_history(folder) if row["step"] <= step
        ]
        if (folder / HISTORY).exists():
            _write_history(folder, self.history)
        _cut_metrics(folder / METRICS, step)

    def on_epoch_begin(self, epoch, logs=None):
        self._interval = epoch
        part, self._part = self._part or {}, None
        self.skipped = part.get("batches", 0)
        self._batches = part.get("logged", 0)
        self._means = part.get("means", {})
        self._seconds, self._row = part.get("seconds", 0.0), None
        self._begin = time.perf_counter() - part.get("open", 0.0)

    def write_start(self, logs: dict) -> None:
        """Write the line of an evaluation before the first step."""
        row = {"step": 0, "epoch": 0.0, **logs}
        self._write(row)
        self.history.append(row)
        _write_history(self.folder, self.history)

    def position(self) -> dict:
        """Return where it is in its interval, as plain values.

        In an evaluation, where it was before that.
        """
        return self._position() if self._row is None else self._before

    def _position(self):
        return {
            "logged": self._batches,
            "means": self._means,
            "seconds": self._seconds,
            "open": time.perf_counter() - self._begin,
        }

    def on_train_batch_begin(self, batch, logs=None):
        self.write_due(batch)

    def write_due(self, batch: int) -> None:
        """Write a line if it is time, with so many batches of `fit` done."""
        before = self.plan.step(self._interval, self._batches)
        now = self.plan.step(self._interval, self.skipped + batch)
        if now // self.plan.log_every > before // self.plan.log_every:
            sync_state(self.model)
            self._write(self._close())

    def on_test_begin(self, logs=None):
        # The evaluation resets the metrics and takes its own time.
        self._before = self._position()
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
        """Return the line of the batches since the previous one."""
        results = self.model.get_metrics_result()
        means = {
            name: float(value)
            for name, value in results.items()
            if not isinstance(value, dict)
        }
        batches = int(_read(self.losses.batches))
        self.check()
        # Reading the metrics waited for the device.
        seconds = time.perf_counter() - self._begin
        row = self._line(means, batches, seconds)
        self._batches, self._means = batches, means
        self._seconds += seconds
        self._begin = time.perf_counter()
        return row

    def _line(self, means, batches, seconds) -> dict:
        before, new = self._batches, batches - self._batches
        step = self.plan.step(self._interval, batches)
        images = new * self.plan.batch_size / self.plan.batches_per_step
        # Keras's means are over the whole interval.
        sums = {
            name: mean * batches - self._means.get(name, 0) * before
            for name, mean in means.items()
        }
        return {
            "step": step,
            "epoch": step / self.plan.steps_per_epoch,
            **{name: total / new for name, total in sums.items()},
            "learning_rate": float(_read(self.model.optimizer.learning_rate)),
            "gradient_norm": float(_read(self.gradients.norm)),
            "images_per_second": images / seconds,
            "peak_memory": peak_memory(),
        }

    def check(self) -> None:
        """Raise where a loss or gradient was not finite."""
        first = int(_read(self.losses.first))
        found = [int(_read(self.gradients.first)), math.inf]
        if first:
            found.append(self.plan.step(self._interval, first - 1) + 1)
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


class AccuracyWatch(keras.callbacks.Callback):
    """Says aloud, once, that the training unlearns.

    Which it does where the training accuracy is below that of the first
    interval twice in a row: the rate is too high as a rule.

    Args:
        log: the `MetricsLog`, whose history has the accuracies.
    """

    def __init__(self, log: MetricsLog):
        super().__init__()
        self.log = log
        self._said = False

    def on_epoch_end(self, epoch, logs=None):
        rows = [row for row in self.log.history if row["step"]]
        found = [
            x for x in (row.get("accuracy") for row in rows) if x is not None
        ]
        if self._said or len(found) < 3 or len(found) < len(rows):
            return
        if max(found[-2:]) < found[0] and is_first():
            self._said = True
            rate = max(row["learning_rate"] for row in rows)
            print(
                f"Warning: the training accuracy is {found[-1]:.3f}, below the "
                f"{found[0]:.3f} of the first epoch for the second time. The "
                f"learning rate, up to {rate:.2g}, may be too high: try "
                f"--optimizer.learning_rate {rate / 10:.1g} in a new --run_dir",
                flush=True,
            )


def _read(variable):
    # The variables of a tf.distribute strategy do not convert themselves.
    return ops.convert_to_numpy(variable)


def _stop(folder, step, names):
    listed = ", ".join(map(str, names[:MAX_NAMES]))
    more = len(names) - MAX_NAMES
    listed += f" and {more} more" if more > 0 else ""
    raise FloatingPointError(
        f"The loss or its gradient is not finite at step {step}. Images of "
        f"its batch: {listed}. The last checkpoint in {shown(folder)!r} is "
        "from before it. Lower optimizer.learning_rate, set "
        "optimizer.clip_norm, lengthen the warm-up or look at the images, in "
        "a new --run_dir."
    )


def read_history(folder: pathlib.Path) -> list[dict]:
    """Read history.csv of a run folder: a dictionary of numbers per line.

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
    """Remove the lines of later steps, and one that is not whole."""
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


def check_trackers(names: Sequence[str]) -> None:
    """Raise a ValueError with the pip command for one that is not here."""
    for name in names:
        check_installed(f"training.trackers={name}", *EXTRAS[name])


@contextlib.contextmanager
def tracking(
    folder: pathlib.Path, names: Sequence[str]
) -> Iterator[list[Callable[[dict], None]]]:
    """Open the runs of the trackers, and close them with how it ended.

    Args:
        folder: the run folder, which has its config.yaml.
        names: of `TRACKERS`. Of several processes the first one reports.

    Yields:
        Functions of a line of metrics, see `MetricsLog`.

    Example:
        >>> with tracking(folder, ["mlflow"]) as listeners:
        ...     listeners[0]({"step": 1, "loss": 2.3})
    """
    runs = _opened(folder, names) if is_first() else []
    status = "FAILED"
    try:
        yield [run.log for run in runs]
        status = "FINISHED"
    except KeyboardInterrupt:
        status = "KILLED"
        raise
    finally:
        for run in runs:
            run.close(status)


def report_result(
    folder: pathlib.Path, names: Sequence[str], result: dict
) -> None:
    """Add the result and the report to the runs that `tracking` opened.

    Args:
        folder: the run folder.
        names: of `TRACKERS`.
        result: what result.json has.
    """
    for run in _opened(folder, names):
        run.add_result(
            run_folder.flat(result), [folder / name for name in PICTURES]
        )
        run.close("FINISHED")


def _opened(folder, names) -> list["_Guarded"]:
    """Open the runs of the trackers, those of the ids in the folder if any."""
    path = folder / IDS
    try:
        ids = dict(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        ids = {}
    config = run_folder.flat(run_folder.read_config(folder)) if names else {}
    runs = []
    for name in names:
        run = _Guarded(name, folder.resolve().name, config, ids.get(name))
        ids[name] = run.id
        runs.append(run)
    if runs:
        write_json(path, ids)
    return runs


class _Guarded:
    """The run of a tracker, until something fails there."""

    def __init__(self, name, title, config, known):
        self.name, self.id = name, known
        self._run: Any = None
        with self._logging_failures():
            self._run = TRACKERS[name](title, config, known)
            self.id = self._run.id

    def __getattr__(self, method):
        def call(*arguments):
            if self._run is not None:
                with self._logging_failures():
                    getattr(self._run, method)(*arguments)

        return call

    @contextlib.contextmanager
    def _logging_failures(self):
        try:
            yield
        except Exception as error:
            self._run = None
            reason = " ".join(str(error).split())
            LOGGER.warning("%s gets no more of this run: %s", self.name, reason)


class _WandbRun:
    """A run of Weights & Biases."""

    def __init__(self, title, config, known):
        import wandb  # pyright: ignore[reportMissingImports]

        project = os.environ.get("WANDB_PROJECT", PROJECT)
        self._run = wandb.init(
            id=known,
            project=project,
            name=title,
            config=config,
            resume="allow",
        )
        self.id = self._run.id
        # Its own steps only grow, and a run may resume from an earlier one.
        self._run.define_metric("*", step_metric="step")

    def log(self, row):
        self._run.log({k: x for k, x in row.items() if x is not None})

    def add_result(self, result, files):
        self._run.summary.update(result)
        for file in filter(pathlib.Path.is_file, files):
            self._run.save(file, base_path=file.parent, policy="now")

    def close(self, status):
        self._run.finish(exit_code=STATUSES.index(status))


class _MlflowRun:
    """A run of MLflow."""

    def __init__(self, title, config, known):
        from mlflow.tracking import (  # pyright: ignore[reportMissingImports]
            MlflowClient,
        )

        self._client = MlflowClient()
        self.id = known if self._is_there(known) else None
        if self.id is not None:
            self._client.update_run(self.id, "RUNNING")
            return
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", PROJECT)
        found = self._client.get_experiment_by_name(name)
        experiment = (
            self._client.create_experiment(name)
            if found is None
            else found.experiment_id
        )
        run = self._client.create_run(experiment, run_name=title)
        self.id = run.info.run_id
        for key, value in config.items():
            self._client.log_param(self.id, key, str(value)[:LONGEST_VALUE])

    def _is_there(self, known):
        from mlflow.exceptions import (  # pyright: ignore[reportMissingImports]
            MlflowException,
        )

        with contextlib.suppress(MlflowException):
            return known is not None and bool(self._client.get_run(known))
        return False

    def log(self, row):
        for name, value in row.items():
            if name != "step" and value is not None:
                self._client.log_metric(
                    self.id, name, float(value), step=row["step"]
                )

    def add_result(self, result, files):
        for name, value in result.items():
            if isinstance(value, int | float):
                self._client.log_metric(self.id, f"result.{name}", value)
        for file in filter(pathlib.Path.is_file, files):
            self._client.log_artifact(self.id, str(file))

    def close(self, status):
        self._client.set_terminated(self.id, status)


# Names of `keras_vit.training.config.TRACKERS`.
TRACKERS: dict[str, Callable] = {"wandb": _WandbRun, "mlflow": _MlflowRun}


def event_writer(folder: pathlib.Path, step: int) -> Callable[[dict], None]:
    """Return a function that writes a line of metrics as TensorBoard events.

    Where no writer is installed, it prints that, and the function does
    nothing.

    Args:
        folder: the run folder.
        step: the step that the run continues from; TensorBoard forgets later
            ones.
    """
    for needed, make in WRITERS.items():
        if all(map(importlib.util.find_spec, needed)):
            scalar = make(folder / EVENTS, step)
            break
    else:
        print("No TensorBoard events: pip install tensorboardX for them.")
        return lambda row: None

    def write(row: dict) -> None:
        for name, value in row.items():
            if name not in ("step", "epoch") and value is not None:
                scalar(name, value, row["step"])

    return write


def _tensorboardx(folder, step):
    from tensorboardX.event_file_writer import EventsWriter
    from tensorboardX.proto.event_pb2 import Event, SessionLog
    from tensorboardX.summary import scalar as summary

    # Its SummaryWriter writes by a thread, which a full disk ends: add_scalar
    # then waits forever.
    folder.mkdir(parents=True, exist_ok=True)
    writer = EventsWriter(str(folder / "events"))

    def write(**fields):
        writer.write_event(Event(wall_time=time.time(), **fields))
        writer.flush()

    if step:
        start = SessionLog(status=SessionLog.START)
        write(step=step + 1, session_log=start)

    def close():
        with contextlib.suppress(OSError):  # It was said as it was written.
            writer.close()

    weakref.finalize(write, close)
    return lambda name, value, step: write(
        step=step, summary=summary(name, value)
    )


def _tensorflow(folder, step):
    import tensorflow as tf

    writer = tf.summary.create_file_writer(str(folder))

    def scalar(name, value, step):
        with writer.as_default():
            tf.summary.scalar(name, value, step=step)
        writer.flush()

    return scalar


# What each writer needs; the first one installed is taken. TensorFlow's
# summaries are in the package tensorboard.
WRITERS = {
    ("tensorboardX",): _tensorboardx,
    ("tensorboard", "tensorflow"): _tensorflow,
}
