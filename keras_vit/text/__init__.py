"""Texts beside images: towers, tokenizers, zero-shot classes, retrieval."""

from typing import TYPE_CHECKING

from keras_vit.runtime.environment import lazy_names

__all__ = [
    "ClassEmbeddings",
    "ImageTextModel",
    "TextConfig",
    "TextTransformer",
    "Tokenizer",
    "as_text_encoder",
    "class_embeddings",
    "load_class_embeddings",
    "load_image_text",
    "retrieval_recall",
    "zero_shot_model",
]

if TYPE_CHECKING:
    from keras_vit.text.image_text import ImageTextModel, retrieval_recall
    from keras_vit.text.pair_files import load_image_text
    from keras_vit.text.tokenizer import Tokenizer
    from keras_vit.text.tower import TextConfig, TextTransformer
    from keras_vit.text.zero_shot import (
        ClassEmbeddings,
        as_text_encoder,
        class_embeddings,
        load_class_embeddings,
        zero_shot_model,
    )
else:  # They need Keras.
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "keras_vit.text.image_text": (
                "ImageTextModel",
                "retrieval_recall",
            ),
            "keras_vit.text.pair_files": ("load_image_text",),
            "keras_vit.text.tokenizer": ("Tokenizer",),
            "keras_vit.text.tower": (
                "TextConfig",
                "TextTransformer",
            ),
            "keras_vit.text.zero_shot": (
                *("ClassEmbeddings", "as_text_encoder", "class_embeddings"),
                *("load_class_embeddings", "zero_shot_model"),
            ),
        },
    )
