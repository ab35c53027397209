"""Layer normalization of tokens with its gradient in closed form.

Axes: B batch, N tokens, D features.
"""

import functools

import keras
from keras import ops

__all__ = ["TokenNormalization"]


@keras.saving.register_keras_serializable("keras_vit")
class TokenNormalization(keras.layers.LayerNormalization):
    """`keras.layers.LayerNormalization`, with a backward pass that suits CPUs.

    Left to itself, XLA for CPUs writes out what JAX broadcasts over the
    features, forward and backward. The closed form of the gradient
    (arXiv:1607.06450) keeps the input, a mean and a deviation per token.
    Values and gradients are those of `keras.layers.LayerNormalization`; other
    backends use that one's own.

    Args:
        **kwargs: those of `keras.layers.LayerNormalization`, without `axis`.

    Input shape:
        (B, N, D), or any shape that ends with D.

    Output shape:
        That of the input.

    Example:

    >>> tokens = keras.random.normal((2, 197, 768))
    >>> TokenNormalization(epsilon=1e-6)(tokens).shape
    (2, 197, 768)
    """

    def call(self, inputs):
        if keras.backend.backend() != "jax":
            return super().call(inputs)
        precise = keras.backend.result_type(inputs.dtype, "float32")
        weights = (ops.cast(w, precise) for w in (self.gamma, self.beta))
        x = normalizing(self.epsilon)(ops.cast(inputs, precise), *weights)
        return ops.cast(x, self.compute_dtype)


@functools.cache
def normalizing(epsilon: float):
    """The function of x (..., D), scale (D,) and offset (D,)."""

    @ops.custom_gradient
    def normalize(x, scale, offset):
        mean = ops.mean(x, axis=-1, keepdims=True)
        variance = ops.mean(ops.square(x - mean), axis=-1, keepdims=True)
        inverse = ops.rsqrt(variance + epsilon)  # (..., 1)

        def gradient(upstream):  # (..., D)
            unit = (x - mean) * inverse  # (..., D)
            axes = tuple(range(len(x.shape) - 1))
            scaled = upstream * scale
            along = ops.mean(scaled * unit, axis=-1, keepdims=True)
            shift = ops.mean(scaled, axis=-1, keepdims=True)
            return (
                inverse * (scaled - shift - along * unit),
                ops.sum(upstream * unit, axis=axes),
                ops.sum(upstream, axis=axes),
            )

        return (x - mean) * inverse * scale + offset, gradient

    return normalize
