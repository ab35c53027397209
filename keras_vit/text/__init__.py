"""Texts beside images: towers, tokenizers, zero-shot classes, retrieval."""

from typing import TYPE_CHECKING

from keras_vit.runtime.lazy import lazy_names

__all__ = [
    "ImageTextModel",
    "TextConfig",
    "TextTransformer",
    "Tokenizer",
    "load_image_text",
]

if TYPE_CHECKING:
    from keras_vit.text.image_text import ImageTextModel
    from keras_vit.text.pair_files import load_image_text
    from keras_vit.text.tokenizer import Tokenizer
    from keras_vit.text.tower import TextConfig, TextTransformer
else:  # They need Keras.
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "keras_vit.text.image_text": ("ImageTextModel",),
            "keras_vit.text.pair_files": ("load_image_text",),
            "keras_vit.text.tokenizer": ("Tokenizer",),
            "keras_vit.text.tower": ("TextConfig", "TextTransformer"),
        },
    )
