"""Vision Transformers with other positions, attention or MLPs, and these parts.

Axes: B batch, R and C rows and columns of the grid of patches, P prefix
tokens (such as the class token), T = P + R * C tokens, D hidden dimension, H
heads, d head dimension, D = H * d, O = 2 * T - 1 offsets between two tokens.
In attention N query and M key tokens (N = M = T), in the MLP M its dimension.
"""

import itertools
import math
from collections.abc import Callable

import keras
from keras import ops

from keras_vit.io.checks import check_choice
from keras_vit.layers import (
    MLP,
    AddPositionEmbedding,
    SelfAttention,
    TransformerBlock,
)
from keras_vit.layers.common import (
    ConfiguredLayer,
    merge_heads,
    precise_softmax,
)
from keras_vit.layers.embedding import check_grid
from keras_vit.models import vit
from keras_vit.models.configured_model import (
    ConfiguredModel,
    Fields,
    block_fields,
)
from keras_vit.runtime.workarounds import backend_is
from keras_vit.variants.variant_config import VariantTransformerConfig

__all__ = [
    "AddPositionEmbedding2D",
    "AxialAttention",
    "AxialBlock",
    "LocalMLP",
    "RelativePositionEmbedding",
    "RelativeSelfAttention",
    "VariantBlock",
    "VariantTransformer",
    "by_key",
]

AXES = ("rows", "columns")
KERNEL_SIZE = 3


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
        qkv_bias: bool, see `SelfAttention`.
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
        num_heads: int,
        grid: tuple[int, int],
        *,
        axis: str = "rows",
        qkv_bias: bool = True,
        attention_dropout_rate: float = 0.0,
        flash_attention: bool | None = None,
        **kwargs,
    ):
        super().__init__(**kwargs)
        check_choice("axis", axis, AXES)
        self.num_heads = num_heads
        self.grid = tuple(grid)
        self.axis = axis
        self.qkv_bias = qkv_bias
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
        mlp_dim: int,
        grid: tuple[int, int],
        *,
        num_prefix_tokens: int = 0,
        dropout_rate: float = 0.0,
        activation: str | Callable | None = "gelu_tanh",
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


