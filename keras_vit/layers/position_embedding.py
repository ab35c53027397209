"""Position embeddings that are added to a sequence of tokens.

Axes: B batch, R and C rows and columns of the grid of patches, P prefix
tokens (such as the class token), T = P + R * C tokens, D hidden dimension.
"""

import keras
import numpy as np
from keras import ops

from keras_vit.layers.base import ConfiguredLayer

__all__ = ["AddPositionEmbedding", "sine_cosine_table"]

KINDS = ("learned", "sincos2d")


@keras.saving.register_keras_serializable("keras_vit")
class AddPositionEmbedding(ConfiguredLayer):
    """Adds to each token what tells its place in the image.

    `E_pos` of equation 1 in "An Image Is Worth 16x16 Words"
    (arXiv:2010.11929).

    Args:
        grid: (rows, columns) of the patches.
        num_prefix_tokens: int, tokens in front of the patches, such as the
            class token. Each has a learned embedding of its own; the fixed
            kind adds nothing to them.
        kind: "learned": a table of one vector a token (1-D, as in the paper).
            "sincos2d": fixed sines and cosines of row and column (as in
            "Better plain ViT baselines for ImageNet-1k", arXiv:2205.01580),
            not a weight.
        stddev: float, standard deviation of the normal distribution that a
            learned table starts from.

    Input shape:
        (B, T, D).

    Output shape:
        (B, T, D).

    Raises:
        ValueError: for an unknown kind, for a sequence whose length is not
            rows * columns + num_prefix_tokens, or, with "sincos2d", for a D
            that is not a multiple of 4 above 4.

    Example:

    >>> tokens = keras.random.normal((2, 197, 768))
    >>> AddPositionEmbedding((14, 14), num_prefix_tokens=1)(tokens).shape
    (2, 197, 768)
    """

    def __init__(
        self,
        grid,
        *,
        num_prefix_tokens=0,
        kind="learned",
        stddev=0.02,
        **kwargs,
    ):
        super().__init__(**kwargs)
        if kind not in KINDS:
            raise ValueError(
                f"Unknown kind of position embedding: {kind!r}. Expected one "
                f"of {', '.join(map(repr, KINDS))}."
            )
        self.grid = tuple(grid)
        self.num_prefix_tokens = num_prefix_tokens
        self.kind = kind
        self.stddev = stddev

    def build(self, input_shape):
        rows, columns = self.grid
        length = rows * columns + self.num_prefix_tokens
        if input_shape[1] != length:
            raise ValueError(
                f"A grid of {rows}x{columns} patches with "
                f"{self.num_prefix_tokens} prefix tokens makes {length} "
                f"tokens, but the sequence has {input_shape[1]}. Received: "
                f"input_shape={tuple(input_shape)}. Set grid and "
                "num_prefix_tokens to what the layers before this one make."
            )
        if self.kind == "learned":
            self.embedding = self.add_weight(
                name="embedding",
                shape=(1, length, input_shape[-1]),
                initializer=keras.initializers.RandomNormal(stddev=self.stddev),
            )
        else:
            table = sine_cosine_table(self.grid, input_shape[-1])
            prefix = [(0, 0), (self.num_prefix_tokens, 0), (0, 0)]
            self.embedding = np.pad(table, prefix)  # (1, T, D)

    def call(self, x):
        return x + ops.cast(self.embedding, x.dtype)

    def compute_output_shape(self, input_shape):
        return input_shape


def sine_cosine_table(grid: tuple, hidden_dim: int) -> np.ndarray:
    """Fixed position embedding of sines and cosines of column and row.

    A quarter of the D features each holds the sine and cosine of the column,
    then of the row, at frequencies from 1 down to 1/10000 in equal ratios
    (`posemb_sincos_2d` of big_vision, after MoCo v3).

    Args:
        grid: (rows, columns).
        hidden_dim: int, D, a multiple of 4 above 4.

    Returns:
        float32 array of shape (1, rows * columns, D), row by row.

    Raises:
        ValueError: when D is not a multiple of 4 above 4.
    """
    if hidden_dim % 4 or hidden_dim <= 4:
        raise ValueError(
            "A sine-cosine position embedding needs a hidden_dim that is a "
            f"multiple of 4 above 4. Received: hidden_dim={hidden_dim}. Use "
            'another hidden_dim or kind="learned".'
        )
    quarter = hidden_dim // 4
    frequencies = 10_000.0 ** (-np.arange(quarter) / (quarter - 1))
    rows, columns = np.mgrid[: grid[0], : grid[1]]
    column_angles = np.outer(columns, frequencies)  # (R * C, D / 4)
    row_angles = np.outer(rows, frequencies)  # (R * C, D / 4)
    table = np.concatenate(
        [
            np.sin(column_angles),
            np.cos(column_angles),
            np.sin(row_angles),
            np.cos(row_angles),
        ],
        axis=1,
    )  # (R * C, D)
    return table[None].astype("float32")
