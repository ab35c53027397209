"""The callbacks that save: the best model, and checkpoints to resume from."""

import math
import pathlib
import time
from typing import NoReturn

import keras

from keras_vit.runtime.machine import (
    random_states,
    set_random_states,
    sync_state,
)
from keras_vit.training import checkpoint_files
from keras_vit.training.averages import (
    AverageInEvaluation,
    averaged,
    has_average,
)
from keras_vit.training.background import BackgroundWriter
from keras_vit.training.distribution.processes import to_numpy
from keras_vit.training.metrics_log import MetricsLog
from keras_vit.training.preemption import Preemption
from keras_vit.training.run import files as run_folder
from keras_vit.training.stages import Plan

__all__ = ["Checkpoints", "KeepBest", "collect_states", "restore_states"]


class KeepBest(keras.callbacks.Callback):
    """Saves the model of the best evaluation, and stops when none is better.

    The file is checkpoints/best.keras, with the moving average of the weights
    where there is one.

    Args:
        folder: the run folder.
        class_names: saved with the model.
        metric: the higher the better, except for a loss.
        patience: evaluations without a better one after which the training
            ends; None never ends it.
        saved: the model to save instead of the one that is trained.

    Attributes:
        best: value of the metric, None before the first evaluation.
        waited: evaluations since.
    """

    def __init__(
        self,
        folder: pathlib.Path,
        class_names,
        metric: str,
        patience: int | None = None,
        *,
        saved: keras.Model | None = None,
    ):
        super().__init__()
        self.path = folder / checkpoint_files.FOLDER / "best.keras"
        self.class_names = class_names
        self.metric = metric
        self.sign = -1 if metric.endswith("loss") else 1
        self.saved = saved
        self.patience = math.inf if patience is None else patience
        self.best: float | None = None
        self.waited = 0

    def on_epoch_end(self, epoch, logs=None):
        value = (logs or {}).get(self.metric)
        if value is None:
            return
        self.waited += 1
        if self.best is None or self.sign * (value - self.best) > 0:
            self.best, self.waited = value, 0
            with averaged(self.model):
                run_folder.save_model(
                    self.saved or self.model, self.class_names, self.path
                )
        if self.waited >= self.patience:
            self.model.stop_training = True


