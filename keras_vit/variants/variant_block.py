"""The encoder block with other attention, or another MLP, than the plain one.

Axes: B batch, T tokens, D hidden dimension, O offsets between two tokens.
"""

import keras

from keras_vit.io.checks import check_choice
from keras_vit.layers import MLP, SelfAttention, TransformerBlock
from keras_vit.layers.configured_layer import ConfiguredLayer
from keras_vit.variants.axial_attention import AxialAttention
from keras_vit.variants.local_mlp import LocalMLP
from keras_vit.variants.relative_attention import RelativeSelfAttention

__all__ = ["AxialBlock", "VariantBlock"]

ATTENTIONS = {
    "full": (SelfAttention, {}),
    "relative": (RelativeSelfAttention, {}),
    "rows": (AxialAttention, {"axis": "rows"}),
    "columns": (AxialAttention, {"axis": "columns"}),
}
MLPS = {"dense": MLP, "local": LocalMLP}
ON_THE_GRID = ("rows", "columns", "local")


@keras.saving.register_keras_serializable("keras_vit")
class VariantBlock(TransformerBlock):
    """A `TransformerBlock` with attention of a kind and an MLP of a kind.

    Args:
        num_heads: int, attention heads; it divides D.
        mlp_dim: int, hidden size of the MLP.
        attention: "full" (`SelfAttention`), "relative"
            (`RelativeSelfAttention`), or "rows" or "columns"
            (`AxialAttention`).
        mlp: "dense" (`MLP`) or "local" (`LocalMLP`).
        grid: (rows, columns) of the patches, where the attention or the MLP
            is of the grid.
        num_prefix_tokens: int, tokens in front of the patches.
        **options: the other arguments of `TransformerBlock`; "relative" has
            no fused kernel.

    Input shape:
        (B, T, D); with "relative" attention also the table of
        `RelativePositionEmbedding`, (O, D).

    Output shape:
        (B, T, D).

    Raises:
        ValueError: for an unknown attention or MLP, one without the grid that
            it needs, or when built on a D that num_heads does not divide.

    Example:

    >>> tokens = keras.random.normal((2, 197, 768))
    >>> offsets = RelativePositionEmbedding((14, 14), num_prefix_tokens=1)
    >>> block = VariantBlock(12, 3072, attention="relative")
    >>> block(tokens, offsets(tokens)).shape
    (2, 197, 768)
    """

    def __init__(
        self,
        num_heads,
        mlp_dim,
        *,
        attention="full",
        mlp="dense",
        grid=None,
        num_prefix_tokens=0,
        **options,
    ):
        check_choice("attention", attention, ATTENTIONS)
        check_choice("mlp", mlp, MLPS)
        needing = [x for x in (attention, mlp) if x in ON_THE_GRID]
        if needing and grid is None:
            raise ValueError(
                f"A block with {' and '.join(needing)} works on the grid of "
                "patches. Received: grid=None. Give grid=(rows, columns)."
            )
        fields = {
            "num_heads": num_heads,
            "mlp_dim": mlp_dim,
            "grid": grid,
            "num_prefix_tokens": num_prefix_tokens,
            **options,
        }
        dtype = options.get("dtype")
        make_attention, axis = ATTENTIONS[attention]
        super().__init__(
            num_heads,
            mlp_dim,
            attention=make_attention.from_fields(
                fields, **axis, dtype=dtype, name="attention"
            ),
            mlp=MLPS[mlp].from_fields(fields, dtype=dtype, name="mlp"),
            **options,
        )
        self.grid = grid if grid is None else tuple(grid)
        self.num_prefix_tokens = num_prefix_tokens
        self._kinds = (attention, mlp)

    def get_config(self):
        attention, mlp = self._kinds
        return super().get_config() | {"attention": attention, "mlp": mlp}


@keras.saving.register_keras_serializable("keras_vit")
class AxialBlock(ConfiguredLayer):
    """Attention within rows and an MLP, then within columns and an MLP.

    The axial transformer block of appendix D.6 of "An Image Is Worth 16x16
    Words" (arXiv:2010.11929), in place of one block of the plain model.

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

    def _along(self, axis):
        return VariantBlock(
            self.num_heads,
            self.mlp_dim,
            attention=axis,
            **self.options,
            dtype=self.dtype_policy,
            name=axis,
        )
