"""The layers that the models of keras_vit are made of.

Each is a Keras layer that any model can use.
"""

from keras_vit.layers.attention import SelfAttention
from keras_vit.layers.attention_positions import (
    RelativePositionBias,
    RotaryEmbedding,
)
from keras_vit.layers.embedding import (
    AddPositionEmbedding,
    ClassToken,
    PatchEmbed,
)
from keras_vit.layers.kernels import TokenRMSNormalization
from keras_vit.layers.mixer_block import (
    Affine,
    MixerBlock,
    SpatialGatingBlock,
    SpatialGatingUnit,
)
from keras_vit.layers.neck import Neck
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
    WindowAttention,
)

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
