"""Vision Transformers with other positions, attention or MLPs.

Axes: B batch, T tokens, D hidden dimension.
"""

import keras

from keras_vit.layers import AddPositionEmbedding
from keras_vit.models import vit
from keras_vit.models.configured_model import (
    ConfiguredModel,
    Fields,
    block_fields,
)
from keras_vit.variants.position_2d import AddPositionEmbedding2D
from keras_vit.variants.relative_attention import RelativePositionEmbedding
from keras_vit.variants.variant_block import AxialBlock, VariantBlock
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
