"""Attention within windows, its positions that queries read, and the neck.

Axes: B batch, R and C rows and columns of the grid of patches, T = R * C
tokens, S patches on a side of a window, W windows, P = S * S patches of a
window, H heads, d head dimension, D = H * d hidden dimension, K channels of the
neck.
"""

import keras
import numpy as np
from keras import ops

from keras_vit.layers.attention import SelfAttention
from keras_vit.layers.common import ConfiguredLayer, TokenDense

__all__ = [
    "DecomposedPositionBias",
    "Neck",
    "WindowAttention",
]

EPSILON = 1e-6  # of the neck, whatever that of the blocks is


@keras.saving.register_keras_serializable("keras_vit")
class WindowAttention(SelfAttention):
    """Multi-head self-attention within windows of patches.

    "Exploring Plain Vision Transformer Backbones for Object Detection"
    (arXiv:2203.16527, section 3), as in SAM (arXiv:2304.02643): the grid is
    cut into squares that do not overlap, at its right and lower end filled up
    with zeros, which are tokens like others.

    Args:
        num_heads: int, H; it divides D. This and others as in
            `SelfAttention`; its positions are those within a window.
        grid: (R, C), rows and columns of patches, and no other tokens.
        window_size: int, S.

    Input shape:
        (B, T, D).

    Output shape:
        (B, T, D).

    Raises:
        ValueError: for a window_size below 1, or when built on other tokens
            than those of the grid.

    Example:

    >>> tokens = keras.random.normal((2, 196, 768))
    >>> WindowAttention(12, grid=(14, 14), window_size=5)(tokens).shape
    (2, 196, 768)
    """

    def __init__(
        self,
        num_heads: int,
        *,
        grid: tuple[int, int],
        window_size: int,
        **kwargs,
    ):
        super().__init__(num_heads, **kwargs)
        self.grid = tuple(grid)
        self.window_size = window_size
        self.window_grid = tuple(-(-x // window_size) for x in self.grid)

    def build(self, x_shape):
        rows, columns = self.grid
        if x_shape[1] != rows * columns:
            raise ValueError(
                f"Windows are of {rows}x{columns} patches and no other "
                f"tokens. Received: input_shape={tuple(x_shape)}."
            )
        super().build((None, self.window_size**2, x_shape[-1]))

    def call(self, x, training=None):
        windows = self._windows(x)  # (B * W, P, D)
        return self._tokens(super().call(windows, training=training))

    def attention_weights(self, x, valid=None):
        """The softmax weights that `call` uses, computed explicitly.

        Args:
            x: tokens of shape (B, T, D).
            valid: None; padding is what a sequence of no grid has.

        Returns:
            Tensor of shape (B, H, T, T): how much each query takes from each
            key, zero for those of other windows. The last axis sums to 1 but
            for what the zeros beside the grid are given.
        """
        count = self.window_grid[0] * self.window_grid[1]  # W
        size = self.window_size**2  # P
        found = super().attention_weights(self._windows(x))  # (B * W, H, P, P)
        found = ops.reshape(found, (-1, count, self.num_heads, size, size))
        found = ops.transpose(found, (0, 2, 1, 3, 4))  # (B, H, W, P, P)
        own = ops.eye(count, dtype=found.dtype)[:, None, :, None]
        found = found[:, :, :, :, None] * own  # (B, H, W, P, W, P)
        shape = (-1, self.num_heads, count * size, count * size)
        places = window_places(self.grid, self.window_size)  # (T,)
        found = ops.take(ops.reshape(found, shape), places, axis=-2)
        return ops.take(found, places, axis=-1)  # (B, H, T, T)

    def _windows(self, x):
        """(B, T, D) to (B * W, P, D), padded with zeros."""
        (rows, columns), dim = self.grid, x.shape[-1]
        (down, right), side = self.window_grid, self.window_size
        x = ops.reshape(x, (-1, rows, columns, dim))  # (B, R, C, D)
        padding = [(0, down * side - rows), (0, right * side - columns)]
        x = ops.pad(x, [(0, 0), *padding, (0, 0)])
        x = ops.reshape(x, (-1, down, side, right, side, dim))
        x = ops.transpose(x, (0, 1, 3, 2, 4, 5))  # (B, down, right, S, S, D)
        return ops.reshape(x, (-1, side * side, dim))

    def _tokens(self, x):
        """(B * W, P, D) to (B, T, D), the inverse of `_windows`."""
        (rows, columns), dim = self.grid, x.shape[-1]
        (down, right), side = self.window_grid, self.window_size
        x = ops.reshape(x, (-1, down, right, side, side, dim))
        x = ops.transpose(x, (0, 1, 3, 2, 4, 5))  # (B, down, S, right, S, D)
        x = ops.reshape(x, (-1, down * side, right * side, dim))
        x = x[:, :rows, :columns]  # (B, R, C, D)
        return ops.reshape(x, (-1, rows * columns, dim))


def window_places(grid: tuple, window_size: int) -> np.ndarray:
    """(T,): where each token is when all windows are in a row."""
    rows, columns = np.mgrid[: grid[0], : grid[1]].reshape(2, -1)
    across = -(-grid[1] // window_size)
    window = rows // window_size * across + columns // window_size
    inside = rows % window_size * window_size + columns % window_size
    return (window * window_size**2 + inside).astype("int32")


@keras.saving.register_keras_serializable("keras_vit")
class DecomposedPositionBias(ConfiguredLayer):
    """Adds to the scores what a query says of rows down and columns right.

    A vector for each distance in rows and one for each in columns, whose
    products with the query are added: "MViTv2" (arXiv:2112.01526, equations 4
    and 5), as in SAM (arXiv:2304.02643).

    Args:
        grid: (R, C), rows and columns of patches, and no other tokens.
        head_dim: int, d.

    Input shape:
        (B, H, T, T), the scores of each query (first) and key, and
        (B, H, T, d), the queries.

    Output shape:
        That of the scores.

    Example:

    >>> scores = keras.random.normal((2, 12, 196, 196))
    >>> queries = keras.random.normal((2, 12, 196, 64))
    >>> DecomposedPositionBias((14, 14), 64)(scores, queries).shape
    (2, 12, 196, 196)
    """

    def __init__(self, grid: tuple[int, int], head_dim: int, **kwargs):
        super().__init__(**kwargs)
        self.grid = tuple(grid)
        self.head_dim = head_dim

    def build(self, scores_shape, query_shape=None):
        self.rows, self.columns = (
            self.add_weight(
                name=name,
                shape=(2 * size - 1, self.head_dim),
                initializer="zeros",
            )
            for name, size in zip(("rows", "columns"), self.grid, strict=True)
        )
        self._down, self._right = map(distances, self.grid)

    def call(self, scores, query):
        return scores + ops.cast(self.bias(query), scores.dtype)

    def bias(self, query):
        """What is added for queries (B, H, T, d), a tensor (B, H, T, T)."""
        (rows, columns), (heads, tokens) = self.grid, query.shape[1:3]
        query = ops.reshape(query, (-1, heads, rows, columns, self.head_dim))
        down = ops.take(ops.cast(self.rows, query.dtype), self._down, axis=0)
        right = ops.take(
            ops.cast(self.columns, query.dtype), self._right, axis=0
        )
        down = ops.einsum("bhrcd,rkd->bhrck", query, down)
        right = ops.einsum("bhrcd,ckd->bhrck", query, right)
        bias = down[..., None] + right[..., None, :]  # (B, H, R, C, R, C)
        return ops.reshape(bias, (-1, heads, tokens, tokens))

    def fused_bias(self, query):
        """The same for queries (B, T, H, d)."""
        return self.bias(ops.transpose(query, (0, 2, 1, 3)))

    def multiply_adds(self, num_heads: int) -> int:
        """Those of one image or window."""
        rows, columns = self.grid
        return num_heads * rows * columns * (rows + columns) * self.head_dim


def distances(size: int) -> np.ndarray:
    """(size, size): the number of the distance of each query and key."""
    places = np.arange(size)
    return (places[:, None] - places + size - 1).astype("int32")


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

    def __init__(self, neck_dim: int, grid: tuple[int, int], **kwargs):
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
