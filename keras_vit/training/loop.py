"""The loop of a training: Keras's `fit` with the callbacks of a run.

The callbacks do what Keras's own leave out: an end between epochs, the speed.
"""

import dataclasses
import pathlib
import sys
import time
from collections.abc import Callable, Sequence

import keras

from keras_vit.data.batches import images_per_batch
from keras_vit.runtime.interrupts import postponed
from keras_vit.runtime.machine import random_states, set_random_states
from keras_vit.runtime.workarounds import (
    draw_own_masks,
    keeping_variables,
    sum_gradients_first,
)
from keras_vit.training import checkpoint_files
from keras_vit.training.checkpointing import (
    AverageInEvaluation,
    BackgroundWriter,
    Checkpoints,
    KeepBest,
    Preemption,
    has_average,
    take_average,
)
from keras_vit.training.distribution.processes import is_first
from keras_vit.training.distribution.strategies import placed
from keras_vit.training.metrics_log import (
    AccuracyWatch,
    FirstNonFinite,
    GradientWatch,
    MetricsLog,
)
from keras_vit.training.run import resume
from keras_vit.training.stages import Plan, part_of
from keras_vit.training.trackers import event_writer

__all__ = ["Loop", "Progress", "StopAtTotal"]


@dataclasses.dataclass(frozen=True)
class Loop:
    """Trains a model in a run folder, from the beginning or a checkpoint.

    Args:
        folder: the run folder.
        plan: the `Plan`: at which steps to write, evaluate and end.
        class_names: saved with the models; None for models without classes.
        best_metric: the metric that selects the best model.
        kept: "best" ends with the weights of the best evaluation, where there
            was one, and "last" with those of the last step.
        patience: evaluations without a better one after which the training
            ends; None never ends it.
        keep: how many checkpoints are kept.
        saved: the Keras model that is saved, with layers of the one that is
            trained; that one itself if None.
        deadline: when it ends to go on later, see `checkpointing.deadline_of`.
        listeners: functions of a line of metrics.jsonl, besides TensorBoard's.
        scores: function of the validation batches to a callback that adds
            metrics to an evaluation, see `validation_metrics`; or None.
        evaluates_start: whether the model is evaluated before the first step
            as well, and may be the best.
    """

    folder: pathlib.Path
    plan: Plan
    class_names: tuple[str, ...] | None
    best_metric: str = "val_accuracy"
    kept: str = "best"
    patience: int | None = None
    keep: int = 2
    saved: keras.Model | None = None
    deadline: float | None = None
    listeners: Sequence[Callable[[dict], None]] = ()
    scores: Sequence[Callable[..., keras.callbacks.Callback]] = ()
    evaluates_start: bool = False

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
        """Train until the plan ends or the patience does.

        Args:
            model: a Keras model from images to logits; at the end it has the
                weights that are `kept`, or their moving average where the
                optimizer keeps one.
            optimizer: a Keras optimizer that is not built.
            loss: a Keras loss.
            stream: has `from_step(step)`, which returns endless batches, as
                `fit` takes them, of images (batch, height, width, channels)
                and labels (batch, classes), and `names_of(step)`, the names of
                the images in a batch.
            validation: the validation_data of Keras's `fit`, or None.
            metrics: Keras metrics, weighted as the loss is.
            checkpoint: what `checkpoint_files.read_newest` returned.
            callbacks: further Keras callbacks.

        Returns:
            The lines of history.csv, and the seconds of the training,
            compilation and validation included.

        Raises:
            FloatingPointError: for a loss or gradient that is not finite.
            ValueError: when the checkpoint is not of this model.
            KeyboardInterrupt: after SIGINT, SIGTERM or the deadline; the
                checkpoint of the last step is there.
        """
        losses, gradients = self._compile(model, optimizer, loss, metrics)
        watched = losses, gradients, [losses, *metrics]
        scores = [make(validation) for make in self.scores]
        with (
            postponed() as signals,
            keeping_variables(model),
            BackgroundWriter() as writer,
        ):
            preemption = Preemption(signals, self.deadline)
            while True:
                part = part_of(checkpoint)
                found = scores + self._callbacks(
                    self._log(watched, stream, checkpoint),
                    watched[-1],
                    (preemption, writer),
                    checkpoint,
                    callbacks,
                )
                if checkpoint is not None:
                    checkpoint_files.restore(model, checkpoint[0])
                elif self.evaluates_start and validation is not None:
                    self._evaluate_start(model, validation, found)
                self._fit(model, stream, validation, checkpoint, found)
                if part is None or found[-1].record["ended"]:
                    break
                # The rest of its interval is done: from here as ever.
                writer.wait()
                checkpoint = resume.reopen(self.folder)
        (best,) = (x for x in found if isinstance(x, KeepBest))
        if not best.restore() and has_average(model.optimizer):
            take_average(model)
        return found[-1].log.history, found[-1].record["seconds"]

    def _fit(self, model, stream, validation, checkpoint, callbacks):
        """Train to the end, or to that of an interval that was begun."""
        begin = {"step": 0, "interval": 0, "ended": False}
        begin = begin if checkpoint is None else checkpoint[1]
        interval, part = begin["interval"], part_of(checkpoint)
        batches, end = self.plan.batches, self.plan.intervals
        if part is not None:
            batches = self.plan.batches_of(interval) - part["batches"]
            end = interval + 1
        if batches <= 0:  # Below, where images were removed since.
            self._evaluate(model, validation, interval, callbacks)
            return
        model.fit(
            self._batches(stream, begin["step"]),
            steps_per_epoch=batches,
            initial_epoch=interval,
            epochs=interval if begin["ended"] else end,
            validation_data=placed(validation),
            validation_freq=self.plan.evaluations,
            shuffle=False,
            verbose=_verbose(),
            callbacks=callbacks,
        )

    def _evaluate_start(self, model, validation, callbacks):
        """Count an evaluation before the first step, as those after it."""
        states = random_states()
        options = {**_arguments(validation), "verbose": 0}
        found: dict = model.evaluate(**options, return_dict=True)
        logs = {f"val_{name}": value for name, value in found.items()}
        for score in callbacks[: len(self.scores)]:
            score.set_model(model)
            score.on_epoch_end(-1, logs)
        set_random_states(states)
        (log,) = (x for x in callbacks if isinstance(x, MetricsLog))
        log.write_start(logs)
        (best,) = (x for x in callbacks if isinstance(x, KeepBest))
        best.set_model(model)
        best.on_epoch_end(-1, logs)

    def _evaluate(self, model, validation, interval, callbacks):
        """Return what `fit` does after the last step of an interval."""
        data: dict = {**_arguments(validation), "verbose": 0}
        # Keras makes variables of metrics where it first sees a batch.
        model.evaluate(**data, steps=1)
        model.reset_metrics()
        calls = keras.callbacks.CallbackList(callbacks, model=model)
        model.stop_training = False
        calls.on_train_begin()
        calls.on_epoch_begin(interval)
        logs = dict(model.get_metrics_result())
        found: dict = model.evaluate(**data, callbacks=calls, return_dict=True)
        logs |= {f"val_{name}": value for name, value in found.items()}
        calls.on_epoch_end(interval, logs)
        calls.on_train_end(logs)

    def _log(self, watched, stream, checkpoint):
        step = None if checkpoint is None else checkpoint[1]["step"]
        listeners = list(self.listeners)
        if is_first():
            listeners.append(event_writer(self.folder, step or 0))
        return MetricsLog(
            self.folder,
            self.plan,
            watched[0],
            watched[1],
            stream.names_of,
            step=step,
            part=part_of(checkpoint),
            listeners=listeners,
        )

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

    def _callbacks(self, log, metrics, shared, checkpoint, callbacks):
        """All callbacks in order: each sees what those before it did."""
        best = KeepBest(
            self.folder,
            self.class_names,
            self.best_metric,
            self.patience,
            log=log,
            writes=self.kept == "best",
            saved=self.saved,
        )
        others, average = [best, *callbacks], AverageInEvaluation()
        return [
            StopAtTotal(self.plan, log),
            log,
            AccuracyWatch(log),
            average,
            *([Progress(self.plan, log)] if _verbose() == 1 else []),
            *others,
            Checkpoints(
                self.folder,
                self.plan,
                self.class_names,
                log,
                shared[0],
                shared[1],
                average,
                metrics=metrics,
                others=others,
                keep=self.keep,
                saved=self.saved,
                checkpoint=checkpoint,
            ),
        ]


