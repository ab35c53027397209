"""When a run checkpoints, evaluates, logs and ends, counted in steps.

Axes: B images of a batch, H and W height and width, C channels, K classes.
"""

import dataclasses
import pathlib
import sys

import keras

from keras_vit.training import metrics_log, resume
from keras_vit.training.callbacks import (
    AverageInEvaluation,
    Checkpoints,
    KeepBest,
    Progress,
    StopAtTotal,
    has_average,
    take_average,
)
from keras_vit.training.distribution.processes import is_first
from keras_vit.training.distribution.tf_distribute import placed
from keras_vit.training.inputs import Plan
from keras_vit.training.metrics_log import MetricsLog
from keras_vit.training.non_finite import FirstNonFinite, GradientWatch
from keras_vit.workarounds import draw_own_masks, sum_gradients_first

__all__ = ["Accuracy", "Loop", "verbosity"]


@dataclasses.dataclass(frozen=True)
class Loop:
    """Trains a model in a run folder, from the beginning or a checkpoint.

    Args:
        folder: pathlib.Path, the run folder.
        plan: a `Plan`.
        class_names: sequence of str, saved with the models that are kept;
            None for models that name nothing.
        best_metric: str, which metric decides what the best model is.
        patience: int, evaluations without a better one after which the
            training ends; None never ends it.
        keep: int, how many checkpoints stay.
        saved: the Keras model that is saved, with layers of the one that is
            trained; that one itself if None.

    Example:
        >>> loop = Loop(folder, plan, class_names)
        >>> rows, seconds = loop.run(model, optimizer, loss, stream, validation)
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
        metrics=None,
        checkpoint: tuple[dict, dict] | None = None,
        callbacks=(),
    ) -> tuple[list[dict], float]:
        """Trains until the plan ends or the patience does.

        Args:
            model: a Keras model, from images to logits (B, K); at the end it
                has its last weights, or their moving average where the
                optimizer keeps one.
            optimizer: a Keras optimizer that is not built.
            loss: a Keras loss.
            stream: has `from_step(step)`, which gives an endless
                tf.data.Dataset of images (B, H, W, C) and labels (B, K), and
                `names_of(step)`, the names of the images in a batch.
            validation: what Keras's `fit` takes as validation_data, or None.
            metrics: Keras metrics, weighted as the loss is; the `Accuracy` of
                a classifier if None.
            checkpoint: what `checkpoints.read_newest` returned.
            callbacks: Keras callbacks to call as well.

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
        record = None if checkpoint is None else checkpoint[1]
        begin = record or {"step": 0, "stretch": 0, "ended": False}
        log = MetricsLog(
            self.folder,
            self.plan,
            losses,
            gradients,
            stream.names_of,
            step=begin["step"],
            listeners=self._listeners(begin["step"]),
        )
        keeping = self._keeping(log, checkpoint, callbacks)
        model.fit(
            self._batches(stream, begin["step"]),
            steps_per_epoch=self.plan.batches,
            initial_epoch=begin["stretch"],
            epochs=begin["stretch"] if begin["ended"] else self.plan.stretches,
            validation_data=placed(validation),
            validation_freq=self.plan.evaluations,
            shuffle=False,
            verbose=verbosity(),
            callbacks=keeping,
        )
        if has_average(model.optimizer):
            take_average(model)
        return log.history, keeping[-1].record["seconds"]

    def _compile(self, model, optimizer, loss, metrics=None):
        losses = FirstNonFinite(loss)
        if metrics is None:
            metrics = [Accuracy("accuracy")]
        model.compile(
            optimizer=optimizer,
            loss=loss,
            metrics=[losses],
            weighted_metrics=metrics,
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
            size = _size(batches.element_spec) or self.plan.batch_size
            batches = batches.rebatch(size // parts)
        return placed(batches)

    def _listeners(self, step):
        if not is_first():
            return []
        return [metrics_log.event_writer(self.folder, step)]

    def _keeping(self, log, checkpoint, callbacks):
        """The callbacks in their order: each sees what those before did."""
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
            *([Progress(self.plan)] if verbosity() == 1 else []),
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


def _size(element_spec):
    """Images of a batch, None where it is not known."""
    return keras.tree.flatten(element_spec)[0].shape[0]


class Accuracy(keras.metrics.CategoricalAccuracy):
    """Share of the images that are named right; those of weight 0 are padding.

    Example:
        >>> model.compile("sgd", "mse", weighted_metrics=[Accuracy("accuracy")])
    """

    def update_state(self, y_true, y_pred, sample_weight=None):
        if sample_weight is not None:
            # Whole numbers: 5 of 10 are 0.5 and not 0.49999997.
            sample_weight = keras.ops.cast(sample_weight > 0, "float32")
        super().update_state(y_true, y_pred, sample_weight)


def verbosity() -> int:
    """Keras's progress bar for a person who looks on, else plain lines.

    Of several processes, the first one alone says something.
    """
    if not is_first():
        return 0
    watched = sys.stdout.isatty() or "ipykernel" in sys.modules
    return 1 if watched else 2
