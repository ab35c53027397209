"""Position embeddings of a row and a column.

Axes: B batch, R and C rows and columns of the grid of patches, P prefix
tokens (such as the class token), T = P + R * C tokens, D hidden dimension.
"""

import keras
from keras import ops

from keras_vit.layers.configured_layer import ConfiguredLayer
from keras_vit.layers.embedding import check_grid

__all__ = ["AddPositionEmbedding2D"]


@keras.saving.register_keras_serializable("keras_vit")
class AddPositionEmbedding2D(ConfiguredLayer):
    """Adds an embedding of its column and of its row to each patch.

    The 2-dimensional positional embedding of appendix D.4 (Table 8) of "An
    Image Is Worth 16x16 Words" (arXiv:2010.11929): two learned tables of
    vectors of size D / 2, one for the columns (X) and one for the rows (Y),
    joined to a vector of size D. Prefix tokens have no place in the image;
    nothing is added to them.

    Args:
        grid: (rows, columns) of the patches.
        num_prefix_tokens: int, tokens in front of the patches.
        stddev: float, standard deviation of the normal distribution that the
            tables start from.

    Input shape:
        (B, T, D).

    Output shape:
        (B, T, D).

    Raises:
        ValueError: when built on an odd D, or on a sequence whose length is
            not rows * columns + num_prefix_tokens.

    Example:

    >>> tokens = keras.random.normal((2, 197, 768))
    >>> AddPositionEmbedding2D((14, 14), num_prefix_tokens=1)(tokens).shape
    (2, 197, 768)
    """

    def __init__(self, grid, *, num_prefix_tokens=0, stddev=0.02, **kwargs):
        super().__init__(**kwargs)
        self.grid = tuple(grid)
        self.num_prefix_tokens = num_prefix_tokens
        self.stddev = stddev

    def build(self, input_shape):
        check_grid(input_shape, self.grid, self.num_prefix_tokens)
        rows, columns = self.grid
        dim = input_shape[-1]
        if dim % 2:
            raise ValueError(
                "Half of a 2-D position embedding is the column's, half the "
                f"row's. Received: input_shape={tuple(input_shape)}. Choose "
                "an even hidden_dim."
            )
        self.columns = self._table(columns, dim, "columns")  # (C, D / 2)
        self.rows = self._table(rows, dim, "rows")  # (R, D / 2)

    @property
    def embedding(self):
        """Return what is added to the tokens: a tensor (1, T, D)."""
        rows, columns = self.grid
        half = self.rows.shape[-1]
        shape = (rows, columns, half)
        table = ops.concatenate(
            [
                ops.broadcast_to(self.columns[None], shape),
                ops.broadcast_to(self.rows[:, None], shape),
            ],
            axis=-1,
        )  # (R, C, D)
        table = ops.reshape(table, (1, rows * columns, 2 * half))
        return ops.pad(table, [(0, 0), (self.num_prefix_tokens, 0), (0, 0)])

    def call(self, x):
        return x + ops.cast(self.embedding, x.dtype)  # (B, T, D)

    def _table(self, length, dim, name):
        return self.add_weight(
            name=name,
            shape=(length, dim // 2),
            initializer=keras.initializers.RandomNormal(stddev=self.stddev),
        )