def _arguments(validation) -> dict:
    """Return the arguments of Keras's `evaluate` for validation data."""
    x, y, weights = keras.utils.unpack_x_y_sample_weight(placed(validation))
    return {"x": x, "y": y, "sample_weight": weights}


def _verbose() -> int:
    """Return Keras's progress bar in a terminal or notebook, else plain lines.

    Of several processes, only the first one prints.
    """
    if not is_first():
        return 0
    watched = sys.stdout.isatty() or "ipykernel" in sys.modules
    return 1 if watched else 2


class StopAtTotal(keras.callbacks.Callback):
    """Ends the last interval where it is shorter than the others.

    Args:
        plan: the `Plan`.
        log: the `MetricsLog`, which has where an interval was begun.
    """

    def __init__(self, plan: Plan, log: MetricsLog | None = None):
        super().__init__()
        self.plan, self.log = plan, log

    def on_epoch_begin(self, epoch, logs=None):
        self._interval = epoch

    def on_train_batch_begin(self, batch, logs=None):
        if self.plan.is_last_call(self._interval, _skipped(self.log) + batch):
            self.model.stop_training = True  # after this call


def _skipped(log: MetricsLog | None) -> int:
    return 0 if log is None else log.skipped


class Progress(keras.callbacks.Callback):
    """Shows images per second and the time left in Keras's progress bar.

    Args:
        plan: the `Plan`.
        log: the `MetricsLog`, which has where an interval was begun.
    """

    # It only reads the clock: Keras may call it beside the training.
    async_safe = True

    def __init__(self, plan: Plan, log: MetricsLog | None = None):
        super().__init__()
        self.plan, self.log = plan, log

    def on_epoch_begin(self, epoch, logs=None):
        self._interval = epoch
        self._begin = time.perf_counter()

    def on_train_batch_end(self, batch, logs=None):
        if logs is None:
            return
        done = batch + 1
        seconds = time.perf_counter() - self._begin
        left = self.plan.total * self.plan.batches_per_step
        left -= self._interval * self.plan.batches + _skipped(self.log) + done
        images = self.plan.batch_size / self.plan.batches_per_step
        logs["images_per_second"] = done * images / seconds
        # Below 0.001 Keras shows 5.4929e-04.
        logs["minutes_left"] = max(round(left * seconds / done / 60, 2), 0.01)
