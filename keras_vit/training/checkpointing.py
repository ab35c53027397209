"""Checkpoints of a training: what they hold, when they are written; its end.

The callbacks write the best model, and checkpoints to resume from, by a thread
while the training goes on, with the moving average of the weights in
evaluations. A signal or the clock ends a run to go on later, and all its
processes after the same step.

A checkpoint is an `.npz` file, whole or missing: the variables of the model
(with the states of its random generators) and of the optimizer (slots,
counters, moving average, accumulated gradients, loss scale) by their number,
the states of the backend's own generators, and a JSON record of the rest.
Numbers, not names: Keras numbers names anew in each process. The checksums of
zip verify the file when it is read.

Of variables that the devices of several processes share, each process copies
and writes its own shards: `step-000000010-3f9a0c21-1.npz` has those of the
second process, each array under the name of its variable and the place where
it begins, as in `optimizer/5@0,384`. The checkpoint itself is written last and
names these files; without it they are nothing.
"""

import contextlib
import json
import math
import pathlib
import re
import secrets
import threading
import time
import warnings
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import NoReturn

import keras
import numpy as np

from keras_vit.checkpoints.files.npz import open_npz, write_npz
from keras_vit.checkpoints.files.tensors import refusing
from keras_vit.io.atomic_files import PARTIAL, replacing
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
from keras_vit.training.build import own_variables, teachers_in
from keras_vit.training.distribution.processes import (
    agreed,
    is_first,
    is_spread,
    place,
    say,
    stacked,
    to_numpy,
    wait_for,
)
from keras_vit.training.metrics_log import MetricsLog
from keras_vit.training.run import files as run_folder
from keras_vit.training.run.files import (
    get,
    publish,
    put,
    remove_others,
    shown,
)
from keras_vit.training.stages import Plan

