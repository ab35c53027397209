"""The Vision Transformer with other parts.

Axes: B batch, T tokens, D hidden dimension.
"""

import keras

from keras_vit.layers import AddPositionEmbedding
from keras_vit.models import vit
from keras_vit.models.base import ConfiguredModel, preprocessing
from keras_vit.models.resnet import hybrid_stem
from keras_vit.variants.axial_block import AxialBlock
from keras_vit.variants.position_2d import AddPositionEmbedding2D
from keras_vit.variants.relative_attention import RelativePositionEmbedding
from keras_vit.variants.variant_block import VariantBlock
from keras_vit.variants.variant_config import VariantTransformerConfig

__all__ = ["VariantTransformer"]


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
        config: a `VariantTransformerConfig`.
        name: str, name of the model.
        dtype: dtype policy of all layers, for example "mixed_bfloat16".
        trainable: bool.

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
        x = preprocessing(config, images, dtype)
        x = hybrid_stem(config, x, dtype)
        x = encoder(config, x, dtype)  # (B, T, D)
        return vit.classified(config, x, dtype)


def encoder(config: VariantTransformerConfig, x, dtype=None):
    """From an image or feature map to encoded tokens.

    Args:
        config: a `VariantTransformerConfig`.
        x: Keras tensor (B, height, width, channels).
        dtype: dtype policy of all layers.

    Returns:
        Keras tensor (B, T, D), layer-normalised unless that comes after
        pooling.
    """
    x = vit.tokens(config, x, dtype)
    positions = position_layers(config, dtype)
    x = blocks(config, positions, x, dtype)
    if config.norm_after_pooling:
        return x
    return vit.encoder_norm(config, dtype)(x)


def blocks(config, positions, x, dtype=None):
    """The blocks, each with the position embedding before or in it.

    Args:
        config: a `VariantTransformerConfig`.
        positions: what `position_layers` returns.
        x: Keras tensor (B, T, D).
        dtype: dtype policy of all layers.

    Returns:
        Keras tensor (B, T, D).
    """
    relative = config.variant.position == "relative"
    dropout = keras.layers.Dropout(
        config.dropout_rate, dtype=dtype, name="dropout"
    )
    for i, position in enumerate(positions):
        x = position(x) if position and not relative else x
        x = dropout(x) if i == 0 else x
        offsets = [position(x)] if relative else []
        x = block(config, i, dtype)(x, *offsets)
    return x


def position_layers(config: VariantTransformerConfig, dtype=None) -> list:
    """The layer with the position embedding of each block.

    Args:
        config: a `VariantTransformerConfig`.
        dtype: dtype policy of the layers.

    Returns:
        A layer or None for each block; where blocks share their embedding,
        the same layer.
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
    depth = max(config.num_layers - 1, 1)
    options = {
        "mlp": variant.mlp,
        "grid": config.grid,
        "num_prefix_tokens": config.num_prefix_tokens,
        "dropout_rate": config.dropout_rate,
        "attention_dropout_rate": config.attention_dropout_rate,
        "stochastic_depth_rate": config.stochastic_depth_rate * i / depth,
        "layer_norm_epsilon": config.layer_norm_epsilon,
        "activation": config.activation,
        "flash_attention": config.flash_attention,
        "rematerialize": config.rematerialize,
    }
    sizes = (config.num_heads, config.mlp_dim)
    named = {"dtype": dtype, "name": f"block_{i}"}
    if variant.attention == "axial":
        return AxialBlock(*sizes, options=options, **named)
    if variant.position == "relative":
        options["attention"] = "relative"
    return VariantBlock(*sizes, **options, **named)
