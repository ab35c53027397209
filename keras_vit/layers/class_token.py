"""The class token.

Axes: B batch, N tokens, D hidden dimension.
"""

import keras
from keras import ops

from keras_vit.layers.base import ConfiguredLayer

__all__ = ["ClassToken"]


@keras.saving.register_keras_serializable("keras_vit")
class ClassToken(ConfiguredLayer):
    """Puts one learned token in front of a sequence.

    `x_class` of equation 1 in "An Image Is Worth 16x16 Words"
    (arXiv:2010.11929). It starts at zero, as in the original code.

    Input shape:
        (B, N, D).

    Output shape:
        (B, N + 1, D); the class token is at index 0.

    Example:

    >>> tokens = keras.random.normal((2, 196, 768))
    >>> ClassToken()(tokens).shape
    (2, 197, 768)
    """

    def build(self, input_shape):
        self.token = self.add_weight(
            name="token",
            shape=(1, 1, input_shape[-1]),
            initializer="zeros",
        )

    def call(self, x):
        shape = (ops.shape(x)[0], 1, x.shape[-1])
        token = ops.broadcast_to(self.token, shape)  # (B, 1, D)
        return ops.concatenate([token, x], axis=1)  # (B, N + 1, D)

    def compute_output_shape(self, input_shape):
        batch, tokens, dim = input_shape
        return (batch, None if tokens is None else tokens + 1, dim)
