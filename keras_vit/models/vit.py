"""The Vision Transformer: its config and its model.

Axes: B batch, T tokens, D hidden dimension.
"""

import dataclasses

import keras

from keras_vit.checks import (
    check_at_least,
    check_choice,
    check_limits,
    check_size,
)
from keras_vit.layers import (
    AddPositionEmbedding,
    AttentionPooling,
    ClassToken,
    PatchEmbed,
    TokenPooling,
    TransformerBlock,
)
from keras_vit.layers.attention import check_heads
from keras_vit.layers.configured_layer import resolved_policy
from keras_vit.layers.embedding import check_divisible
from keras_vit.models.configured_model import (
    ConfiguredModel,
    block_fields,
    head,
    preprocessing,
)
from keras_vit.models.resnet import check_width, hybrid_stem, stem_grid

__all__ = ["ViTConfig", "VisionTransformer"]

# Those that read the class token, and the others.
TOKEN_POOLINGS = ("token", "prefix", "prefix_mean", "token_and_mean")
POOLINGS = (*TOKEN_POOLINGS, "mean", "max", "map", "none")


@dataclasses.dataclass(frozen=True)
class ViTConfig:
    """Everything that defines a Vision Transformer; the defaults are B/16.

    Args:
        image_size: int or (height, width) in pixels.
        channels: int, channels of an image.
        patch_size: int or (height, width), in pixels, or in cells of the
            feature map for a hybrid.
        hidden_dim: int, D, size of a token.
        num_layers: int, number of blocks.
        mlp_dim: int, hidden size of the MLPs.
        num_heads: int, attention heads.
        pooling: what the head sees: the class "token", the "mean" or "max"
            of the patch tokens, attention pooling ("map"), class and
            distillation token one after the other ("prefix"), the mean of all
            tokens before the patches ("prefix_mean"), class token and mean of
            the patch tokens one after the other ("token_and_mean", as
            DINOv2's linear head), or all tokens ("none").
        class_token: bool, whether there is a class token.
        distillation_token: bool, whether DeiT's distillation token follows
            the class token.
        register_tokens: int, learned tokens after these ("Vision Transformers
            Need Registers", arXiv:2309.16588), which "prefix_mean" alone reads.
        position_embedding: "learned", or "sincos2d" for fixed sines and
            cosines.
        num_classes: int, 0 for features instead of a classification layer.
        classifier_activation: activation of the classification layer, None
            for logits.
        representation_dim: int, size of a tanh layer before the
            classification layer (the paper's pre-training head), 0 for none.
        head_bias: float that the bias of the classification layer starts at;
            -10 or -6.9 for sigmoid losses with many classes. None for no bias,
            as CLIP's projection.
        dropout_rate: float, after the position embedding, the attention and
            each dense layer of the MLPs.
        attention_dropout_rate: float, on the softmax weights.
        stochastic_depth_rate: float, probability that a sample skips a
            residual branch of the last block in training; it grows linearly
            from 0 in the first block.
        layer_norm_epsilon: float, added to the variance.
        layer_scale_init: float that the factors of `LayerScale` on the
            residual branches start at; None for no `LayerScale`.
        patch_bias: bool, whether the projection of the patches has a bias.
        qkv_bias: bool, whether query, key and value have biases.
        norm_before_blocks: bool; True normalises the tokens before the first
            block, as CLIP does (arXiv:2103.00020).
        norm_after_pooling: bool; True normalises the pooled token instead of
            all tokens before pooling, as timm's models with average pooling.
        activation: of the MLPs: "gelu_tanh" as in the original code, "gelu"
            for the exact form as in Hugging Face and timm, "quick_gelu" as
            in CLIP, or any activation of Keras by name.
        resnet_units: None, or for a hybrid the number of bottleneck units in
            each stage of its ResNet; () is the root block alone.
        resnet_width: int, channels of the ResNet's root block.
        resnet_standardization: where the epsilon of weight standardisation
            goes, see `StandardizedConv2D`.
        resnet_standardization_epsilon: float, that epsilon.
        resnet_group_norm_epsilon: float, added to the variance of a group.
        include_preprocessing: bool; True takes images in [0, 255].
        pixel_mean: None, or the mean of each channel, 1 for white, that
            `include_preprocessing` subtracts: (0.485, 0.456, 0.406) for most
            models trained on ImageNet with torch. None scales to [-1, 1].
        pixel_std: None, or the deviation of each channel that it divides by.
        flash_attention: None takes a fused attention kernel where it can be
            used, True demands one, False forbids it.
        rematerialize: bool, whether blocks compute their activations again in
            the backward pass to save memory.

    Raises:
        ValueError: for values that do not fit together, with what would.
    """

    image_size: tuple = (224, 224)
    channels: int = 3
    patch_size: tuple = (16, 16)
    hidden_dim: int = 768
    num_layers: int = 12
    mlp_dim: int = 3072
    num_heads: int = 12
    pooling: str = "token"
    class_token: bool = True
    distillation_token: bool = False
    register_tokens: int = 0
    position_embedding: str = "learned"
    num_classes: int = 1000
    classifier_activation: str | None = None
    representation_dim: int = 0
    head_bias: float | None = 0.0
    dropout_rate: float = 0.0
    attention_dropout_rate: float = 0.0
    stochastic_depth_rate: float = 0.0
    layer_norm_epsilon: float = 1e-6
    layer_scale_init: float | None = None
    patch_bias: bool = True
    qkv_bias: bool = True
    norm_before_blocks: bool = False
    norm_after_pooling: bool = False
    activation: str = "gelu_tanh"
    resnet_units: tuple | None = None
    resnet_width: int = 64
    resnet_standardization: str = "deviation"
    resnet_standardization_epsilon: float = 1e-5
    resnet_group_norm_epsilon: float = 1e-6
    include_preprocessing: bool = False
    pixel_mean: tuple | None = None
    pixel_std: tuple | None = None
    flash_attention: bool | None = None
    rematerialize: bool = False

    def __post_init__(self):
        fields: dict[str, tuple | None] = {
            "image_size": check_size("image_size", self.image_size),
            "patch_size": check_size("patch_size", self.patch_size),
        }
        if self.resnet_units is not None:
            fields["resnet_units"] = tuple(self.resnet_units)
        for name in ("pixel_mean", "pixel_std"):
            fields[name] = self._checked_pixels(name)
        for name, value in fields.items():
            object.__setattr__(self, name, value)
        check_choice("pooling", self.pooling, POOLINGS)
        needs_token = self.pooling in TOKEN_POOLINGS
        if not self.class_token and (needs_token or self.distillation_token):
            raise ValueError(
                f"pooling={self.pooling!r} with distillation_token="
                f"{self.distillation_token} needs the class token. Received: "
                "class_token=False. Use class_token=True or another pooling, "
                'such as pooling="mean".'
            )
        if self.register_tokens and self.pooling == "prefix":
            raise ValueError(
                f"pooling={self.pooling!r} reads the class and distillation "
                "tokens. Received: register_tokens="
                f"{self.register_tokens}. Use another pooling."
            )
        check_heads(self.hidden_dim, self.num_heads)
        if self.resnet_units is None:
            check_divisible(self.image_size, self.patch_size)
        else:
            check_width(self.resnet_width)
            check_divisible(
                self._patched_size,
                self.patch_size,
                f"The ResNet's feature maps (for images of {self.image_size})",
                "cells",
            )
        check_at_least(self, 0, "register_tokens")
        check_limits(
            self,
            1,
            "dropout_rate",
            "attention_dropout_rate",
            "stochastic_depth_rate",
        )

    def _checked_pixels(self, name):
        """A number per channel, or None for both."""
        if self.pixel_mean is None and self.pixel_std is None:
            return None
        values = getattr(self, name) or ()
        wrong = len(values) != self.channels
        if wrong or name == "pixel_std" and min(values) <= 0:
            raise ValueError(
                "pixel_mean and pixel_std must have a number for each of "
                f"{self.channels} channels, and deviations above 0, or both "
                f"be None. Received: {name}={values!r}."
            )
        return tuple(map(float, values))

    @property
    def grid(self) -> tuple:
        """(rows, columns) of the patches."""
        height, width = self._patched_size
        return height // self.patch_size[0], width // self.patch_size[1]

    @property
    def num_prefix_tokens(self) -> int:
        """Tokens in front of the patches."""
        tokens = int(self.class_token) + int(self.distillation_token)
        return tokens + self.register_tokens

    @property
    def _patched_size(self):
        if self.resnet_units is None:
            return self.image_size
        return stem_grid(self.image_size, self.resnet_units)


