"""When a training saves and ends: the best model, checkpoints, interruptions.

The callbacks write the best model, and checkpoints to resume from, by a thread
while the training goes on, with the moving average of the weights in
evaluations. A signal or the clock ends a run to go on later, and all its
processes after the same step.
"""

import contextlib
import math
import pathlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import NoReturn

import keras
import numpy as np

from keras_vit.io.run_folder import RUN_MODEL
from keras_vit.runtime.interrupts import Postponed, Terminated, TimeIsUp
from keras_vit.runtime.machine import (
    random_states,
    set_random_states,
    sync_state,
)
from keras_vit.runtime.workarounds import (
    is_schedule_free,
    schedule_free_pairs,
)
from keras_vit.training import checkpoint_files
from keras_vit.training.distribution.processes import place, stacked, to_numpy
from keras_vit.training.metrics_log import MetricsLog
from keras_vit.training.run import files as run_folder
from keras_vit.training.stages import Plan

__all__ = [
    "AverageInEvaluation",
    "BackgroundWriter",
    "Checkpoints",
    "KeepBest",
    "Preemption",
    "averaged",
    "collect_states",
    "deadline_of",
    "has_average",
    "rank",
    "restore_states",
    "take_average",
]

# What ends a run, the strongest first.
KINDS = (Terminated, KeyboardInterrupt, TimeIsUp)
# The processes compare notes so often: half of the shortest notice that
# clouds and schedulers give, 30 seconds, is left for the checkpoint.
SECONDS = 5.0
RESERVE = 5.0  # seconds before the end of the time, and a checkpoint more


class BackgroundWriter:
    """Does one piece of work at a time in a thread.

    An error is raised where it is waited for: before the next piece, and at
    the end of the block, unless that ends in another error.

    Attributes:
        seconds: what the longest piece took.

    Example:
        >>> with BackgroundWriter() as writer:
        ...     writer.start(lambda: write(copy))
        ...     train()
    """

    def __init__(self):
        self.seconds = 0.0
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        try:
            self.wait()
        except Exception:
            # After an interrupt, a checkpoint that is not there is news.
            if error is None or isinstance(error, KeyboardInterrupt):
                raise

    def start(self, work: Callable[[], None]) -> None:
        """Begin a piece of work when the one before has ended."""
        self.wait()
        # A second signal ends the program without it.
        self._thread = threading.Thread(
            target=self._do, args=(work,), daemon=True
        )
        self._thread.start()

    def wait(self) -> None:
        """Wait for the work; raise what it raised."""
        if self._thread is not None:
            self._thread.join()
        self._thread, error, self._error = None, self._error, None
        if error is not None:
            raise error

    def _do(self, work):
        begin = time.monotonic()
        try:
            work()
        except BaseException as error:
            self._error = error
        self.seconds = max(self.seconds, time.monotonic() - begin)


def has_average(optimizer: keras.optimizers.Optimizer) -> bool:
    """Return whether an optimizer keeps an average of the weights."""
    optimizer = _inner(optimizer)
    return bool(optimizer.use_ema) or is_schedule_free(optimizer)


def _inner(optimizer):
    if isinstance(optimizer, keras.optimizers.LossScaleOptimizer):
        return optimizer.inner_optimizer
    return optimizer


@contextlib.contextmanager
def averaged(model) -> Iterator[None]:
    """Replace the weights by their moving average, if there is one.

    Afterwards they are as before, to the bit. Keras's SwapEMAWeights adds and
    subtracts on TensorFlow, so that an evaluation would change the training.
    """
    if not has_average(model.optimizer):
        yield
        return
    kept = _copies(model)
    take_average(model)
    try:
        yield
    finally:
        _assign(model, kept)


def take_average(model) -> None:
    """Replace the weights by their average for good."""
    if is_schedule_free(_inner(model.optimizer)):
        pairs = schedule_free_pairs(
            _inner(model.optimizer), model.trainable_variables
        )
        beta = _inner(model.optimizer).beta_1
        # y = (1 - beta) z + beta x: arXiv:2405.15682, equation 2.
        _assign(
            model,
            [(to_numpy(y) - (1 - beta) * to_numpy(z)) / beta for y, z in pairs],
        )
        return
    model.optimizer.finalize_variable_values(model.trainable_variables)
    # On JAX both are one array now, which the next step would give away with
    # the weights and so take from the optimizer.
    _assign(model, _copies(model))