__all__ = [
    "AverageInEvaluation",
    "BackgroundWriter",
    "Checkpoints",
    "FOLDER",
    "KeepBest",
    "Preemption",
    "Shards",
    "averaged",
    "begin_checkpoint",
    "checkpoint_steps",
    "collect_states",
    "deadline_of",
    "has_average",
    "prune_best",
    "prune_checkpoints",
    "rank",
    "read_newest",
    "read_shards",
    "remove_shards",
    "restore",
    "restore_best",
    "restore_generators",
    "restore_metrics",
    "restore_model",
    "restore_states",
    "take_average",
    "write_best",
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
        folder = self.folder / FOLDER
        # There is no average before the first step.
        with averaged(self.model) if step else contextlib.nullcontext():
            write_best(folder, step, self.model)
            run_folder.save_model(
                self.saved or self.model,
                self.class_names,
                self.folder / RUN_MODEL,
            )
        prune_best(folder, (before, step))

    def restore(self) -> bool:
        """Give the trained model the best weights; False without any."""
        if not self.writes or self.step is None:
            return False
        folder = self.folder / FOLDER
        restore_best(folder, self.step, self.model)
        prune_best(folder, (self.step,))
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
            `read_newest` returned it.

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
        self.folder = folder / FOLDER
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
        taught = [y for x in teachers_in(self.model) for y in x.weights]
        self._teacher = _checksum(taught)
        if self.record is not None:
            self._check_teacher(self.record)
            # Keras's callbacks forget everything where a training begins.
            restore_states(self.others, self.record["callbacks"])
        self._seconds = (self.record or {}).get("seconds", 0.0)
        self._begin = time.perf_counter()
        self._copying = 0.0
        self._defer_interrupts(False)

    def _check_teacher(self, record):
        """Raise a ValueError for another teacher than the run began with."""
        known = record.get("teacher", self._teacher)
        if known != self._teacher:
            raise ValueError(
                "The teacher is not the one that the run began with. Received: "
                f"weights with the checksum {self._teacher}, {known} in the "
                f"checkpoint of step {record['step']}. Put its file back, or "
                "choose another --run_dir."
            )

    def on_epoch_begin(self, epoch, logs=None):
        self._interval, self._batches = epoch, self.log.skipped
        # Keras has just reset them.
        restore_metrics(self._metric_variables(), self.arrays)

    def on_train_batch_begin(self, batch, logs=None):
        self._restore_generators()

    def _restore_generators(self):
        if self.arrays:
            restore_generators(self.arrays)
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
            "teacher": self._teacher,
            **({} if part is None else {"part": part}),
        }
        write = begin_checkpoint(
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
    "KnownClasses": ("images",),
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


# --- The files ---

WRITTEN = "written"
SHARD = re.compile(r"step-\d{9,15}-[0-9a-f]{8}-\d+\.npz")
FOLDER = "checkpoints"
NAME = re.compile(r"step-(\d{9,15})\.npz")  # and not "step-...(copy).npz"
RECORD = "record"
GENERATOR = "generator/"
METRIC = "metric/"  # of an interval that was begun
BESIDE = (GENERATOR, METRIC)


class Shards:
    """What this process has of a checkpoint, copied to host memory.

    All processes make one, with the same variables.

    Args:
        folder: the folder of the checkpoints.
        step: updates of the weights so far.
        variables: pairs of a name and a variable that several processes share.

    Attributes:
        record: what the checkpoint says of them.
    """

    def __init__(
        self,
        folder: pathlib.Path,
        step: int,
        variables: Sequence[tuple[str, keras.Variable]],
    ):
        index, count = place()
        # No file of a checkpoint that was begun before is taken for one.
        self.token = agreed(lambda: secrets.token_hex(4))
        names = [f"step-{step:09d}-{self.token}-{i}.npz" for i in range(count)]
        shapes = {name: list(variable.shape) for name, variable in variables}
        self.record = {"files": names, "shapes": shapes}
        self._path = folder / names[index]
        self._arrays = [
            (f"{name}@{','.join(str(x.start or 0) for x in shard.index)}", copy)
            for name, variable in variables
            for shard, copy in _own_shards(variable)
        ]

    def write(self) -> None:
        """Write the file of this process; the first waits for all others.

        Raises:
            OSError: when one of them cannot be written.
        """
        index, count = place()
        key = f"checkpoint/{self.token}/"
        try:
            self._path.parent.mkdir(exist_ok=True)
            with replacing(self._path) as temporary:
                write_npz(temporary, self._arrays)
            put(self._path, keep=index == 0)
        except BaseException as error:
            say(f"{key}{index}", f"{type(error).__name__}: {error}")
            raise
        say(f"{key}{index}", WRITTEN)
        others = range(1, count) if index == 0 else ()
        for other in others:
            if (message := wait_for(f"{key}{other}")) != WRITTEN:
                raise OSError(f"Process {other} could not write: {message}")


def _own_shards(variable):
    """Return the pairs of a shard that this process is to write, and its copy.

    Of those that several devices hold alike, one is written.
    """
    for shard in variable.value.addressable_shards:
        if shard.replica_id == 0:
            yield shard, np.array(shard.data)


def read_shards(folder: pathlib.Path, record: dict) -> dict[str, np.ndarray]:
    """Read the whole of each variable from the files of all processes.

    Raises:
        ValueError: when a file is missing or damaged, or they do not fill the
            variables.
    """
    arrays, filled = {}, {}
    for file in record["files"]:
        path = folder / str(file)
        if SHARD.fullmatch(str(file)) is None:
            raise ValueError(f"Its shards are in {file!r}.")
        with refusing(path, "the shards"):
            for name, tensor in open_npz(path).tensors.items():
                _fill(arrays, filled, record["shapes"], name, tensor.read())
    shapes = record["shapes"]
    missing = [x for x in shapes if filled.get(x) != np.prod(shapes[x])]
    if missing:
        raise ValueError(f"Its shards do not fill {missing[0]!r}.")
    return arrays


def _fill(arrays, filled, shapes, name, shard):
    variable, _, begin = name.rpartition("@")
    if variable not in arrays:
        arrays[variable] = np.empty(tuple(shapes[variable]), shard.dtype)
        filled[variable] = 0
    starts = map(int, begin.split(","))
    pairs = zip(starts, shard.shape, strict=True)
    arrays[variable][tuple(slice(x, x + size) for x, size in pairs)] = shard
    filled[variable] += shard.size


def remove_shards(folder: pathlib.Path, files: Sequence[str]) -> None:
    """Remove the shards of checkpoints that are not there.

    Args:
        folder: the folder of the checkpoints.
        files: the names of those that stay.
    """
    for path in folder.glob("step-*-*-*.npz"):
        if SHARD.fullmatch(path.name) and path.name not in files:
            path.unlink(missing_ok=True)


def _path_of(folder: pathlib.Path, step: int) -> pathlib.Path:
    return folder / f"step-{step:09d}.npz"


def checkpoint_steps(folder: pathlib.Path) -> list[int]:
    """Return the steps of the checkpoints in a folder, in ascending order."""
    names = (NAME.fullmatch(file.name) for file in folder.glob("step-*.npz"))
    return sorted(int(name[1]) for name in names if name)


def begin_checkpoint(
    folder: pathlib.Path,
    step: int,
    model,
    record: dict,
    metrics=(),
    keep: int | None = None,
) -> Callable[[], None]:
    """Copy what the checkpoint after a step holds to host memory.

    All processes of a run call it. Each copies what it is to write: its own
    shards, and the first one what is whole everywhere.

    Args:
        folder: the folder of the checkpoints.
        step: updates of the weights so far.
        model: a compiled Keras model whose optimizer is built.
        record: plain values for JSON, stored beside the variables. With
            "part" it is of an interval that was begun: see `Checkpoints`.
        metrics: the values of the variables of the metrics then.
        keep: how many checkpoints are left afterwards; None leaves all.

    Returns:
        A function that writes the copy, also in a thread. It raises an
        OSError when that cannot be done; older checkpoints are unchanged.

    Example:
        >>> write = begin_checkpoint(folder, 500, model, record)
        >>> threading.Thread(target=write).start()
    """
    variables = _variables(model)
    spread = [(name, x) for name, x in variables if is_spread(x)]
    shards = Shards(folder, step, spread) if spread else None
    arrays = []
    if is_first():
        if shards is not None:
            record = {**record, "shards": shards.record}
        text = json.dumps(record).encode()
        arrays = [(RECORD, np.frombuffer(text, np.uint8))]
        shared = {name for name, _ in spread}
        arrays += [
            (name, _array(variable))
            for name, variable in variables
            if name not in shared
        ]
        arrays += [(f"{GENERATOR}{k}", x) for k, x in random_states().items()]
        arrays += [(f"{METRIC}{i}", x) for i, x in enumerate(metrics)]

    def write():
        if shards is not None:
            shards.write()
        if not is_first():
            return
        folder.mkdir(exist_ok=True)
        with replacing(_path_of(folder, step)) as temporary:
            write_npz(temporary, arrays)
        publish(folder.parent)
        if keep is not None:
            prune_checkpoints(folder, keep)

    return write


def prune_checkpoints(folder: pathlib.Path, keep: int) -> None:
    """Remove all but the `keep` newest checkpoints."""
    if not is_first():
        return
    for step in checkpoint_steps(folder)[:-keep]:
        _path_of(folder, step).unlink()
    # Others may be written at this moment, by another thread.
    for partial in folder.glob(f"{PARTIAL}step-*"):
        partial.unlink(missing_ok=True)
    publish(folder.parent)
    files = [
        file
        for step in checkpoint_steps(folder)
        for file in _shard_files(_path_of(folder, step))
    ]
    remove_shards(folder, files)
    remove_others(folder, files)


def _shard_files(path) -> list[str]:
    """Return the files that a checkpoint names; none where it is broken."""
    try:
        with refusing(path, "the checkpoint"):
            text = open_npz(path).tensors[RECORD].read().tobytes()
            return list(json.loads(text).get("shards", {}).get("files", []))
    except ValueError:
        return []


def read_newest(folder: pathlib.Path) -> tuple[dict, dict] | None:
    """Read the newest whole checkpoint; warns of broken ones and skips them.

    Returns:
        Arrays by name, and the record; None where there is no checkpoint.

    Raises:
        ValueError: when there are checkpoints, and all are broken.

    Example:
        >>> arrays, record = read_newest(run / "checkpoints")
    """
    found = checkpoint_steps(folder)
    for step in reversed(found):
        path = _path_of(folder, step)
        try:
            return _read(path)
        except ValueError as error:
            warnings.warn(
                f"The checkpoint {shown(path)!r} is broken; the run continues "
                f"from the previous one. {error}",
                stacklevel=2,
            )
    if found:
        raise ValueError(
            f"All checkpoints in {shown(folder)!r} are broken. Remove the run "
            "folder, or choose another --run_dir, to start again."
        )
    return None


def _read(path):
    with refusing(path, "the checkpoint"):
        tensors = open_npz(path).tensors
        arrays = {name: tensor.read() for name, tensor in tensors.items()}
        record = json.loads(arrays.pop(RECORD).tobytes())
        _check_record(record)
        if (shards := record.pop("shards", None)) is not None:
            arrays |= read_shards(path.parent, shards)
        return arrays, record


# What a checkpoint holds beside the variables.
RECORDED = {
    "step": int,
    "interval": int,
    "ended": bool,
    "seconds": (int, float),
    "callbacks": list,
}
# And in the midst of an interval: see `MetricsLog.position`.
PART = {
    "batches": int,
    "logged": int,
    "means": dict,
    "seconds": (int, float),
    "open": (int, float),
}


def _checksum(variables) -> int | None:
    """Return the CRC-32 of all values in float32; None of no variables."""
    found = 0
    for variable in variables:
        values = np.asarray(to_numpy(variable), "float32")
        found = zlib.crc32(values.tobytes(), found)
    return found if variables else None


def _check_record(record):
    for name, kind in RECORDED.items():
        if not isinstance(record[name], kind):
            raise ValueError(f"Its {name} is {record[name]!r}.")
    if min(record["step"], record["interval"]) < 0:
        raise ValueError(f"Its step is {record['step']}.")
    part = record.get("part")
    if part is not None and not all(
        isinstance(part[name], kind) for name, kind in PART.items()
    ):
        raise ValueError(f"Its part is {part!r}.")


def restore(model, arrays: dict) -> None:
    """Restore a model and its optimizer from a checkpoint.

    Args:
        model: a compiled Keras model whose optimizer is built.
        arrays: as `read_newest` returns them, of any backend. Those of the
            variables are removed from the dictionary.

    Raises:
        ValueError: when they are of another model; this one is unchanged.
    """
    variables = _variables(model)
    found = [name for name in arrays if not name.startswith(BESIDE)]
    if len(found) != len(variables):
        raise ValueError(
            f"The checkpoint has {len(found)} variables, the model and its "
            f"optimizer have {len(variables)}. {CURE}"
        )
    for name, variable in variables:
        _check(name, variable, arrays.get(name))
    for name, variable in variables:
        # Removed, so that a long run does not hold them to its end.
        variable.assign(arrays.pop(name).astype(variable.dtype))


def restore_model(folder: pathlib.Path, step: int, model) -> None:
    """Restore a model, without an optimizer, from the checkpoint of a step.

    Args:
        folder: the folder of the checkpoints.
        step: one of `checkpoint_steps`.
        model: a Keras model like the one that was trained.

    Raises:
        ValueError: when it is damaged, or of another model; this one is
            unchanged.
    """
    arrays, _ = _read(_path_of(folder, step))
    count = sum(name.startswith("model/") for name in arrays)
    known = len(own_variables(model))
    if count != known:
        raise ValueError(
            f"The checkpoint has {count} variables of a model, {model.name!r} "
            f"has {known}: another network was trained, as with "
            "LoRA, image_sizes or a method without labels."
        )
    _give(model, arrays)


def write_best(folder: pathlib.Path, step: int, model) -> None:
    """Write the variables of a model, without its optimizer's.

    All processes of a run call it, and the first one writes.

    Args:
        folder: the folder of the checkpoints.
        step: updates of the weights so far, in the name of the file.
        model: a Keras model, with the moving average in its weights where
            that is what is evaluated.
    """
    arrays = [
        (f"model/{i}", _array(variable))
        for i, variable in enumerate(own_variables(model))
    ]
    if is_first():
        folder.mkdir(exist_ok=True)
        with replacing(_best_path(folder, step)) as temporary:
            write_npz(temporary, arrays)


def restore_best(folder: pathlib.Path, step: int, model) -> None:
    """Give a model what `write_best` wrote after a step, in all processes.

    Raises:
        ValueError: when the file is missing, damaged or of another model;
            this one is unchanged.
    """
    path = _best_path(folder, step)
    agreed(lambda: None)  # The first process has written it.
    if not is_first():
        get(folder.parent, f"{FOLDER}/{path.name}")
    with refusing(path, "the best weights"):
        tensors = open_npz(path).tensors
        arrays = {name: tensor.read() for name, tensor in tensors.items()}
    _give(model, arrays)


def _give(model, arrays):
    """Assign the arrays of a model to its variables, all of them or none."""
    for i, variable in enumerate(own_variables(model)):
        _check(f"model/{i}", variable, arrays.get(f"model/{i}"))
    for i, variable in enumerate(own_variables(model)):
        variable.assign(arrays.pop(f"model/{i}").astype(variable.dtype))


def prune_best(folder: pathlib.Path, steps: Sequence[int | None]) -> None:
    """Remove what `write_best` wrote, but that of some steps."""
    kept = [_best_path(folder, x) for x in steps if x is not None]
    for path in folder.glob("best-*.npz"):
        if is_first() and path not in kept:
            path.unlink()


def _best_path(folder: pathlib.Path, step: int) -> pathlib.Path:
    return folder / f"best-{step:09d}.npz"


def restore_generators(arrays: dict) -> None:
    """Restore the backend's own random generators from a checkpoint.

    Right before the first step: data loaders of torch draw from them as well.
    """
    set_random_states(
        {
            name.removeprefix(GENERATOR): array
            for name, array in arrays.items()
            if name.startswith(GENERATOR)
        }
    )


def restore_metrics(variables, arrays: dict) -> None:
    """Restore the metrics of an interval that was begun.

    Args:
        variables: those of the metrics, in the order of `begin_checkpoint`.
        arrays: as `read_newest` returns them; none without such an interval.

    Raises:
        ValueError: when they are of other metrics.
    """
    found = [name for name in arrays if name.startswith(METRIC)]
    if found and len(found) != len(variables):
        raise ValueError(
            f"The checkpoint has {len(found)} variables of metrics, and there "
            f"are {len(variables)}. {CURE}"
        )
    pairs = [(x, variable) for x, variable in enumerate(variables) if found]
    for i, variable in pairs:
        _check(f"{METRIC}{i}", variable, arrays.get(f"{METRIC}{i}"))
    for i, variable in pairs:
        variable.assign(arrays.pop(f"{METRIC}{i}").astype(variable.dtype))


CURE = (
    "It was written by another version: continue with the versions that "
    "environment.json names, or start again in another --run_dir."
)


def _check(name, variable, array):
    """Raise a ValueError unless an array may be the value of a variable."""
    expected = tuple(variable.shape), _kind(variable.dtype)
    found = None
    if array is not None:
        found = array.shape, _kind(array.dtype.name)
    if found != expected:
        raise ValueError(
            f"The checkpoint's {name!r} is {found}, but {variable.path!r} is "
            f"{expected}. {CURE}"
        )


def _kind(dtype):
    """Backends count in integers of different sizes."""
    return "int" if dtype.startswith(("int", "uint")) else dtype


def _variables(model):
    groups = {
        "model": own_variables(model),
        "optimizer": model.optimizer.variables,
    }
    return [
        (f"{group}/{i}", variable)
        for group, variables in groups.items()
        for i, variable in enumerate(variables)
    ]


def _array(variable):
    # torch has no NumPy bfloat16 and gives float32: cast back.
    return to_numpy(variable).astype(variable.dtype, copy=False)
