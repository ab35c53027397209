"""The layers that the models of keras_vit are made of.

Each is a Keras layer that any model can use.
"""

from typing import TYPE_CHECKING

from keras_vit.runtime.environment import lazy_names

__all__ = [
    "AddPositionEmbedding",
    "Affine",
    "AttentionPooling",
    "ClassAttention",
    "ClassAttentionBlock",
    "ClassToken",
    "DecomposedPositionBias",
    "EvolvedNormalization",
    "GatedMLP",
    "LayerScale",
    "MLP",
    "MixerBlock",
    "Neck",
    "ParallelBlock",
    "PatchEmbed",
    "RelativePositionBias",
    "RotaryEmbedding",
    "SelfAttention",
    "SpatialGatingBlock",
    "SpatialGatingUnit",
    "StandardizedConv2D",
    "TokenPooling",
    "TokenRMSNormalization",
    "TransformerBlock",
    "WindowAttention",
]

if TYPE_CHECKING:
    from keras_vit.layers.attention import SelfAttention
    from keras_vit.layers.common import TokenRMSNormalization
    from keras_vit.layers.embedding import (
        AddPositionEmbedding,
        ClassToken,
        PatchEmbed,
        RelativePositionBias,
        RotaryEmbedding,
    )
    from keras_vit.layers.mixer_block import (
        Affine,
        MixerBlock,
        SpatialGatingBlock,
        SpatialGatingUnit,
    )
    from keras_vit.layers.pooling import (
        AttentionPooling,
        ClassAttention,
        ClassAttentionBlock,
        TokenPooling,
    )
    from keras_vit.layers.standardized_conv import (
        EvolvedNormalization,
        StandardizedConv2D,
    )
    from keras_vit.layers.transformer_block import (
        MLP,
        GatedMLP,
        LayerScale,
        ParallelBlock,
        TransformerBlock,
    )
    from keras_vit.layers.window_attention import (
        DecomposedPositionBias,
        Neck,
        WindowAttention,
    )
else:  # They need Keras.
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "keras_vit.layers.attention": ("SelfAttention",),
            "keras_vit.layers.embedding": (
                "AddPositionEmbedding",
                "ClassToken",
                "PatchEmbed",
                "RelativePositionBias",
                "RotaryEmbedding",
            ),
            "keras_vit.layers.common": ("TokenRMSNormalization",),
            "keras_vit.layers.mixer_block": (
                "Affine",
                "MixerBlock",
                "SpatialGatingBlock",
                "SpatialGatingUnit",
            ),
            "keras_vit.layers.window_attention": (
                "DecomposedPositionBias",
                "Neck",
                "WindowAttention",
            ),
            "keras_vit.layers.pooling": (
                "AttentionPooling",
                "ClassAttention",
                "ClassAttentionBlock",
                "TokenPooling",
            ),
            "keras_vit.layers.standardized_conv": (
                "EvolvedNormalization",
                "StandardizedConv2D",
            ),
            "keras_vit.layers.transformer_block": (
                "GatedMLP",
                "LayerScale",
                "MLP",
                "ParallelBlock",
                "TransformerBlock",
            ),
        },
    )
