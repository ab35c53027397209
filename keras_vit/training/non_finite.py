"""Notices a loss or gradient that is no number, without waiting each step.

Both watchers keep their finds in variables on the device, which are read at
the steps that are logged.
"""

import keras
from keras import ops

from keras_vit.workarounds import observe_gradients

__all__ = ["FirstNonFinite", "GradientWatch"]


class FirstNonFinite(keras.metrics.Metric):
    """Counts batches, and remembers the first whose loss is not finite.

    It shows nothing in the logs. Keras resets it with the other metrics, at
    the start of each epoch and each evaluation.

    Args:
        loss: a Keras loss, the one that the model is compiled with.

    Attributes:
        batches: variable of the batches since the reset.
        first: variable, the number of the first batch whose loss is not
            finite, counted from 1; 0 when all were.

    Example:
        >>> model.compile("sgd", loss, metrics=[FirstNonFinite(loss)])
    """

    def __init__(self, loss, name="first_non_finite"):
        super().__init__(name=name)
        self.loss = loss
        # Replicas count alike: theirs are not added up.
        options = {"dtype": "int32", "aggregation": "only_first_replica"}
        self.batches = self.add_variable((), "zeros", **options)
        self.first = self.add_variable((), "zeros", **options)

    def update_state(self, y_true, y_pred, sample_weight=None):
        self.batches.assign_add(1)
        finite = ops.isfinite(self.loss(y_true, y_pred))
        _remember(self.first, finite, self.batches)

    def result(self):
        return {}


class GradientWatch:
    """Measures the gradients on their way into the optimizer.

    Args:
        optimizer: a Keras optimizer that is not built.

    Attributes:
        norm: variable, the L2 norm of all gradients of the last update,
            before they are clipped.
        first: variable, the number of the first update whose gradients are
            not finite, counted from 1; 0 when all were.

    Example:
        >>> watch = GradientWatch(model.optimizer)
        >>> model.fit(images, labels)
        >>> float(watch.norm)
    """

    def __init__(self, optimizer: keras.optimizers.Optimizer):
        if isinstance(optimizer, keras.optimizers.LossScaleOptimizer):
            optimizer = optimizer.inner_optimizer
        # Replicas see the same gradients, those of the whole batch.
        one = {"aggregation": "only_first_replica"}
        self.norm = optimizer.add_variable((), name="gradient_norm", **one)
        self.first = optimizer.add_variable(
            (), dtype="int32", name="first", **one
        )
        self._optimizer = optimizer
        observe_gradients(optimizer, self._measure)

    def _measure(self, gradients):
        squares = [
            ops.sum(ops.square(ops.cast(gradient, "float32")))
            for gradient in gradients
        ]
        norm = ops.sqrt(sum(squares))
        self.norm.assign(norm)
        number = ops.cast(self._optimizer.iterations, "int32") + 1
        _remember(self.first, ops.isfinite(norm), number)


def _remember(first, finite, number):
    """Keeps the first number that was not finite."""
    value = ops.convert_to_tensor(first)
    found = ops.logical_and(ops.equal(value, 0), ops.logical_not(finite))
    first.assign(ops.where(found, ops.convert_to_tensor(number), value))
