"""What Keras's callbacks leave out: the speed, and an end between epochs."""

import contextlib
import math
import pathlib
import time
from collections.abc import Iterator

import keras

from keras_vit.training import resume, run_folder
from keras_vit.training.distribution.processes import to_numpy
from keras_vit.training.inputs import Plan
from keras_vit.training.metrics_log import MetricsLog

__all__ = [
    "AverageInEvaluation",
    "Checkpoints",
    "KeepBest",
    "Progress",
    "StopAtTotal",
    "averaged",
    "collect_states",
    "has_average",
    "restore_states",
    "take_average",
]


class StopAtTotal(keras.callbacks.Callback):
    """Ends the last stretch where it is shorter than the others.

    Args:
        plan: a `Plan`.

    Example:
        >>> model.fit(batches, callbacks=[StopAtTotal(plan)])
    """

    def __init__(self, plan: Plan):
        super().__init__()
        self.plan = plan

    def on_epoch_begin(self, epoch, logs=None):
        self._stretch = epoch

    def on_train_batch_begin(self, batch, logs=None):
        if self.plan.is_last_call(self._stretch, batch):
            self.model.stop_training = True  # after this call


class Progress(keras.callbacks.Callback):
    """Shows images per second and the time left in Keras's progress bar.

    Args:
        plan: a `Plan`.

    Example:
        >>> model.fit(batches, callbacks=[Progress(plan)], verbose=1)
    """

    # It reads the clock alone: Keras may call it beside the training.
    async_safe = True

    def __init__(self, plan: Plan):
        super().__init__()
        self.plan = plan

    def on_epoch_begin(self, epoch, logs=None):
        self._stretch = epoch
        self._begin = time.perf_counter()

    def on_train_batch_end(self, batch, logs=None):
        if logs is None:
            return
        done = batch + 1
        seconds = time.perf_counter() - self._begin
        left = self.plan.total * self.plan.batches_per_step
        left -= self._stretch * self.plan.batches + done
        images = self.plan.batch_size / self.plan.batches_per_step
        logs["images_per_second"] = done * images / seconds
        logs["minutes_left"] = left * seconds / done / 60


# Of Keras and of keras_vit, subclasses too. Other callbacks begin anew.
STATES = {
    "EarlyStopping": ("wait", "best", "best_epoch", "stopped_epoch"),
    "ReduceLROnPlateau": ("wait", "best", "cooldown_counter"),
    "KeepBest": ("best", "waited"),
}


def collect_states(callbacks) -> list[dict]:
    """Takes what the callbacks remember.

    Args:
        callbacks: sequence of Keras callbacks.

    Returns:
        A dictionary of plain values for each that is known to remember
        anything.

    Example:
        >>> collect([keras.callbacks.EarlyStopping()])[0]["wait"]
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
    """Pairs of a callback and the names of what it remembers."""
    for callback in callbacks:
        bases = [base.__name__ for base in type(callback).__mro__]
        names = [STATES[base] for base in bases if base in STATES]
        if names:
            yield callback, names[0]


def _plain(value):
    """JSON knows no number of NumPy or of a backend."""
    known = value is None or isinstance(value, (int, float))
    return value if known else float(keras.ops.convert_to_numpy(value))


def restore_states(callbacks, states: list[dict]) -> None:
    """Gives the callbacks what they remembered.

    Args:
        callbacks: sequence of Keras callbacks, as they were at `collect`.
        states: what `collect` returned.

    Raises:
        ValueError: when others remember something now.

    Example:
        >>> restore([stopping], [{"class": "EarlyStopping", "wait": 2}])
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
    """Whether an optimizer keeps a moving average of the weights.

    Args:
        optimizer: a Keras optimizer.

    Example:
        >>> has_average(keras.optimizers.SGD(use_ema=True))
        True
    """
    if isinstance(optimizer, keras.optimizers.LossScaleOptimizer):
        optimizer = optimizer.inner_optimizer
    return bool(optimizer.use_ema)


@contextlib.contextmanager
def averaged(model) -> Iterator[None]:
    """Lets the weights be their moving average for a while.

    Afterwards they are what they were, to the bit. Keras's SwapEMAWeights
    adds and subtracts on TensorFlow, so that evaluating would change the
    training.

    Args:
        model: a compiled Keras model. Nothing happens when its optimizer
            keeps no average.

    Example:
        >>> with averaged(model):
        ...     model.save("averaged.keras")
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
    """Puts the moving average in the place of the weights for good.

    Args:
        model: a compiled Keras model whose optimizer keeps one.

    Example:
        >>> take_average(model)
    """
    model.optimizer.finalize_variable_values(model.trainable_variables)
    # On JAX both are one array by now, which the next step would give away
    # with the weights and so take from the optimizer.
    _assign(model, _copies(model))


def _copies(model):
    return [to_numpy(variable) for variable in model.trainable_variables]


def _assign(model, values):
    for variable, value in zip(model.trainable_variables, values, strict=True):
        variable.assign(value)


class AverageInEvaluation(keras.callbacks.Callback):
    """Has the moving average evaluated in `fit`, which is what is kept.

    Example:
        >>> model.fit(images, labels, callbacks=[AverageInEvaluation()],
        ...           validation_data=validation)
    """

    def on_test_begin(self, logs=None):
        self._swap = contextlib.ExitStack()
        self._swap.enter_context(averaged(self.model))

    def on_test_end(self, logs=None):
        self._swap.close()


class KeepBest(keras.callbacks.Callback):
    """Keeps the model of the best evaluation, and stops when none is better.

    The best is written to checkpoints/best.keras: the moving average where
    there is one.

    Args:
        folder: pathlib.Path, the run folder.
        class_names: sequence of str, saved with the model.
        metric: str, what decides: the higher the better, but for a loss.
        patience: int, evaluations without a better one after which the
            training ends; None never ends it.
        saved: the model to save in the place of the one that is trained.

    Attributes:
        best: float, None before the first evaluation.
        waited: int, evaluations since.

    Example:
        >>> model.fit(images, labels, validation_data=validation,
        ...           callbacks=[KeepBest(folder, names, "val_accuracy")])
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
    """Writes a checkpoint after each stretch; comes last of all callbacks.

    Beside it, checkpoints/average.keras is the model with the moving average
    of the weights, where the optimizer keeps one.

    Args:
        folder: pathlib.Path, the run folder.
        plan: a `Plan`.
        class_names: sequence of str, saved with the average.
        log: the `MetricsLog`, which knows the step.
        others: the callbacks whose states belong to the run.
        keep: int, how many checkpoints stay.
        saved: the model to save in the place of the one that is trained.
        checkpoint: the one that the run continues from, as
            `checkpoints.read_newest` returned it.

    Attributes:
        record: what the newest checkpoint says beside the variables.

    Example:
        >>> model.fit(batches, callbacks=[*others, Checkpoints(
        ...     folder, plan, names, log, others=others)])
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
        # Not the optimizer's count, which passes over what overflows float16.
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
            "stretch": epoch + 1,
            "ended": self.model.stop_training or step >= self.plan.total,
            "seconds": self._seconds + time.perf_counter() - self._begin,
            "callbacks": collect_states(self.others),
        }
        resume.write_checkpoint(self.folder, step, self.model, self.record)
        resume.prune_checkpoints(self.folder, self.keep)
