"""Vision Transformers with other positions, attention or MLPs.

Axes: B batch, T tokens, D hidden dimension.
"""

import dataclasses

import keras

from keras_vit.io.checks import check_choice
from keras_vit.layers import AddPositionEmbedding
from keras_vit.models import ViTConfig, vit
from keras_vit.models.configured_model import (
    ConfiguredModel,
    Fields,
    block_fields,
)
from keras_vit.models.options import changed, options_of
from keras_vit.variants.position_2d import AddPositionEmbedding2D
from keras_vit.variants.relative_attention import RelativePositionEmbedding
from keras_vit.variants.variant_block import AxialBlock, VariantBlock

__all__ = ["VariantConfig", "VariantTransformer", "VariantTransformerConfig"]

# Where the position embedding can be, by kind; the first is the default.
PLACES = {
    "none": (None,),
    "1d": ("stem", "every_layer", "every_layer_shared"),
    "2d": ("stem", "every_layer", "every_layer_shared"),
    "relative": ("every_layer", "every_layer_shared"),
}
CHOICES = {
    "position": tuple(PLACES),
    "attention": ("full", "axial"),
    "mlp": ("dense", "local"),
}


@dataclasses.dataclass(frozen=True)
class VariantConfig:
    """A variant of the Vision Transformer; the default is the plain model.

    The comparisons of appendix D of "An Image Is Worth 16x16 Words"
    (arXiv:2010.11929), and an MLP with locality.
    """

    position: str = "1d"
    """Position embedding (Table 8): "none"; "1d", that of the plain model;
    "2d", a table of columns and one of rows, concatenated; "relative", a key
    for each offset between two tokens, which adds to the attention."""

    position_at: str | None = None
    """Where it is added: at the "stem", which is the input of the first
    block, to the input of "every_layer", a table each, or of every layer the
    same ("every_layer_shared"). null is the stem; of relative positions,
    which act in the attention, every layer."""

    attention: str = "full"
    """"full", or "axial": attention within each row and an MLP, then within
    each column and another MLP (appendix D.6); without a class token."""

    mlp: str = "dense"
    """"dense", or "local": a depth-wise convolution of 3x3 patches between
    the dense layers (LocalViT, arXiv:2104.05707), which the class token
    skips."""

    def __post_init__(self):
        for name, choices in CHOICES.items():
            check_choice(name, getattr(self, name), choices)
        places = PLACES[self.position]
        if self.position_at not in (None, *places):
            raise ValueError(
                f'A position embedding of kind "{self.position}" cannot be '
                f"at {self.position_at!r}. Expected position_at to be one of "
                f"{', '.join(map(repr, dict.fromkeys([*places, None])))}."
            )
        # One record of one model: null and what it means are equal.
        object.__setattr__(self, "position_at", self.position_at or places[0])


@dataclasses.dataclass(frozen=True)
class VariantTransformerConfig(ViTConfig):
    """Everything that defines a variant: a `ViTConfig` with one field more.

    It can be used wherever a `ViTConfig` can.

    Args:
        variant: a `VariantConfig`, or a dictionary of its fields.

    Raises:
        ValueError: for values that do not fit together, with what would.

    Example:

    >>> config = VariantTransformerConfig(
    ...     variant=VariantConfig(position="2d"), num_classes=10
    ... )
    >>> config.variant.position_at
    'stem'
    """

    variant: VariantConfig = VariantConfig()

    def __post_init__(self):
        super().__post_init__()
        variant = self.variant
        if isinstance(variant, dict):
            variant = VariantConfig(**variant)
            object.__setattr__(self, "variant", variant)
        if not isinstance(variant, VariantConfig):
            raise ValueError(
                f"variant must be a VariantConfig. Received: {variant!r}."
            )
        self._check_position()
        self._check_attention()
        self._check_blocks()

    def _check_blocks(self):
        rows = options_of(self)
        found = {x: y for x, y in changed(self).items() if x in rows}
        shown = {x: y for x, y in found.items() if rows[x].later}
        if shown:
            raise ValueError(
                "The variants are those of the paper, with its blocks. "
                f"Received: {shown}. Leave these out, or use a ViTConfig."
            )

    def _check_attention(self):
        if self.variant.attention != "axial":
            return
        if self.num_prefix_tokens:
            raise ValueError(
                "Axial attention is within the rows and the columns of the "
                "patches, and a class token is in none of them. Received: "
                f"class_token={self.class_token}, pooling={self.pooling!r}. "
                'Set pooling to "mean", "max" or "map", and class_token to '
                "False."
            )
        if self.variant.position == "relative":
            raise ValueError(
                "Relative positions are offsets between any two tokens, which "
                'axial attention does not compare. Received: attention="axial"'
                ' with position="relative". Choose another of them.'
            )

    def _check_position(self):
        position = self.variant.position
        if position != "1d" and self.position_embedding != "learned":
            raise ValueError(
                f"A {self.position_embedding!r} table takes the place of the "
                f'learned one of position="1d". Received: position='
                f'{position!r}. Set position_embedding to "learned".'
            )
        if position == "2d" and self.hidden_dim % 2:
            raise ValueError(
                "Half of a 2-D position embedding is the column's, half the "
                f"row's. Received: hidden_dim={self.hidden_dim}. Choose an "
                "even one."
            )
        if position == "relative" and self.flash_attention:
            raise ValueError(
                "Relative positions add logits that depend on the query, "
                "which no fused kernel does. Received: flash_attention=True "
                'with position="relative". Set flash_attention to None.'
            )


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
