"""The encoder block of the axial Vision Transformer.

Axes: B batch, T tokens, D hidden dimension.
"""

import keras

from keras_vit.layers.base import ConfiguredLayer
from keras_vit.variants.variant_block import VariantBlock

__all__ = ["AxialBlock"]


@keras.saving.register_keras_serializable("keras_vit")
class AxialBlock(ConfiguredLayer):
    """Attention within rows and an MLP, then within columns and an MLP.

    The axial transformer block of appendix D.6 of "An Image Is Worth 16x16
    Words" (arXiv:2010.11929), in the place of one block of the plain model.

    Args:
        num_heads: int, attention heads; it divides D.
        mlp_dim: int, hidden size of both MLPs.
        options: dict, other arguments of `VariantBlock`, such as grid, the
            (rows, columns) of the patches, which it needs.

    Input shape:
        (B, T, D), without prefix tokens.

    Output shape:
        (B, T, D).

    Raises:
        ValueError: without a grid, or when built on a sequence that it does
            not make.

    Example:

    >>> tokens = keras.random.normal((2, 196, 768))
    >>> block = AxialBlock(12, 3072, options={"grid": (14, 14)})
    >>> block(tokens).shape
    (2, 196, 768)
    """

    def __init__(self, num_heads, mlp_dim, *, options=None, **kwargs):
        super().__init__(**kwargs)
        self.num_heads = num_heads
        self.mlp_dim = mlp_dim
        self.options = dict(options or {})
        self.rows = self._along("rows")
        self.columns = self._along("columns")

    def build(self, input_shape):
        self.rows.build(input_shape)
        self.columns.build(input_shape)

    def call(self, x, training=None):
        x = self.rows(x, training=training)  # (B, T, D)
        return self.columns(x, training=training)  # (B, T, D)

    def compute_output_shape(self, input_shape):
        return input_shape

    def _along(self, axis):
        return VariantBlock(
            self.num_heads,
            self.mlp_dim,
            attention=axis,
            **self.options,
            dtype=self.dtype_policy,
            name=axis,
        )
