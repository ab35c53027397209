"""MLP-Mixer.

Axes: B batch, N tokens, D hidden dimension.
"""

import keras

from keras_vit.layers import (
    Affine,
    MixerBlock,
    PatchEmbed,
    SpatialGatingBlock,
    TokenPooling,
)
from keras_vit.models.configured_model import (
    ConfiguredModel,
    block_fields,
    head,
    preprocessing,
)
from keras_vit.models.options import MixerConfig

__all__ = ["Mixer"]

BLOCKS = {
    "mlp": MixerBlock,
    "linear": MixerBlock,
    "spatial_gating": SpatialGatingBlock,
}


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
