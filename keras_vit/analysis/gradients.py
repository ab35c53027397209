"""Gradients outside of training, on each backend.

The only file of the analysis that names the backends: Keras itself has no
gradient of a function.
"""

from collections.abc import Callable

import keras
import numpy as np
from keras import ops

__all__ = ["gradient_function"]


def gradient_function(model: keras.Model, score: Callable) -> Callable:
    """The gradient of a sum of scores with respect to what is scored.

    Args:
        model: the model whose variables the score reads.
        score: from a tensor and any further tensors to scores (B,).

    Returns:
        A function of the same arguments, arrays or tensors: the gradient with
        respect to the first, a float32 array of its shape. As no score
        depends on another image of the batch, it holds one gradient an image.

    Raises:
        ValueError: the backend has no gradients.

    Example:
        >>> gradient = gradient_function(model, lambda x: model(x)[:, 0])
        >>> gradient(images).shape
        (8, 224, 224, 3)
    """
    backend = keras.backend.backend()
    if backend not in GRADIENTS:
        raise ValueError(
            f"Gradients need one of the backends {', '.join(GRADIENTS)}. "
            f"Received: {backend!r}. Set KERAS_BACKEND before Keras is "
            "imported."
        )
    gradient = GRADIENTS[backend](model, score)

    def as_array(x, *others):
        tensors = map(ops.convert_to_tensor, (x, *others))
        found = ops.convert_to_numpy(gradient(*tensors))
        return np.asarray(found, "float32")

    return as_array


def _jax(model, score):
    import jax

    def total(x, values, *others):
        # As arguments: constants of this size would be compiled for minutes.
        state = list(zip(model.variables, values, strict=True))
        with keras.StatelessScope(state_mapping=state):
            return ops.sum(score(x, *others))

    gradient = jax.jit(jax.grad(total))

    def call(x, *others):
        return gradient(x, [v.value for v in model.variables], *others)

    return call


def _tensorflow(model, score):
    import tensorflow as tf

    @tf.function
    def gradient(x, *others):
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(x)
            total = ops.sum(score(x, *others))
        return tape.gradient(total, x)

    return gradient


def _torch(model, score):
    import torch

    def gradient(x, *others):
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            total = ops.sum(score(x, *others))
            return torch.autograd.grad(total, x)[0]

    return gradient


GRADIENTS = {"jax": _jax, "tensorflow": _tensorflow, "torch": _torch}
