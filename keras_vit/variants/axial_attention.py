"""Self-attention along one axis of the image.

Axes: B batch, T tokens, D hidden dimension.
"""

import keras
from keras import ops

from keras_vit.io.checks import check_choice
from keras_vit.layers import SelfAttention
from keras_vit.layers.configured_layer import ConfiguredLayer
from keras_vit.layers.embedding import check_grid

__all__ = ["AxialAttention"]

AXES = ("rows", "columns")


@keras.saving.register_keras_serializable("keras_vit")
class AxialAttention(ConfiguredLayer):
    """Lets each patch attend to those of its row, or of its column, alone.

    Appendix D.6 of "An Image Is Worth 16x16 Words" (arXiv:2010.11929), after
    "Axial Attention in Multidimensional Transformers" (arXiv:1912.12180): the
    rows (or columns) of the grid are sequences of their own.

    Args:
        num_heads: int, attention heads; it divides D.
        grid: (rows, columns) of the patches.
        axis: "rows" or "columns".
        attention_dropout_rate: float, see `SelfAttention`.
        flash_attention: see `SelfAttention`.

    Input shape:
        (B, T, D), without prefix tokens: these are in no row.

    Output shape:
        (B, T, D).

    Raises:
        ValueError: for an unknown axis, and when built on a sequence whose
            length is not rows * columns, or a D that num_heads does not
            divide.

    Example:

    >>> tokens = keras.random.normal((2, 196, 768))
    >>> AxialAttention(12, (14, 14), axis="columns")(tokens).shape
    (2, 196, 768)
    """

    def __init__(
        self,
        num_heads,
        grid,
        *,
        axis="rows",
        attention_dropout_rate=0.0,
        flash_attention=None,
        **kwargs,
    ):
        super().__init__(**kwargs)
        check_choice("axis", axis, AXES)
        self.num_heads = num_heads
        self.grid = tuple(grid)
        self.axis = axis
        self.attention_dropout_rate = attention_dropout_rate
        self.flash_attention = flash_attention
        self.attention = SelfAttention.from_fields(
            vars(self), dtype=self.dtype_policy, name="attention"
        )

    def build(self, input_shape):
        hint = " Leave out the class token: it is in no row."
        check_grid(input_shape, self.grid, hint=hint)
        rows, columns = self.grid
        along = columns if self.axis == "rows" else rows
        self.attention.build((None, along, input_shape[-1]))

    def call(self, x, training=None):
        rows, columns = self.grid
        dim = x.shape[-1]
        x = ops.reshape(x, (-1, rows, columns, dim))  # (B, R, C, D)
        if self.axis == "rows":
            x = self._along(x, training)
        else:
            x = ops.swapaxes(x, 1, 2)  # (B, C, R, D)
            x = ops.swapaxes(self._along(x, training), 1, 2)  # (B, R, C, D)
        return ops.reshape(x, (-1, rows * columns, dim))  # (B, T, D)

    def _along(self, x, training):
        """Attention along the last but one axis."""
        shape = x.shape[1:]
        x = ops.reshape(x, (-1, *shape[1:]))
        x = self.attention(x, training=training)
        return ops.reshape(x, (-1, *shape))
