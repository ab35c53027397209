"""The class token.

Axes: B batch, P prefix tokens, N patch tokens, D hidden dimension.
"""

import keras
from keras import ops

from keras_vit.layers.base import ConfiguredLayer

__all__ = ["ClassToken"]


@keras.saving.register_keras_serializable("keras_vit")
class ClassToken(ConfiguredLayer):
    """Puts learned tokens in front of a sequence, the class token by default.

    `x_class` of equation 1 in "An Image Is Worth 16x16 Words"
    (arXiv:2010.11929). It starts at zero, as in the original code.

    Args:
        num_tokens: int, P; 2 for DeiT's class and distillation tokens
            (arXiv:2012.12877).

    Input shape:
        (B, N, D).

    Output shape:
        (B, P + N, D); the class token is at index 0.

    Example:

    >>> tokens = keras.random.normal((2, 196, 768))
    >>> ClassToken()(tokens).shape
    (2, 197, 768)
    """

    def __init__(self, num_tokens=1, **kwargs):
        super().__init__(**kwargs)
        self.num_tokens = num_tokens

    def build(self, input_shape):
        self.token = self.add_weight(
            name="token",
            shape=(1, self.num_tokens, input_shape[-1]),
            initializer="zeros",
        )

    def call(self, x):
        shape = (ops.shape(x)[0], self.num_tokens, x.shape[-1])
        token = ops.broadcast_to(self.token, shape)  # (B, P, D)
        return ops.concatenate([token, x], axis=1)  # (B, P + N, D)

    def compute_output_shape(self, input_shape):
        batch, tokens, dim = input_shape
        if tokens is not None:
            tokens += self.num_tokens
        return (batch, tokens, dim)
