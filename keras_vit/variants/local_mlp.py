"""An MLP that sees the patches around each patch.

Axes: B batch, R and C rows and columns of the grid of patches, P prefix
tokens (such as the class token), T = P + R * C tokens, D hidden dimension, M
MLP dimension.
"""

import itertools
import math

import keras
from keras import ops

from keras_vit.layers import MLP
from keras_vit.layers.embedding import check_grid
from keras_vit.runtime.workarounds import backend_is

__all__ = ["LocalMLP"]

KERNEL_SIZE = 3


@keras.saving.register_keras_serializable("keras_vit")
class LocalMLP(MLP):
    """Two dense layers with a depth-wise convolution of the image between.

    As in "LocalViT: Bringing Locality to Vision Transformers"
    (arXiv:2104.05707): the hidden vectors of the patches are an image of M
    channels, of which each is convolved on its own with a kernel of 3x3. The
    class token skips the convolution: it sees the dense layers alone.

    Args:
        mlp_dim: int, size M of the hidden layer.
        grid: (rows, columns) of the patches; once built, the layer also takes
            those of a smaller or larger image of the same proportions.
        num_prefix_tokens: int, P, tokens in front of the patches.
        dropout_rate: float in [0, 1), before and after the second dense layer.
        activation: after the first dense layer and after the convolution, see
            `MLP`.

    Input shape:
        (B, T, D).

    Output shape:
        (B, T, D).

    Raises:
        ValueError: when built on a sequence whose length is not rows *
            columns + num_prefix_tokens.

    Example:

    >>> tokens = keras.random.normal((2, 197, 768))
    >>> LocalMLP(3072, (14, 14), num_prefix_tokens=1)(tokens).shape
    (2, 197, 768)
    """

    def __init__(
        self,
        mlp_dim,
        grid,
        *,
        num_prefix_tokens=0,
        dropout_rate=0.0,
        activation="gelu_tanh",
        **kwargs,
    ):
        super().__init__(
            mlp_dim, dropout_rate=dropout_rate, activation=activation, **kwargs
        )
        self.grid = tuple(grid)
        self.num_prefix_tokens = num_prefix_tokens
        self.convolution = keras.layers.DepthwiseConv2D(
            KERNEL_SIZE,
            padding="same",
            data_format="channels_last",
            # LeCun's: each output sums this many products. Keras would count
            # those of all channels.
            depthwise_initializer=keras.initializers.RandomNormal(
                stddev=1 / KERNEL_SIZE
            ),
            dtype=self.dtype_policy,
            name="convolution",
        )

    def build(self, input_shape):
        check_grid(input_shape, self.grid, self.num_prefix_tokens)
        super().build(input_shape)
        self.convolution.build((input_shape[0], *self.grid, self.mlp_dim))

    def call(self, x, training=None):
        x = self.dense(x)  # (B, T, M), with its activation
        prefix, patches = (
            x[:, : self.num_prefix_tokens],
            x[:, self.num_prefix_tokens :],
        )
        patches = self._activate(self._convolved(patches))  # (B, R * C, M)
        x = ops.concatenate([prefix, patches], axis=1)  # (B, T, M)
        x = self.dense_1(self.dropout(x, training=training))  # (B, T, D)
        return self.dropout_1(x, training=training)

    def _convolved(self, patches):
        grid = self._grid_of(patches.shape[1])
        x = ops.reshape(patches, (-1, *grid, self.mlp_dim))
        if backend_is("jax"):
            x = self._sum_of_shifts(x)
        else:
            x = self.convolution(x)  # (B, R, C, M)
        return ops.reshape(x, (-1, *patches.shape[1:]))  # (B, R * C, M)

    def _sum_of_shifts(self, x):
        # XLA makes one loop of these products and is slow at convolutions of
        # single channels on CPUs (docs/decisions/local-mlp.md).
        dtype = keras.backend.result_type(x.dtype, "float32")  # of the sum
        x, kernel, bias = (
            ops.cast(tensor, dtype)
            for tensor in (x, self.convolution.kernel, self.convolution.bias)
        )
        _, rows, columns, _ = x.shape
        border = KERNEL_SIZE // 2
        x = ops.pad(x, ((0, 0), (border, border), (border, border), (0, 0)))
        shifts = itertools.product(range(KERNEL_SIZE), repeat=2)
        x = bias + sum(
            x[:, row : row + rows, column : column + columns]
            * kernel[row, column, :, 0]
            for row, column in shifts
        )
        return ops.cast(x, self.compute_dtype)  # (B, R, C, M)

    def _grid_of(self, patches: int) -> tuple[int, int]:
        rows, columns = self.grid
        scale = math.sqrt(patches / (rows * columns))
        grid = round(rows * scale), round(columns * scale)
        if grid[0] * grid[1] != patches:
            raise ValueError(
                f"{patches} patches are no image of the proportions of "
                f"{rows}x{columns} patches. Set grid to theirs."
            )
        return grid