class Checkpoints(keras.callbacks.Callback):
    """Writes a checkpoint after each interval; the last of all callbacks.

    Where the run is to end early, it writes one after the step, or in the
    evaluation, with the metrics of the interval so far, and ends the run.
    Also checkpoints/average.keras, the model with the moving average of the
    weights, where the optimizer keeps one.

    Args:
        folder: the run folder.
        plan: the `Plan`: at which steps to write, evaluate and end.
        class_names: saved with the average.
        log: the `MetricsLog`, which knows the step.
        preemption: the `Preemption`, which tells when to end early.
        writer: the `BackgroundWriter`.
        average: the callback that puts averages in the place of weights.
        metrics: the Keras metrics besides the loss.
        others: the callbacks whose states belong to the run.
        keep: how many checkpoints are kept.
        saved: the model to save instead of the one that is trained.
        checkpoint: the one that the run continues from, as
            `checkpoint_files.read_newest` returned it.

    Attributes:
        record: what the newest checkpoint holds beside the variables.
    """

    def __init__(
        self,
        folder: pathlib.Path,
        plan: Plan,
        class_names,
        log: MetricsLog,
        preemption: Preemption,
        writer: BackgroundWriter,
        average: AverageInEvaluation,
        *,
        metrics=(),
        others=(),
        keep: int = 2,
        saved: keras.Model | None = None,
        checkpoint: tuple[dict, dict] | None = None,
    ):
        super().__init__()
        self.folder = folder / checkpoint_files.FOLDER
        self.plan = plan
        self.class_names = class_names
        self.log = log
        self.preemption = preemption
        self.average = average
        self.writer = writer
        self.metrics = metrics
        self.others = others
        self.keep = keep
        self.saved = saved
        self.arrays, self.record = checkpoint or ({}, None)

    def on_train_begin(self, logs=None):
        # Keras's callbacks forget everything where a training begins.
        if self.record is not None:
            restore_states(self.others, self.record["callbacks"])
        self._seconds = (self.record or {}).get("seconds", 0.0)
        self._begin = time.perf_counter()
        self._copying = 0.0
        self._hold(False)

    def on_epoch_begin(self, epoch, logs=None):
        self._interval, self._batches = epoch, self.log.skipped
        # Keras has just reset them.
        checkpoint_files.restore_metrics(self._metric_variables(), self.arrays)

    def on_train_batch_begin(self, batch, logs=None):
        self._restore_generators()

    def _restore_generators(self):
        if self.arrays:
            checkpoint_files.restore_generators(self.arrays)
            self.arrays = {}

    def on_train_batch_end(self, batch, logs=None):
        self._hold(True)
        self._batches = self.log.skipped + batch + 1
        last = self.model.stop_training or self._batches >= self.plan.batches
        # What follows the last step of an interval ends with a checkpoint.
        if last or self._batches % self.plan.batches_per_step:
            return
        if self._ends():
            sync_state(self.model)
            self.log.check()
            self.log.write_due(batch + 1)
            self._end(self._metric_values())

    def on_test_begin(self, logs=None):
        self._restore_generators()  # Where the evaluation alone was left.
        # Which begins anew, with what loaders of torch draw for it.
        self._generators = random_states()
        self._hold(True)
        self._values = self._metric_values()  # The evaluation resets them.
        self._end_in_evaluation()

    def on_test_batch_end(self, batch, logs=None):
        self._end_in_evaluation()

    def _end_in_evaluation(self):
        if self._ends():
            sync_state(self.model)
            self.average.on_test_end()
            set_random_states(self._generators)
            self._end(self._values)

    def on_epoch_end(self, epoch, logs=None):
        # Not the optimizer's count, which skips what overflows float16.
        step = self.log.history[-1]["step"]
        if has_average(self.model.optimizer):
            with averaged(self.model):
                run_folder.save_model(
                    self.saved or self.model,
                    self.class_names,
                    self.folder / "average.keras",
                )
        ended = self.model.stop_training or step >= self.plan.total
        self._write(step, epoch + 1, ended=ended)
        self._hold(False)
        if self._ends(now=True):
            self._raise()

    def _end(self, values) -> NoReturn:
        """Writes what was done of an interval, and ends the run."""
        if self._held:
            part = {"batches": self._batches, **self.log.position()}
            step = self.plan.step(self._interval, self._batches)
            self._write(step, self._interval, part=part, values=values)
        self._raise()

    def _raise(self) -> NoReturn:
        raise self.preemption.kind or KeyboardInterrupt

    def _hold(self, something):
        """Says whether there are steps that no checkpoint has."""
        self._held = something
        self.preemption.hold(something)

    def _write(self, step, interval, *, ended=False, part=None, values=()):
        # One copy at a time is in memory.
        self.writer.wait()
        begin = time.perf_counter()
        self.record = {
            "step": step,
            "interval": interval,
            "ended": ended,
            "seconds": self._seconds + begin - self._begin,
            "callbacks": collect_states(self.others),
            **({} if part is None else {"part": part}),
        }
        write = checkpoint_files.begin_checkpoint(
            self.folder,
            step,
            self.model,
            self.record,
            values,
            self.keep,
        )
        self.writer.start(write)
        self._copying = max(self._copying, time.perf_counter() - begin)

    def _ends(self, **how):
        """Whether to end here, with time left for a last checkpoint."""
        # The one before may be in the midst of it.
        reserve = self._copying + 2 * self.writer.seconds
        return self.preemption.ends(reserve, **how)

    def _metric_variables(self):
        found = [x for x in self.model.metrics if x.name == "loss"]
        return [
            x for metric in [*found, *self.metrics] for x in metric.variables
        ]

    def _metric_values(self):
        return [to_numpy(variable) for variable in self._metric_variables()]


# Of Keras and of keras_vit, subclasses too. Other callbacks start anew.
STATES = {
    "EarlyStopping": ("wait", "best", "best_epoch", "stopped_epoch"),
    "ReduceLROnPlateau": ("wait", "best", "cooldown_counter"),
    "KeepBest": ("best", "waited"),
}


def collect_states(callbacks) -> list[dict]:
    """The states of the callbacks of `STATES`, as plain values.

    Example:
        >>> collect_states([keras.callbacks.EarlyStopping()])[0]["wait"]
        0
    """
    return [
        {
            "class": type(callback).__name__,
            **{name: _plain(getattr(callback, name, None)) for name in names},
        }
        for callback, names in _known(callbacks)
    ]


def _known(callbacks):
    """Pairs of a callback and the names of its state."""
    for callback in callbacks:
        bases = [base.__name__ for base in type(callback).__mro__]
        names = [STATES[base] for base in bases if base in STATES]
        if names:
            yield callback, names[0]


def _plain(value):
    """JSON has no numbers of NumPy or of a backend."""
    known = value is None or isinstance(value, (int, float))
    return value if known else float(keras.ops.convert_to_numpy(value))


def restore_states(callbacks, states: list[dict]) -> None:
    """Restores what `collect_states` returned.

    Raises:
        ValueError: when other callbacks have a state now.
    """
    known = [callback for callback, _ in _known(callbacks)]
    now = [type(callback).__name__ for callback in known]
    then = [state["class"] for state in states]
    if now != then:
        raise ValueError(
            f"The run was begun with the callbacks {then}. Received: {now}. "
            "Continue with the same, or start again in another --run_dir."
        )
    for callback, state in zip(known, states, strict=True):
        for name, value in state.items():
            if name != "class":
                setattr(callback, name, value)
