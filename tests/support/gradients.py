"""Value and gradient of a function of one tensor, on each backend."""

import keras
import numpy as np


def value_and_gradient(function, x) -> tuple[float, np.ndarray]:
    """Return function(x), a scalar, and its gradient, in float32."""
    x = keras.ops.convert_to_tensor(x, "float32")
    value, gradient = BACKENDS[keras.backend.backend()](function, x)
    return float(value), keras.ops.convert_to_numpy(gradient)


def _jax(function, x):
    import jax

    return jax.value_and_grad(function)(x)


def _tensorflow(function, x):
    import tensorflow as tf

    with tf.GradientTape() as tape:
        tape.watch(x)
        value = function(x)
    return value, tape.gradient(value, x)


def _torch(function, x):
    x = x.clone().requires_grad_()
    value = function(x)
    value.backward()
    return value.detach(), x.grad


BACKENDS = {"jax": _jax, "tensorflow": _tensorflow, "torch": _torch}
