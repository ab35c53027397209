"""Regression: numbers that are learned about 0, and answered in their units.

A training sees the numbers of the training images with a mean of 0 and a
deviation of 1. What it saves has both in its last layer, so that every format
of the model, and whatever runs it, answers in the units of the data.

Axes: N images, D features, K numbers.
"""

import contextlib
import dataclasses
from collections.abc import Iterator

import keras
import numpy as np
from keras import ops

from keras_vit import data
from keras_vit.data.dataset import PARTS
from keras_vit.training.distribution.processes import to_numpy
from keras_vit.training.trainable import HEAD

__all__ = ["AbsoluteError", "Targets", "in_units", "targets_of", "to_units"]


@dataclasses.dataclass(frozen=True)
class Targets:
    """The mean and the deviation of the numbers of the training images.

    Args:
        mean: K floats.
        deviation: K floats above 0.
    """

    mean: tuple[float, ...]
    deviation: tuple[float, ...]

    def normalised(self, dataset: data.Dataset) -> data.Dataset:
        """Return a data set whose numbers are those that the training sees."""
        parts = {
            part: dataclasses.replace(
                examples,
                labels=(examples.labels - self.mean) / self.deviation,
            )
            for part in PARTS
            if (examples := getattr(dataset, part)) is not None
        }
        return dataclasses.replace(dataset, **parts)

    def head_in_units(self, kernel, bias) -> tuple[np.ndarray, np.ndarray]:
        """Return kernel (D, K) and bias (K,) that answer in units."""
        kernel, bias = kernel.astype("float64"), bias.astype("float64")
        return kernel * self.deviation, bias * self.deviation + self.mean

    def head_about_0(self, kernel, bias) -> tuple[np.ndarray, np.ndarray]:
        """Return kernel (D, K) and bias (K,) that answer normalised."""
        kernel, bias = kernel.astype("float64"), bias.astype("float64")
        return kernel / self.deviation, (bias - self.mean) / self.deviation


def targets_of(dataset: data.Dataset) -> Targets:
    """Compute the `Targets` of the training images of a data set.

    Raises:
        ValueError: when a number is the same for all of them.
    """
    labels = dataset.train.labels  # (N, K)
    deviation = labels.std(axis=0)
    same = np.flatnonzero(deviation == 0)
    if len(same):
        raise ValueError(
            f"There is nothing to learn: {dataset.class_names[same[0]]!r} is "
            f"{labels[0, same[0]]:g} of all {len(labels)} training images of "
            f"{dataset.name!r}. Leave the column out of data.label_key."
        )
    return Targets(tuple(labels.mean(axis=0)), tuple(deviation))


def to_units(model: keras.Model) -> None:
    """Let a model that learned about 0 answer in units, for good."""
    targets = getattr(model, "targets", None)
    if targets is not None:
        weights = model.get_layer(HEAD).weights
        _assign(weights, targets.head_in_units(*map(to_numpy, weights)))
        model.targets = None


def to_0(model: keras.Model) -> None:
    """Let a model that answers in units learn about 0."""
    weights = model.get_layer(HEAD).weights
    _assign(weights, model.targets.head_about_0(*map(to_numpy, weights)))


@contextlib.contextmanager
def in_units(model: keras.Model) -> Iterator[None]:
    """Let a model answer in units, and then be as before, to the bit."""
    targets = getattr(model, "targets", None)
    if targets is None:
        yield
        return
    weights = model.get_layer(HEAD).weights
    kept = [to_numpy(x) for x in weights]
    _assign(weights, targets.head_in_units(*kept))
    try:
        yield
    finally:
        _assign(weights, kept)


def _assign(variables, values):
    for variable, value in zip(variables, values, strict=True):
        variable.assign(value.astype("float32"))


class AbsoluteError(keras.metrics.MeanMetricWrapper):
    """Mean absolute error in units, of normalised numbers.

    Those of weight 0 are padding.

    Args:
        deviation: K floats, that of the numbers.
    """

    def __init__(self, deviation, name="mae"):
        scale = np.array(deviation, "float32")

        def error(y_true, y_pred):
            difference = ops.abs(ops.cast(y_pred, "float32") - y_true)
            return ops.mean(ops.multiply(difference, scale), axis=-1)

        super().__init__(error, name=name)
