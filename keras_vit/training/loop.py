"""The loop of a training: Keras's `fit` with the callbacks of a run.

The callbacks write checkpoints, the best model and the moving average, and do
what Keras's own leave out: an end between epochs, the speed.
"""

import contextlib
import dataclasses
import math
import pathlib
import sys
import time
from collections.abc import Iterator

import keras

from keras_vit.data.threaded_batches import images_per_batch
from keras_vit.training import resume, run_folder
from keras_vit.training.distribution.layouts import placed
from keras_vit.training.distribution.processes import is_first, to_numpy
from keras_vit.training.metrics_log import (
    FirstNonFinite,
    GradientWatch,
    MetricsLog,
    event_writer,
)
from keras_vit.training.stages import Plan
from keras_vit.workarounds import (
    draw_own_masks,
    keeping_variables,
    sum_gradients_first,
)

__all__ = [
    "AverageInEvaluation",
    "Checkpoints",
    "KeepBest",
    "Loop",
    "Progress",
    "StopAtTotal",
    "averaged",
    "collect_states",
    "has_average",
    "restore_states",
]


@dataclasses.dataclass(frozen=True)
class Loop:
    """Trains a model in a run folder, from the beginning or a checkpoint.

    Args:
        folder: the run folder.
        plan: the `Plan`: at which steps to write, evaluate and end.
        class_names: saved with the models; None for models without classes.
        best_metric: the metric that selects the best model.
        patience: evaluations without a better one after which the training
            ends; None never ends it.
        keep: how many checkpoints are kept.
        saved: the Keras model that is saved, with layers of the one that is
            trained; that one itself if None.
    """

    folder: pathlib.Path
    plan: Plan
    class_names: tuple[str, ...] | None
    best_metric: str = "val_accuracy"
    patience: int | None = None
    keep: int = 2
    saved: keras.Model | None = None

    def run(
        self,
        model,
        optimizer,
        loss,
        stream,
        validation=None,
        *,
        metrics=(),
        checkpoint: tuple[dict, dict] | None = None,
        callbacks=(),
    ) -> tuple[list[dict], float]:
        """Trains until the plan ends or the patience does.

        Args:
            model: a Keras model from images to logits; at the end it has its
                last weights, or their moving average where the optimizer
                keeps one.
            optimizer: a Keras optimizer that is not built.
            loss: a Keras loss.
            stream: has `from_step(step)`, which returns endless batches, as
                `fit` takes them, of images (batch, height, width, channels)
                and labels (batch, classes), and `names_of(step)`, the names of
                the images in a batch.
            validation: the validation_data of Keras's `fit`, or None.
            metrics: Keras metrics, weighted as the loss is.
            checkpoint: what `resume.read_newest` returned.
            callbacks: further Keras callbacks.

        Returns:
            The lines of history.csv, and the seconds of the training,
            compilation and validation included.

        Raises:
            FloatingPointError: for a loss or gradient that is not finite.
            ValueError: when the checkpoint is not of this model.
        """
        losses, gradients = self._compile(model, optimizer, loss, metrics)
        if checkpoint is not None:
            resume.restore(model, checkpoint[0])
        start = {"step": 0, "interval": 0, "ended": False}
        begin = start if checkpoint is None else checkpoint[1]
        step, interval = begin["step"], begin["interval"]
        log = MetricsLog(
            self.folder,
            self.plan,
            losses,
            gradients,
            stream.names_of,
            step=step,
            listeners=[event_writer(self.folder, step)] if is_first() else [],
        )
        all_callbacks = self._callbacks(log, checkpoint, callbacks)
        with keeping_variables(model):
            model.fit(
                self._batches(stream, step),
                steps_per_epoch=self.plan.batches,
                initial_epoch=interval,
                epochs=interval if begin["ended"] else self.plan.intervals,
                validation_data=placed(validation),
                validation_freq=self.plan.evaluations,
                shuffle=False,
                verbose=_verbose(),
                callbacks=all_callbacks,
            )
        if has_average(model.optimizer):
            _take_average(model)
        return log.history, all_callbacks[-1].record["seconds"]

    def _compile(self, model, optimizer, loss, metrics):
        losses = FirstNonFinite(loss)
        model.compile(
            optimizer=optimizer,
            loss=loss,
            metrics=[losses],
            weighted_metrics=list(metrics),
            steps_per_execution=self.plan.batches_per_call,
        )
        sum_gradients_first(model.optimizer)
        draw_own_masks(model)
        gradients = GradientWatch(model.optimizer)
        model.optimizer.build(model.trainable_variables)
        return losses, gradients

    def _batches(self, stream, step):
        batches, parts = stream.from_step(step), self.plan.batches_per_step
        if parts > 1:
            size = images_per_batch(batches) or self.plan.batch_size
            batches = batches.rebatch(size // parts)
        return placed(batches)

    def _callbacks(self, log, checkpoint, callbacks):
        """All callbacks in order: each sees what those before it did."""
        best = KeepBest(
            self.folder,
            self.class_names,
            self.best_metric,
            self.patience,
            saved=self.saved,
        )
        others = [best, *callbacks]
        return [
            StopAtTotal(self.plan),
            log,
            AverageInEvaluation(),
            *([Progress(self.plan)] if _verbose() == 1 else []),
            *others,
            Checkpoints(
                self.folder,
                self.plan,
                self.class_names,
                log,
                others=others,
                keep=self.keep,
                saved=self.saved,
                checkpoint=checkpoint,
            ),
        ]


def _verbose() -> int:
    """Keras's progress bar in a terminal or notebook, else plain lines.

    Of several processes, only the first one prints.
    """
    if not is_first():
        return 0
    watched = sys.stdout.isatty() or "ipykernel" in sys.modules
    return 1 if watched else 2


class StopAtTotal(keras.callbacks.Callback):
    """Ends the last interval where it is shorter than the others."""

    def __init__(self, plan: Plan):
        super().__init__()
        self.plan = plan

    def on_epoch_begin(self, epoch, logs=None):
        self._interval = epoch

    def on_train_batch_begin(self, batch, logs=None):
        if self.plan.is_last_call(self._interval, batch):
            self.model.stop_training = True  # after this call


class Progress(keras.callbacks.Callback):
    """Shows images per second and the time left in Keras's progress bar."""

    # It only reads the clock: Keras may call it beside the training.
    async_safe = True

    def __init__(self, plan: Plan):
        super().__init__()
        self.plan = plan

    def on_epoch_begin(self, epoch, logs=None):
        self._interval = epoch
        self._begin = time.perf_counter()

    def on_train_batch_end(self, batch, logs=None):
        if logs is None:
            return
        done = batch + 1
        seconds = time.perf_counter() - self._begin
        left = self.plan.total * self.plan.batches_per_step
        left -= self._interval * self.plan.batches + done
        images = self.plan.batch_size / self.plan.batches_per_step
        logs["images_per_second"] = done * images / seconds
        # Below 0.001 Keras shows 5.4929e-04.
        logs["minutes_left"] = max(round(left * seconds / done / 60, 2), 0.01)


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
        self.path = folder / resume.FOLDER / "best.keras"
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

    Also checkpoints/average.keras, the model with the moving average of the
    weights, where the optimizer keeps one.

    Args:
        folder: the run folder.
        plan: the `Plan`: at which steps to write, evaluate and end.
        class_names: saved with the average.
        log: the `MetricsLog`, which knows the step.
        others: the callbacks whose states belong to the run.
        keep: how many checkpoints are kept.
        saved: the model to save instead of the one that is trained.
        checkpoint: the one that the run continues from, as
            `resume.read_newest` returned it.

    Attributes:
        record: what the newest checkpoint holds beside the variables.
    """

    def __init__(
        self,
        folder: pathlib.Path,
        plan: Plan,
        class_names,
        log: MetricsLog,
        *,
        others=(),
        keep: int = 2,
        saved: keras.Model | None = None,
        checkpoint: tuple[dict, dict] | None = None,
    ):
        super().__init__()
        self.folder = folder / resume.FOLDER
        self.plan = plan
        self.class_names = class_names
        self.log = log
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

    def on_train_batch_begin(self, batch, logs=None):
        if self.arrays:
            resume.restore_generators(self.arrays)
            self.arrays = {}

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
        self.record = {
            "step": step,
            "interval": epoch + 1,
            "ended": self.model.stop_training or step >= self.plan.total,
            "seconds": self._seconds + time.perf_counter() - self._begin,
            "callbacks": collect_states(self.others),
        }
        resume.write_checkpoint(self.folder, step, self.model, self.record)
        resume.prune_checkpoints(self.folder, self.keep)


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


def has_average(optimizer: keras.optimizers.Optimizer) -> bool:
    """Whether an optimizer keeps a moving average of the weights."""
    if isinstance(optimizer, keras.optimizers.LossScaleOptimizer):
        optimizer = optimizer.inner_optimizer
    return bool(optimizer.use_ema)


@contextlib.contextmanager
def averaged(model) -> Iterator[None]:
    """Replaces the weights by their moving average, if there is one.

    Afterwards they are as before, to the bit. Keras's SwapEMAWeights adds and
    subtracts on TensorFlow, so that an evaluation would change the training.
    """
    if not has_average(model.optimizer):
        yield
        return
    kept = _copies(model)
    _take_average(model)
    try:
        yield
    finally:
        _assign(model, kept)


def _take_average(model) -> None:
    """Replaces the weights by their moving average for good."""
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