def _copies(model):
    return [to_numpy(variable) for variable in model.trainable_variables]


def _assign(model, values):
    for variable, value in zip(model.trainable_variables, values, strict=True):
        variable.assign(value)


class AverageInEvaluation(keras.callbacks.Callback):
    """Evaluates the moving average in `fit`, which is what a run saves."""

    def on_test_begin(self, logs=None):
        self._swap = contextlib.ExitStack()
        self._swap.enter_context(averaged(self.model))

    def on_test_end(self, logs=None):
        self._swap.close()


def deadline_of(hours: float | None) -> float | None:
    """Compute the `time.monotonic` that is so many hours from now."""
    return None if hours is None else time.monotonic() + 3600 * hours


class Preemption:
    """Decides after which call of the compiled step a run is to end.

    All processes call `ends` after each. Where there are several, they agree in
    some of these moments, about every `SECONDS`; the first process says when
    the next one is.

    Args:
        signals: what `postponed` yields.
        deadline: of `deadline_of`.

    Attributes:
        kind: the exception to end with; None while the run goes on.
    """

    def __init__(self, signals: Postponed, deadline: float | None = None):
        self.signals, self.deadline = signals, deadline
        self.kind: type[KeyboardInterrupt] | None = None
        self._calls, self._wait = 0, 1
        self._met = time.monotonic()

    def defer(self, something: bool) -> None:
        """Say whether a signal may wait; for it not to end all at once."""
        self.signals.waits = something or place()[1] > 1

    def ends(self, reserve: float = 0.0, *, now: bool = False) -> bool:
        """Return whether the run is to end here.

        Args:
            reserve: seconds that the last checkpoint takes.
            now: whether the processes are to agree in any case.
        """
        own = self._own(reserve)
        if place()[1] == 1:
            self.kind = own
            return own is not None
        self._calls += 1
        if self._calls < self._wait and not now:
            return False
        numbers = [*(own is kind for kind in KINDS), self._next()]
        found = stacked(np.array(numbers, "int32")).sum(axis=0)
        self._calls, self._wait = 0, int(found[-1])
        self._met = time.monotonic()
        counts = zip(KINDS, found[:-1], strict=True)
        self.kind = next((kind for kind, count in counts if count), None)
        return self.kind is not None

    def _own(self, reserve):
        if self.signals.found is not None or self.deadline is None:
            return self.signals.found
        left = self.deadline - time.monotonic() - reserve
        return TimeIsUp if left < RESERVE else None

    def _next(self) -> int:
        """Return the calls until the processes agree, said by the first."""
        if place()[0]:
            return 0
        seconds = (time.monotonic() - self._met) / max(self._calls, 1)
        # The first call compiles: what it took says little.
        return max(min(2 * self._wait, int(SECONDS / max(seconds, 1e-6))), 1)


class KeepBest(keras.callbacks.Callback):
    """Keeps the best evaluation's model, and stops when none is better.

    After each better evaluation, that before the first step included, it
    writes model.keras, and all variables as checkpoints/best-<step>.npz, with
    the moving average of the weights where there is one. The best before stays
    until the next: the newest checkpoint, from which a killed run continues,
    may be of before this evaluation.

    Args:
        folder: the run folder.
        class_names: saved with the model.
        metric: the higher the better, except for a loss and an error; of equal
            ones the lower val_loss is better, and then the earlier.
        patience: evaluations without a better one after which the training
            ends; None never ends it.
        log: the `MetricsLog`, which counts the steps.
        writes: whether the best is kept; otherwise it is only counted.
        saved: the model to save instead of the one that is trained.

    Attributes:
        best: value of the metric, None before the first evaluation.
        loss: val_loss of that evaluation.
        step: its step.
        waited: evaluations since the metric was better.
    """

    def __init__(
        self,
        folder: pathlib.Path,
        class_names,
        metric: str,
        patience: int | None = None,
        *,
        log: MetricsLog,
        writes: bool = True,
        saved: keras.Model | None = None,
    ):
        super().__init__()
        self.folder = folder
        self.class_names = class_names
        self.metric = metric
        self.log = log
        self.writes = writes
        self.saved = saved
        self.patience = math.inf if patience is None else patience
        self.best: float | None = None
        self.loss: float | None = None
        self.step: int | None = None
        self.waited = 0

    def on_epoch_end(self, epoch, logs=None):
        logs = logs or {}
        if self.metric not in logs:
            return
        self.waited += 1
        known = {"val_loss": self.loss, self.metric: self.best}
        old, new = rank(known, self.metric), rank(logs, self.metric)
        if new[0] > old[0]:
            self.waited = 0
        if new > old:
            self.best, self.loss = logs[self.metric], logs.get("val_loss")
            before, step = self.step, self.log.history[-1]["step"]
            self.step = step
            if self.writes:
                self._write(before, step)
        if self.waited >= self.patience:
            self.model.stop_training = True

    def _write(self, before, step):
        folder = self.folder / checkpoint_files.FOLDER
        # There is no average before the first step.
        with averaged(self.model) if step else contextlib.nullcontext():
            checkpoint_files.write_best(folder, step, self.model)
            run_folder.save_model(
                self.saved or self.model,
                self.class_names,
                self.folder / RUN_MODEL,
            )
        checkpoint_files.prune_best(folder, (before, step))

    def restore(self) -> bool:
        """Give the trained model the best weights; False without any."""
        if not self.writes or self.step is None:
            return False
        folder = self.folder / checkpoint_files.FOLDER
        checkpoint_files.restore_best(folder, self.step, self.model)
        checkpoint_files.prune_best(folder, (self.step,))
        return True


