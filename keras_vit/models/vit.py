"""The Vision Transformer and its hybrids.

Axes: B batch, T tokens, D hidden dimension.
"""

import keras

from keras_vit.layers import (
    AddPositionEmbedding,
    AttentionPooling,
    ClassToken,
    PatchEmbed,
    TokenPooling,
    TransformerBlock,
)
from keras_vit.layers.base import resolved_policy
from keras_vit.models.base import ConfiguredModel, head, preprocessing
from keras_vit.models.resnet import hybrid_stem
from keras_vit.models.vit_config import ViTConfig

__all__ = ["VisionTransformer"]


@keras.saving.register_keras_serializable("keras_vit")
class VisionTransformer(ConfiguredModel):
    """Vision Transformer as a functional Keras model.

    Equations 1 to 4 of "An Image Is Worth 16x16 Words" (arXiv:2010.11929).
    Its blocks are the layers `block_0`, `block_1`, ...; the output of each is
    `model.get_layer("block_0").output`.

    Args:
        config: a `ViTConfig`.
        name: str, name of the model.
        dtype: dtype policy of all layers, for example "mixed_bfloat16".
        trainable: bool.

    Input shape:
        (B, height, width, channels), scaled to [-1, 1], or to [0, 255] with
        `include_preprocessing`.

    Output shape:
        (B, num_classes); without classes (B, D), or (B, representation_dim);
        with pooling "none" (B, T, D), or (B, T, num_classes).

    Example:

    >>> config = ViTConfig(image_size=(384, 256), num_classes=10)
    >>> model = VisionTransformer(config)
    >>> model.output_shape
    (None, 10)
    >>> block = model.get_layer("block_5").output
    >>> features = keras.Model(model.input, block)
    """

    config_class = ViTConfig
    config: ViTConfig

    @staticmethod
    def outputs_of(config, images, dtype=None):
        x = preprocessing(config, images, dtype)
        x = hybrid_stem(config, x, dtype)
        x = encoder(config, x, dtype)  # (B, T, D)
        return classified(config, x, dtype)


def encoder(config: ViTConfig, x, dtype=None):
    """From an image or feature map to encoded tokens (equations 1 to 3).

    Args:
        config: a `ViTConfig`.
        x: Keras tensor (B, height, width, channels).
        dtype: dtype policy of all layers.

    Returns:
        Keras tensor (B, T, D), layer-normalised unless that comes after
        pooling.
    """
    x = tokens(config, x, dtype)
    x = AddPositionEmbedding(
        config.grid,
        num_prefix_tokens=config.num_prefix_tokens,
        kind=config.position_embedding,
        dtype=dtype,
        name="position_embedding",
    )(x)
    x = keras.layers.Dropout(config.dropout_rate, dtype=dtype, name="dropout")(
        x
    )
    for i in range(config.num_layers):
        x = block(config, i, dtype)(x)
    if config.norm_after_pooling:
        return x
    return encoder_norm(config, dtype)(x)


def tokens(config: ViTConfig, x, dtype=None):
    """From an image or feature map to tokens that do not know their place.

    Args:
        config: a `ViTConfig`.
        x: Keras tensor (B, height, width, channels).
        dtype: dtype policy of all layers.

    Returns:
        Keras tensor (B, T, D).
    """
    x = PatchEmbed(
        config.hidden_dim, config.patch_size, dtype=dtype, name="patch_embed"
    )(x)
    if not config.class_token:
        return x
    return ClassToken(
        config.num_prefix_tokens, dtype=dtype, name="class_token"
    )(x)


def encoder_norm(config: ViTConfig, dtype=None) -> keras.layers.Layer:
    """The layer normalisation after the last block (equation 4)."""
    return keras.layers.LayerNormalization(
        epsilon=config.layer_norm_epsilon, dtype=dtype, name="encoder_norm"
    )


def block(config: ViTConfig, i: int, dtype=None) -> TransformerBlock:
    """Block i of the encoder, counted from 0."""
    depth = max(config.num_layers - 1, 1)
    return TransformerBlock(
        config.num_heads,
        config.mlp_dim,
        dropout_rate=config.dropout_rate,
        attention_dropout_rate=config.attention_dropout_rate,
        stochastic_depth_rate=config.stochastic_depth_rate * i / depth,
        layer_norm_epsilon=config.layer_norm_epsilon,
        activation=config.activation,
        flash_attention=config.flash_attention,
        rematerialize=config.rematerialize,
        dtype=dtype,
        name=f"block_{i}",
    )


def pooled(config: ViTConfig, x, dtype=None):
    """From encoded tokens to what the head sees.

    Args:
        config: a `ViTConfig`.
        x: Keras tensor (B, T, D).
        dtype: dtype policy.

    Returns:
        Keras tensor (B, D), or (B, T, D) with pooling "none".
    """
    if config.pooling == "none":
        return x
    if config.pooling == "map":
        return AttentionPooling(
            config.num_heads,
            config.mlp_dim,
            layer_norm_epsilon=config.layer_norm_epsilon,
            activation=config.activation,
            dtype=dtype,
            name="pool",
        )(x)
    return TokenPooling(
        config.pooling,
        num_prefix_tokens=config.num_prefix_tokens,
        dtype=dtype,
        name="pool",
    )(x)


def classified(config: ViTConfig, x, dtype=None):
    """From encoded tokens to the output of the model (equation 4).

    Args:
        config: a `ViTConfig`.
        x: Keras tensor (B, T, D).
        dtype: dtype policy.

    Returns:
        Keras tensor, see the output shape of `VisionTransformer`.
    """
    x = pooled(config, x, dtype)
    if config.norm_after_pooling:
        x = encoder_norm(config, dtype)(x)
    if config.representation_dim:
        x = keras.layers.Dense(
            config.representation_dim,
            activation="tanh",
            kernel_initializer="lecun_normal",
            bias_initializer="zeros",
            dtype=resolved_policy(
                keras.dtype_policies.get(dtype), "pre_logits"
            ),
            name="pre_logits",
        )(x)
    return head(config, x, dtype)
