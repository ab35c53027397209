"""Variants of the Vision Transformer that the paper compares it with.

They are there to show what a choice is worth (appendix D of "An Image Is
Worth 16x16 Words", arXiv:2010.11929); `keras_vit.models` has the plain model.
"""

from typing import TYPE_CHECKING

from keras_vit.runtime.environment import lazy_names

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

if TYPE_CHECKING:
    from keras_vit.variants.variant_config import (
        VariantConfig,
        VariantTransformerConfig,
    )
    from keras_vit.variants.variant_transformer import (
        AddPositionEmbedding2D,
        AxialAttention,
        AxialBlock,
        LocalMLP,
        RelativePositionEmbedding,
        RelativeSelfAttention,
        VariantBlock,
        VariantTransformer,
    )
else:  # They need Keras.
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "keras_vit.variants.variant_transformer": (
                "AddPositionEmbedding2D",
                "AxialAttention",
                "AxialBlock",
                "LocalMLP",
                "RelativePositionEmbedding",
                "RelativeSelfAttention",
                "VariantBlock",
                "VariantTransformer",
            ),
            "keras_vit.variants.variant_config": (
                "VariantConfig",
                "VariantTransformerConfig",
            ),
        },
    )
