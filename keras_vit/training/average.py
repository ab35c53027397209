"""The moving average of the weights in the place of the weights."""

import contextlib
from collections.abc import Iterator

import keras

from keras_vit.training.distribution.processes import to_numpy

__all__ = ["AverageInEvaluation", "averaged", "has_average", "take_average"]


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
