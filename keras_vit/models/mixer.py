"""MLP-Mixer.

Axes: B batch, N tokens, D hidden dimension.
"""

import dataclasses

import keras

from keras_vit.io.checks import (
    check_choice,
    check_fraction,
    check_limits,
    check_size,
)
from keras_vit.layers import (
    Affine,
    MixerBlock,
    PatchEmbed,
    SpatialGatingBlock,
    TokenPooling,
)
from keras_vit.layers.embedding import check_divisible
from keras_vit.layers.mixer_block import MIXER_NORMALIZATIONS, MIXINGS
from keras_vit.models.configured_model import (
    ConfiguredModel,
    block_fields,
    head,
    preprocessing,
)

__all__ = ["Mixer", "MixerConfig"]

POOLINGS = ("mean", "max", "none")
BLOCKS = {
    "mlp": MixerBlock,
    "linear": MixerBlock,
    "spatial_gating": SpatialGatingBlock,
}


@dataclasses.dataclass(frozen=True)
class MixerConfig:
    """Everything that defines an MLP-Mixer; the defaults are B/16.

    With other options ResMLP (arXiv:2105.03404), gMLP (arXiv:2105.08050) and
    gMixer of timm.

    Args:
        image_size: int or (height, width) in pixels. The number of patches
            is built into the weights.
        channels: int, channels of an image.
        patch_size: int or (height, width) in pixels.
        hidden_dim: int, D, size of a token.
        num_layers: int, number of blocks.
        tokens_mlp_dim: int, hidden size of the MLPs across tokens; 0 with
            another mixing than "mlp".
        channels_mlp_dim: int, hidden size of the MLPs across channels; with
            mixing="spatial_gating" half of it is the gate.
        mixing: how tokens are mixed: by an "mlp"; by a "linear" layer, as in
            ResMLP; or by "spatial_gating" inside the MLP across channels, as
            in gMLP.
        gated_mlp: bool, whether the MLPs are `GatedMLP`s, as in gMixer.
        normalization: "layer_norm", or "affine" for `Affine` in its place, as
            in ResMLP.
        layer_scale_init: float that the factors of `LayerScale` on the
            residual branches start at; None for no `LayerScale`.
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
    mixing: str = "mlp"
    gated_mlp: bool = False
    normalization: str = "layer_norm"
    layer_scale_init: float | None = None
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
        check_choice("mixing", self.mixing, MIXINGS)
        check_choice("normalization", self.normalization, MIXER_NORMALIZATIONS)
        self._check_mixing()
        check_divisible(self.image_size, self.patch_size)
        check_fraction(self, "layer_norm_epsilon")
        check_limits(self, 1, "stochastic_depth_rate")

    def _check_mixing(self):
        if (self.mixing == "mlp") != (self.tokens_mlp_dim > 0):
            raise ValueError(
                "tokens_mlp_dim is the size of the MLPs across tokens that "
                'mixing="mlp" has, and 0 with another. Received: '
                f"mixing={self.mixing!r} and "
                f"tokens_mlp_dim={self.tokens_mlp_dim!r}."
            )
        if self.mixing != "spatial_gating":
            return
        others = {
            "gated_mlp": self.gated_mlp,
            "layer_scale_init": self.layer_scale_init is not None,
            "normalization": self.normalization != "layer_norm",
            "channels_mlp_dim": self.channels_mlp_dim % 2,
        }
        wrong = [x for x, is_wrong in others.items() if is_wrong]
        if wrong:
            raise ValueError(
                'mixing="spatial_gating" goes with LayerNorm, no gates of '
                "another kind, no LayerScale and an even channels_mlp_dim. "
                f"Received: {wrong[0]}={getattr(self, wrong[0])!r}."
            )

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
            x = BLOCKS[config.mixing].from_fields(
                block_fields(config, i), dtype=dtype, name=f"block_{i}"
            )(x)
        x = encoder_norm(config, dtype)(x)
        if config.pooling != "none":
            x = TokenPooling(config.pooling, dtype=dtype, name="pool")(x)
        return head(config, x, dtype)


def encoder_norm(config, dtype):
    """What comes after the last block."""
    if config.normalization == "affine":
        return Affine(dtype=dtype, name="encoder_norm")
    return keras.layers.LayerNormalization(
        epsilon=config.layer_norm_epsilon, dtype=dtype, name="encoder_norm"
    )
