"""Convolutions between the blocks and what reads their tokens.

Axes: B batch, R and C rows and columns of the grid of patches, T = R * C
tokens, D hidden dimension, K channels of the neck.
"""

import keras
from keras import ops

from keras_vit.layers.configured_layer import ConfiguredLayer
from keras_vit.layers.kernels import TokenDense

__all__ = ["Neck"]

EPSILON = 1e-6  # whatever that of the blocks is


@keras.saving.register_keras_serializable("keras_vit")
class Neck(ConfiguredLayer):
    """Projects tokens to fewer channels and mixes those of neighbours.

    Of "Segment Anything" (arXiv:2304.02643, appendix A): a convolution of one
    patch and one of 3x3 patches, without biases, each followed by layer
    normalisation.

    Args:
        neck_dim: int, K.
        grid: (R, C), rows and columns of patches, and no other tokens.

    Input shape:
        (B, T, D).

    Output shape:
        (B, T, K).

    Example:

    >>> tokens = keras.random.normal((2, 4096, 768))
    >>> Neck(256, (64, 64))(tokens).shape
    (2, 4096, 256)
    """

    def __init__(self, neck_dim, grid, **kwargs):
        super().__init__(**kwargs)
        self.neck_dim = neck_dim
        self.grid = tuple(grid)
        self.projection_norm, self.convolution_norm = (
            keras.layers.LayerNormalization(
                epsilon=EPSILON, dtype=self.dtype_policy, name=name
            )
            for name in ("projection_norm", "convolution_norm")
        )
        self.convolution = keras.layers.Conv2D(
            neck_dim,
            3,
            padding="same",
            use_bias=False,
            data_format="channels_last",
            dtype=self.dtype_policy,
            name="convolution",
        )

    def build(self, input_shape):
        tokens = (*input_shape[:-1], self.neck_dim)
        self.projection = TokenDense(
            self.neck_dim,
            use_bias=False,
            dtype=self.dtype_of("projection"),
            name="projection",
        )
        self.projection.build(input_shape)
        self.projection_norm.build(tokens)
        self.convolution.build((None, *self.grid, self.neck_dim))
        self.convolution_norm.build(tokens)

    def call(self, x):
        x = self.projection_norm(self.projection(x))  # (B, T, K)
        shape = ops.shape(x)
        x = ops.reshape(x, (-1, *self.grid, self.neck_dim))  # (B, R, C, K)
        x = ops.reshape(self.convolution(x), shape)  # (B, T, K)
        return self.convolution_norm(x)

    def compute_output_shape(self, input_shape):
        return (*input_shape[:-1], self.neck_dim)