def rank(logs: dict, metric: str) -> tuple[float, float]:
    """Return numbers that compare evaluations: the higher, the better.

    Args:
        logs: metric to value; what is missing, None or NaN is the worst.
        metric: what counts first; val_loss decides between equal ones, of
            which small validation sets have many.

    Example:
        >>> rank({"val_accuracy": 0.9, "val_loss": 0.5}, "val_accuracy")
        (0.9, -0.5)
    """
    found = [
        (-1 if name.endswith(("loss", "mae")) else 1, logs.get(name))
        for name in (metric, "val_loss")
    ]
    first, second = (
        -math.inf if value is None or math.isnan(value) else sign * value
        for sign, value in found
    )
    return first, second


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
        log: the `MetricsLog`, which counts the steps.
        preemption: the `Preemption`, which decides when to end early.
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
        self._defer_interrupts(False)

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
        self._defer_interrupts(True)
        self._batches = self.log.skipped + batch + 1
        last = self.model.stop_training or self._batches >= self.plan.batches
        # What follows the last step of an interval ends with a checkpoint.
        if last or self._batches % self.plan.batches_per_step:
            return
        if self._interval_is_over():
            sync_state(self.model)
            self.log.check()
            self.log.write_due(batch + 1)
            self._finish_interval(self._metric_values())

    def on_test_begin(self, logs=None):
        self._restore_generators()  # Where the evaluation alone was left.
        # Which begins anew, with what loaders of torch draw for it.
        self._generators = random_states()
        self._defer_interrupts(True)
        self._values = self._metric_values()  # The evaluation resets them.
        self._end_in_evaluation()

    def on_test_batch_end(self, batch, logs=None):
        self._end_in_evaluation()

    def _end_in_evaluation(self):
        if self._interval_is_over():
            sync_state(self.model)
            self.average.on_test_end()
            set_random_states(self._generators)
            self._finish_interval(self._values)

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
        self._defer_interrupts(False)
        if self._interval_is_over(now=True):
            self._raise()

    def _finish_interval(self, values) -> NoReturn:
        """Write what was done of an interval, and end the run."""
        if self._held:
            part = {"batches": self._batches, **self.log.position()}
            step = self.plan.step(self._interval, self._batches)
            self._write(step, self._interval, part=part, values=values)
        self._raise()

    def _raise(self) -> NoReturn:
        raise self.preemption.kind or KeyboardInterrupt

    def _defer_interrupts(self, something):
        """Say whether there are steps that no checkpoint has."""
        self._held = something
        self.preemption.defer(something)

    def _write(self, step, interval, *, ended=False, part=None, values=()):
        # One copy at a time is in memory.
        self.writer.wait()
        begin = time.perf_counter()
        self.record = {
            "step": step,
            "interval": interval,
            "ended": ended,
            "total": self.plan.total,
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

    def _interval_is_over(self, **how):
        """Return whether to end here, with time left for a last checkpoint."""
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
    "KeepBest": ("best", "loss", "step", "waited"),
    "CollapseWatch": ("intervals", "steps"),
}


def collect_states(callbacks) -> list[dict]:
    """Return the states of the callbacks of `STATES`, as plain values.

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
    """Return the pairs of a callback and the names of its state."""
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
    """Restore what `collect_states` returned.

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
