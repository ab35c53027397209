"""Variants of the Vision Transformer that the paper compares it with.

They are there to show what a choice is worth (appendix D of "An Image Is
Worth 16x16 Words", arXiv:2010.11929); `keras_vit.models` has the plain model.
"""

from keras_vit.variants.axial_attention import AxialAttention
from keras_vit.variants.local_mlp import LocalMLP
from keras_vit.variants.position_2d import AddPositionEmbedding2D
from keras_vit.variants.relative_attention import (
    RelativePositionEmbedding,
    RelativeSelfAttention,
)
from keras_vit.variants.variant_block import AxialBlock, VariantBlock
from keras_vit.variants.variant_transformer import (
    VariantConfig,
    VariantTransformer,
    VariantTransformerConfig,
)

__all__ = [
    "AddPositionEmbedding2D",
    "AxialAttention",
    "AxialBlock",
    "LocalMLP",
    "RelativePositionEmbedding",
    "RelativeSelfAttention",
    "VariantBlock",
    "VariantConfig",
    "VariantTransformer",
    "VariantTransformerConfig",
]
