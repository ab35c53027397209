"""The encoder block with other attention, or another MLP, than the plain one.

Axes: B batch, T tokens, D hidden dimension, O offsets between two tokens.
"""

import functools

import keras

from keras_vit.checks import check_choice
from keras_vit.layers import MLP, SelfAttention
from keras_vit.layers.configured_layer import ConfiguredLayer
from keras_vit.layers.kernels import TokenNormalization
from keras_vit.layers.transformer_block import stochastic_depth
from keras_vit.variants.axial_attention import AxialAttention
from keras_vit.variants.local_mlp import LocalMLP
from keras_vit.variants.relative_attention import RelativeSelfAttention
from keras_vit.workarounds import rematerialize

__all__ = ["AxialBlock", "VariantBlock"]

# What takes the block and its options, by the names that the block has them.
ATTENTIONS = {
    "full": lambda block, **options: SelfAttention(
        block.num_heads, flash_attention=block.flash_attention, **options
    ),
    "relative": lambda block, **options: RelativeSelfAttention(
        block.num_heads, **options
    ),
    **{
        axis: lambda block, **options: AxialAttention(
            block.num_heads,
            block.grid,
            axis=block.attention,
            flash_attention=block.flash_attention,
            **options,
        )
        for axis in ("rows", "columns")
    },
}
MLPS = {
    "dense": lambda block, **options: MLP(block.mlp_dim, **options),
    "local": lambda block, **options: LocalMLP(
        block.mlp_dim,
        block.grid,
        num_prefix_tokens=block.num_prefix_tokens,
        **options,
    ),
}
ON_THE_GRID = ("rows", "columns", "local")


@keras.saving.register_keras_serializable("keras_vit")
class VariantBlock(ConfiguredLayer):
    """Pre-norm encoder block: attention of a kind, then an MLP of a kind.

    Equations 2 and 3 of "An Image Is Worth 16x16 Words" (arXiv:2010.11929).

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
        dropout_rate: float in [0, 1), see `TransformerBlock`, as the rest.
        attention_dropout_rate: float in [0, 1).
        stochastic_depth_rate: float in [0, 1).
        layer_norm_epsilon: float.
        activation: of the MLP.
        flash_attention: None, True or False; "relative" has no fused kernel.
        rematerialize: bool.

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
        dropout_rate=0.0,
        attention_dropout_rate=0.0,
        stochastic_depth_rate=0.0,
        layer_norm_epsilon=1e-6,
        activation="gelu_tanh",
        flash_attention=None,
        rematerialize=False,
        **kwargs,
    ):
        super().__init__(**kwargs)
        check_choice("attention", attention, ATTENTIONS)
        check_choice("mlp", mlp, MLPS)
        needing = [x for x in (attention, mlp) if x in ON_THE_GRID]
        if needing and grid is None:
            raise ValueError(
                f"A block with {' and '.join(needing)} works on the grid of "
                "patches. Received: grid=None. Give grid=(rows, columns)."
            )
        self.num_heads = num_heads
        self.mlp_dim = mlp_dim
        self.attention = attention
        self.mlp = mlp
        self.grid = grid if grid is None else tuple(grid)
        self.num_prefix_tokens = num_prefix_tokens
        self.dropout_rate = dropout_rate
        self.attention_dropout_rate = attention_dropout_rate
        self.stochastic_depth_rate = stochastic_depth_rate
        self.layer_norm_epsilon = layer_norm_epsilon
        self.activation = activation
        self.flash_attention = flash_attention
        self.rematerialize = rematerialize
        self._make_attention()
        self._make_mlp()

    def _make_attention(self):
        policy = self.dtype_policy
        self.attention_norm = TokenNormalization(
            epsilon=self.layer_norm_epsilon, dtype=policy, name="attention_norm"
        )
        self.attend = ATTENTIONS[self.attention](
            self,
            attention_dropout_rate=self.attention_dropout_rate,
            dtype=policy,
            name="attention",
        )
        self.dropout = keras.layers.Dropout(
            self.dropout_rate, dtype=policy, name="dropout"
        )
        self.attention_depth = stochastic_depth(
            self.stochastic_depth_rate, dtype=policy, name="attention_depth"
        )

    def _make_mlp(self):
        policy = self.dtype_policy
        self.mlp_norm = TokenNormalization(
            epsilon=self.layer_norm_epsilon, dtype=policy, name="mlp_norm"
        )
        self.transform = MLPS[self.mlp](
            self,
            dropout_rate=self.dropout_rate,
            activation=self.activation,
            dtype=policy,
            name="mlp",
        )
        self.mlp_depth = stochastic_depth(
            self.stochastic_depth_rate, dtype=policy, name="mlp_depth"
        )

    def build(self, x_shape, offsets_shape=None):
        self.attention_norm.build(x_shape)
        self.attend.build(x_shape)
        self.mlp_norm.build(x_shape)
        self.transform.build(x_shape)

    def call(self, x, offsets=None, training=None):
        forward = functools.partial(self._forward, training=training)
        inputs = (x,) if offsets is None else (x, offsets)
        if self.rematerialize and training:
            return rematerialize(self, forward, inputs)
        return forward(inputs)

    def compute_output_shape(self, x_shape, offsets_shape=None):
        return x_shape

    def _forward(self, inputs, training):
        x, *offsets = inputs
        y = self.attend(self.attention_norm(x), *offsets, training=training)
        y = self.dropout(y, training=training)
        x = x + self.attention_depth(y, training=training)
        y = self.transform(self.mlp_norm(x), training=training)
        return x + self.mlp_depth(y, training=training)


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