class GridEmbedding(ConfiguredLayer):
    """Learned positions of a grid of patches, with tokens in front of it."""

    def __init__(
        self,
        grid: tuple[int, int],
        *,
        num_prefix_tokens: int = 0,
        stddev: float = 0.02,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.grid = tuple(grid)
        self.num_prefix_tokens = num_prefix_tokens
        self.stddev = stddev

    def _table(self, name, shape):
        return self.add_weight(
            name=name,
            shape=shape,
            initializer=keras.initializers.RandomNormal(stddev=self.stddev),
        )


@keras.saving.register_keras_serializable("keras_vit")
class AddPositionEmbedding2D(GridEmbedding):
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
        self.columns = self._table("columns", (columns, dim // 2))
        self.rows = self._table("rows", (rows, dim // 2))

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


@keras.saving.register_keras_serializable("keras_vit")
class RelativePositionEmbedding(GridEmbedding):
    """The learned table that `RelativeSelfAttention` takes its keys from.

    Appendix D.4 of "An Image Is Worth 16x16 Words" (arXiv:2010.11929): an
    embedding for each offset p_q - p_k between the positions of a query and a
    key in the sequence, the class token at position 0 and the patches row by
    row after it. The paper does not say whether heads share them; here each
    head has its own d of the D numbers.

    It is a separate layer so that several blocks can share a table.

    Args:
        grid: (rows, columns) of the patches.
        num_prefix_tokens: int, tokens in front of the patches.
        stddev: float, standard deviation of the normal distribution that the
            table starts from.

    Input shape:
        (B, T, D), of which only the shape matters.

    Output shape:
        (O, D), from the offset T - 1 down to -(T - 1).

    Raises:
        ValueError: for a sequence whose length is not rows * columns +
            num_prefix_tokens.

    Example:

    >>> tokens = keras.random.normal((2, 197, 768))
    >>> RelativePositionEmbedding((14, 14), num_prefix_tokens=1)(tokens).shape
    (393, 768)
    """

    def build(self, input_shape):
        check_grid(input_shape, self.grid, self.num_prefix_tokens)
        shape = self.compute_output_shape(input_shape)  # (O, D)
        self.offsets = self._table("offsets", shape)

    def call(self, x):
        return ops.cast(self.offsets, x.dtype)  # (O, D)

    def compute_output_shape(self, input_shape):
        _, length, dim = input_shape
        return (2 * length - 1, dim)


@keras.saving.register_keras_serializable("keras_vit")
class RelativeSelfAttention(SelfAttention):
    """Multi-head self-attention with 1-D relative positions.

    Appendix D.4 of "An Image Is Worth 16x16 Words" (arXiv:2010.11929): the
    logits of a second attention, of the same queries with the embeddings of
    the offsets as keys, are added to those of the first before the softmax:
    `softmax((q k^T + q r^T) / sqrt(d)) v` in each head.

    Projections and their order are those of `SelfAttention`.

    Args:
        num_heads: int, H; it divides D.
        attention_dropout_rate: float in [0, 1), dropout on the softmax
            weights.
        flash_attention: None or False; no fused kernel adds logits that
            depend on the query, so the weights are computed explicitly.

    Input shape:
        (B, T, D) and the table of `RelativePositionEmbedding`, (O, D).

    Output shape:
        (B, T, D).

    Raises:
        ValueError: when built with flash_attention=True, or on a D that
            num_heads does not divide.

    Example:

    >>> tokens = keras.random.normal((2, 197, 768))
    >>> offsets = RelativePositionEmbedding((14, 14), num_prefix_tokens=1)
    >>> RelativeSelfAttention(num_heads=12)(tokens, offsets(tokens)).shape
    (2, 197, 768)
    """

    def build(self, x_shape, offsets_shape=None):
        if self.flash_attention:
            raise ValueError(
                "No fused kernel adds logits that depend on the query. "
                "Received: flash_attention=True. Set it to None."
            )
        super().build(x_shape)

    def call(self, x, offsets, training=None):
        query, key, value = ops.unstack(self._project(x), 3, axis=-2)
        weights = self._weights(query, key, offsets)  # (B, H, N, M)
        weights = self.dropout(weights, training=training)
        x = ops.einsum("bhnm,bmhd->bnhd", weights, value)  # (B, N, H, d)
        return self.out(merge_heads(x))  # (B, N, D)

    def attention_weights(self, x, offsets):
        """The softmax weights that `call` uses.

        Args:
            x: tokens of shape (B, T, D).
            offsets: table of shape (O, D).

        Returns:
            Tensor of shape (B, H, N, M); the last axis sums to 1.
        """
        query, key, _ = ops.unstack(self._project(x), 3, axis=-2)
        return self._weights(query, key, offsets)  # (B, H, N, M)

    def _weights(self, query, key, offsets):
        query = query * query.shape[-1] ** -0.5
        offsets = ops.reshape(offsets, (-1, *query.shape[2:]))  # (O, H, d)
        content = ops.einsum("bnhd,bmhd->bhnm", query, key)  # (B, H, N, M)
        position = ops.einsum("bnhd,ohd->bhno", query, offsets)  # (B, H, N, O)
        return precise_softmax(content + by_key(position))  # (B, H, N, M)


def by_key(x):
    """From a number per offset, (B, H, N, O), to one per key, (B, H, N, M).

    Entry (n, m) is that of offset n - m: row n of the result is the part of
    row n that begins at T - 1 - n. As in "Music Transformer"
    (arXiv:1809.04281), section 3.4.1, no index is gathered: with a column
    more, each row of the flat array starts one place earlier than the last.

    Example:

    >>> x = np.arange(6).reshape(1, 1, 2, 3)  # offsets 1, 0, -1
    >>> by_key(x)[0, 0]  # the rows [1, 2] and [3, 4]
    """
    heads, tokens, offsets = x.shape[1:]
    x = ops.pad(x, [(0, 0), (0, 0), (0, 0), (0, 1)])  # (B, H, N, O + 1)
    x = ops.reshape(x, (-1, heads, tokens * (offsets + 1)))
    x = x[..., tokens - 1 : -1]  # (B, H, N * O)
    x = ops.reshape(x, (-1, heads, tokens, offsets))  # (B, H, N, O)
    return x[..., :tokens]  # (B, H, N, M)


@keras.saving.register_keras_serializable("keras_vit")
class VariantTransformer(ConfiguredModel):
    """Vision Transformer with another part, as a functional Keras model.

    The position embeddings (Table 8) and the axial attention (appendix D.6)
    of "An Image Is Worth 16x16 Words" (arXiv:2010.11929), and an MLP with
    locality. With the default `VariantConfig` it computes what
    `VisionTransformer` does. Its blocks are the layers `block_0`, `block_1`,
    ..., its position embeddings `position_embedding` before the first block
    and `position_embedding_1`, ... where later blocks have their own.

    Args:
        config: a `VariantTransformerConfig`, the model and its variant.
        name: str, name of the model.
        dtype: dtype policy of all layers, for example "mixed_bfloat16".
        trainable: bool, whether training changes the weights.

    Input shape:
        (B, height, width, channels), see `VisionTransformer`.

    Output shape:
        (B, num_classes), see `VisionTransformer`.

    Example:

    >>> config = VariantTransformerConfig(
    ...     variant=VariantConfig(position="relative"), num_classes=10
    ... )
    >>> VariantTransformer(config).output_shape
    (None, 10)
    """

    config_class = VariantTransformerConfig
    config: VariantTransformerConfig

    @staticmethod
    def outputs_of(config, images, dtype=None):
        x = vit.tokens(config, images, dtype)  # (B, T, D)
        x = encoder(config, x, dtype)  # (B, T, D)
        return vit.classified(config, x, dtype)


def encoder(config: Fields, x, dtype=None):
    """As `vit.encoder`, with position embeddings before or in each block."""
    relative = config.variant.position == "relative"
    dropout = keras.layers.Dropout(
        config.dropout_rate, dtype=dtype, name="dropout"
    )
    for i, position in enumerate(position_layers(config, dtype)):
        x = position(x) if position and not relative else x
        if i == 0:
            x = vit.first_norm(config, dropout(x), dtype)
        offsets = [position(x)] if relative else []
        x = block(config, i, dtype)(x, *offsets)
    if config.norm_after_pooling:
        return x
    return vit.encoder_norm(config, dtype)(x)


def position_layers(config: Fields, dtype=None) -> list:
    """The position embedding of each block, a layer or None.

    Where blocks share their embedding, it is the same layer.
    """
    place, num_layers = config.variant.position_at, config.num_layers
    if place is None:
        return [None] * num_layers
    first = position_layer(config, "position_embedding", dtype)
    if place == "stem":
        return [first, *[None] * (num_layers - 1)]
    if place == "every_layer_shared":
        return [first] * num_layers
    return [
        first,
        *(
            position_layer(config, f"position_embedding_{i}", dtype)
            for i in range(1, num_layers)
        ),
    ]


def position_layer(config, name, dtype=None) -> keras.layers.Layer:
    """One position embedding of the kind that the variant has."""
    options = {
        "num_prefix_tokens": config.num_prefix_tokens,
        "dtype": dtype,
        "name": name,
    }
    if config.variant.position == "1d":
        options["kind"] = config.position_embedding
    return POSITIONS[config.variant.position](config.grid, **options)


POSITIONS = {
    "1d": AddPositionEmbedding,
    "2d": AddPositionEmbedding2D,
    "relative": RelativePositionEmbedding,
}


def block(config, i: int, dtype=None) -> keras.layers.Layer:
    """Block i of the encoder, counted from 0."""
    variant = config.variant
    is_relative = variant.position == "relative"
    fields = block_fields(config, i).but(
        **({"attention": "relative"} if is_relative else {}),
        mlp=variant.mlp,
        grid=config.grid,
        num_prefix_tokens=config.num_prefix_tokens,
    )
    names = VariantBlock.argument_kinds()
    options = {name: fields[name] for name in names if name in fields}
    named = {"dtype": dtype, "name": f"block_{i}"}
    if variant.attention == "axial":
        sizes = options.pop("num_heads"), options.pop("mlp_dim")
        return AxialBlock(*sizes, options=options, **named)
    return VariantBlock(**options, **named)


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
        num_heads: int,
        mlp_dim: int,
        *,
        attention: str = "full",
        mlp: str = "dense",
        grid: tuple[int, int] | None = None,
        num_prefix_tokens: int = 0,
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

    def __init__(self, num_heads: int, mlp_dim: int, *, options=None, **kwargs):
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
