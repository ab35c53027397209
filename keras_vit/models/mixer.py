"""MLP-Mixer.

Axes: B batch, N tokens, D hidden dimension.
"""

import dataclasses

import keras

from keras_vit.checks import check_choice, check_limits, check_size
from keras_vit.layers import MixerBlock, PatchEmbed, TokenPooling
from keras_vit.layers.embedding import check_divisible
from keras_vit.models.configured_model import (
    ConfiguredModel,
    block_fields,
    head,
    preprocessing,
)

__all__ = ["Mixer", "MixerConfig"]

POOLINGS = ("mean", "max", "none")


@dataclasses.dataclass(frozen=True)
class MixerConfig:
    """Everything that defines an MLP-Mixer; the defaults are B/16.

    Args:
        image_size: int or (height, width) in pixels. The number of patches
            is built into the weights.
        channels: int, channels of an image.
        patch_size: int or (height, width) in pixels.
        hidden_dim: int, D, size of a token.
        num_layers: int, number of blocks.
        tokens_mlp_dim: int, hidden size of the MLPs across tokens.
        channels_mlp_dim: int, hidden size of the MLPs across channels.
        pooling: "mean" or "max" of the tokens, or "none" for all tokens.
        num_classes: int, 0 for features instead of a classification layer.
        classifier_activation: activation of the classification layer, None
            for logits.
        head_bias: float that the bias of the classification layer starts at;
            -10 or -6.9 for sigmoid losses with many classes.
        stochastic_depth_rate: float, probability that a sample skips a
            residual branch of the last block in training; it grows linearly
            from 0 in the first block.
        layer_norm_epsilon: float, added to the variance.
        activation: of the MLPs: "gelu_tanh" as in the original code, "gelu"
            for the exact form as in timm, or any activation of Keras by name.
        include_preprocessing: bool; True takes images in [0, 255].

    Raises:
        ValueError: for values that do not fit together, with what would.
    """

    image_size: tuple = (224, 224)
    channels: int = 3
    patch_size: tuple = (16, 16)
    hidden_dim: int = 768
    num_layers: int = 12
    tokens_mlp_dim: int = 384
    channels_mlp_dim: int = 3072
    pooling: str = "mean"
    num_classes: int = 1000
    classifier_activation: str | None = None
    head_bias: float = 0.0
    stochastic_depth_rate: float = 0.0
    layer_norm_epsilon: float = 1e-6
    activation: str = "gelu_tanh"
    include_preprocessing: bool = False

    def __post_init__(self):
        for name in ("image_size", "patch_size"):
            size = check_size(name, getattr(self, name))
            object.__setattr__(self, name, size)
        check_choice("pooling", self.pooling, POOLINGS)
        check_divisible(self.image_size, self.patch_size)
        check_limits(self, 1, "stochastic_depth_rate")

    @property
    def grid(self) -> tuple:
        """(rows, columns) of the patches."""
        height, width = self.image_size
        return height // self.patch_size[0], width // self.patch_size[1]


@keras.saving.register_keras_serializable("keras_vit")
class Mixer(ConfiguredModel):
    """MLP-Mixer as a functional Keras model.

    "MLP-Mixer: An all-MLP Architecture for Vision" (arXiv:2105.01601).

    Args:
        config: a `MixerConfig`, which defines the whole model.
        name: str, name of the model.
        dtype: dtype policy of all layers, for example "mixed_bfloat16".
        trainable: bool, whether training changes the weights.

    Input shape:
        (B, height, width, channels), scaled to [-1, 1], or to [0, 255] with
        `include_preprocessing`.

    Output shape:
        (B, num_classes), or (B, D), or (B, N, D) with pooling "none".

    Example:

    >>> model = Mixer(MixerConfig(num_classes=10))
    >>> model.output_shape
    (None, 10)
    """

    config_class = MixerConfig
    config: MixerConfig

    @staticmethod
    def outputs_of(config, images, dtype=None):
        x = preprocessing(config, images, dtype)
        x = PatchEmbed(
            config.hidden_dim,
            config.patch_size,
            dtype=dtype,
            name="patch_embed",
        )(x)
        for i in range(config.num_layers):
            x = MixerBlock.from_fields(
                block_fields(config, i), dtype=dtype, name=f"block_{i}"
            )(x)
        x = keras.layers.LayerNormalization(
            epsilon=config.layer_norm_epsilon, dtype=dtype, name="encoder_norm"
        )(x)
        if config.pooling != "none":
            x = TokenPooling(config.pooling, dtype=dtype, name="pool")(x)
        return head(config, x, dtype)
