"""Vision Transformers with other positions, attention or MLPs.

Axes: B batch, T tokens, D hidden dimension, O offsets between two tokens.
"""

import keras

from keras_vit.io.checks import check_choice
from keras_vit.layers import (
    MLP,
    AddPositionEmbedding,
    SelfAttention,
    TransformerBlock,
)
from keras_vit.layers.configured_layer import ConfiguredLayer
from keras_vit.models import vit
from keras_vit.models.configured_model import (
    ConfiguredModel,
    Fields,
    block_fields,
)
from keras_vit.variants.axial_attention import AxialAttention
from keras_vit.variants.local_mlp import LocalMLP
from keras_vit.variants.position_2d import AddPositionEmbedding2D
from keras_vit.variants.relative_attention import (
    RelativePositionEmbedding,
    RelativeSelfAttention,
)
from keras_vit.variants.variant_config import VariantTransformerConfig

__all__ = [
    "AxialBlock",
    "VariantBlock",
    "VariantTransformer",
]


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
    names = VariantBlock.argument_names()
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
