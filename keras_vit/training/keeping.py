"""What a run keeps on the way: checkpoints, the best model, the average."""

import math
import pathlib
import time

import keras

from keras_vit.training import callback_states, checkpoints, model_file
from keras_vit.training.average import averaged, has_average
from keras_vit.training.metrics_log import MetricsLog
from keras_vit.training.plan import Plan

__all__ = ["Checkpoints", "KeepBest"]


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
        self.path = folder / checkpoints.FOLDER / "best.keras"
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
                model_file.save(
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
        self.folder = folder / checkpoints.FOLDER
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
            callback_states.restore(self.others, self.record["callbacks"])
        self._seconds = (self.record or {}).get("seconds", 0.0)
        self._begin = time.perf_counter()

    def on_train_batch_begin(self, batch, logs=None):
        if self.arrays:
            checkpoints.restore_generators(self.arrays)
            self.arrays = {}

    def on_epoch_end(self, epoch, logs=None):
        # Not the optimizer's count, which passes over what overflows float16.
        step = self.log.history[-1]["step"]
        if has_average(self.model.optimizer):
            with averaged(self.model):
                model_file.save(
                    self.saved or self.model,
                    self.class_names,
                    self.folder / "average.keras",
                )
        self.record = {
            "step": step,
            "stretch": epoch + 1,
            "ended": self.model.stop_training or step >= self.plan.total,
            "seconds": self._seconds + time.perf_counter() - self._begin,
            "callbacks": callback_states.collect(self.others),
        }
        checkpoints.write(self.folder, step, self.model, self.record)
        checkpoints.prune(self.folder, self.keep)
