"""Metrics of the whole validation split, which are no means over batches.

They are computed from the scores of all images, which takes a second pass over
them at each evaluation.
"""

import functools
from collections.abc import Callable

import keras

from keras_vit import data, evaluation
from keras_vit.evaluation.class_metrics import CLASS_METRICS
from keras_vit.evaluation.predictions import Ranking
from keras_vit.runtime.machine import random_states, set_random_states
from keras_vit.training.checkpointing import averaged
from keras_vit.training.distribution.processes import place

__all__ = ["ValidationMetrics", "validation_metrics"]


class ValidationMetrics(keras.callbacks.Callback):
    """Adds the metrics of `evaluation.class_metrics` to each evaluation.

    With the moving average of the weights where there is one.

    Args:
        validation: batches of `validation_batches`.
        activation: what makes probabilities of the scores.
        several: whether an image may have several classes.
    """

    def __init__(self, validation, *, activation: str, several: bool):
        super().__init__()
        self.batches = validation.map(
            lambda images, labels, weights: (images, labels, weights > 0)
        )
        self.activation = activation
        self.several = several
        self.ranking: Ranking | None = None

    def on_epoch_end(self, epoch, logs=None):
        if logs is None or "val_loss" not in logs:
            return
        if self.ranking is None:  # Compiled once.
            num_classes = self.model.output_shape[-1]
            self.ranking = Ranking(self.model, num_classes, self.activation)
        states = random_states()
        with averaged(self.model):
            found = evaluation.predict_classes(self.ranking, self.batches)
        set_random_states(states)
        if not self.several:
            found = found.of_one_class()
        summary = evaluation.summarise(found)
        logs |= {f"val_{x}": summary[x] for x in CLASS_METRICS if x in summary}


def validation_metrics(
    recipe, dataset, task
) -> Callable[..., ValidationMetrics] | None:
    """Return what makes the callback that the best metric of a recipe needs.

    Args:
        recipe: a `Recipe`.
        dataset: its `Dataset`.
        task: its `Task`.

    Returns:
        Function of the validation batches; None for a metric of batches.

    Raises:
        ValueError: when there are no such metrics of this data or task.
    """
    metric = recipe.training.best_metric
    if metric.removeprefix("val_") not in CLASS_METRICS:
        return None
    obstacle = _obstacle(dataset, task)
    if obstacle is not None:
        raise ValueError(
            f"{metric} is computed from the scores of all validation images: "
            f"{obstacle}. Received: training.best_metric={metric!r}. Set it to "
            "val_loss."
        )
    return functools.partial(
        ValidationMetrics,
        activation=recipe.training.loss,
        several=dataset.validation.labels.ndim == 2,
    )


def _obstacle(dataset, task) -> str | None:
    if dataset.validation is None:
        return "the data has none"
    if isinstance(dataset.train, data.FitStream):
        return "they are not known of batches of your own"
    if not task.names_classes:
        return "this recipe learns no classes"
    if place()[1] > 1:
        return "each of several processes has a share of them"
    size, num_classes = len(dataset.validation), len(dataset.class_names)
    if evaluation.classes_to_keep(size, num_classes) < num_classes:
        return f"{size:,} images of {num_classes:,} classes do not fit memory"
    return None