@keras.saving.register_keras_serializable("keras_vit")
class VisionTransformer(ConfiguredModel):
    """Vision Transformer as a functional Keras model.

    Equations 1 to 4 of "An Image Is Worth 16x16 Words" (arXiv:2010.11929).
    Its blocks are the layers `block_0`, `block_1`, ...; the output of each is
    `model.get_layer("block_0").output`.

    Args:
        config: a `ViTConfig`, which defines the whole model.
        name: str, name of the model.
        dtype: dtype policy of all layers, for example "mixed_bfloat16".
        trainable: bool, whether training changes the weights.

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
        x = tokens(config, images, dtype)  # (B, T, D)
        x = encoder(config, x, dtype)  # (B, T, D)
        return classified(config, x, dtype)


def tokens(config: ViTConfig, images, dtype=None):
    """From images to tokens (B, T, D) without position embedding."""
    x = preprocessing(config, images, dtype)
    if config.resnet_units is not None:
        x = hybrid_stem(config, x, dtype)
    x = PatchEmbed.from_fields(vars(config), dtype=dtype, name="patch_embed")(x)
    if not config.num_prefix_tokens:
        return x
    return ClassToken(
        config.num_prefix_tokens, dtype=dtype, name="class_token"
    )(x)


def encoder(config: ViTConfig, x, dtype=None):
    """From tokens (B, T, D) to encoded tokens (equations 1 to 3).

    They are layer-normalised unless that comes after pooling.
    """
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
    x = first_norm(config, x, dtype)
    for i in range(config.num_layers):
        x = block(config, i, dtype)(x)
    if config.norm_after_pooling:
        return x
    return encoder_norm(config, dtype)(x)


def first_norm(config: ViTConfig, x, dtype=None):
    """Normalises the tokens before the first block, where the config says."""
    if not config.norm_before_blocks:
        return x
    return encoder_norm(config, dtype, "first_norm")(x)


def encoder_norm(
    config: ViTConfig, dtype=None, name: str = "encoder_norm"
) -> keras.layers.Layer:
    """The layer normalisation after the last block (equation 4)."""
    return keras.layers.LayerNormalization(
        epsilon=config.layer_norm_epsilon, dtype=dtype, name=name
    )


def block(config: ViTConfig, i: int, dtype=None) -> TransformerBlock:
    """Block i of the encoder, counted from 0."""
    return TransformerBlock.from_fields(
        block_fields(config, i), dtype=dtype, name=f"block_{i}"
    )


def pooled(config: ViTConfig, x, dtype=None):
    """From encoded tokens to what the head sees, (B, D) if it is pooled."""
    if config.pooling == "none":
        return x
    if config.pooling == "map":
        return AttentionPooling.from_fields(
            vars(config),
            num_prefix_tokens=config.num_prefix_tokens,
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
    """From encoded tokens to the output of the model (equation 4)."""
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
