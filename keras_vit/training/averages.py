"""The moving average of the weights, in evaluations and at the end."""

import contextlib
from collections.abc import Iterator

import keras

from keras_vit.training.distribution.processes import to_numpy

__all__ = [
    "AverageInEvaluation",
    "averaged",
    "has_average",
    "take_average",
]


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
    take_average(model)
    try:
        yield
    finally:
        _assign(model, kept)


def take_average(model) -> None:
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
