"""Classifies and embeds images with public weights, trained runs and models."""

from typing import TYPE_CHECKING

from keras_vit.prediction.classifier import (
    Classifier,
    Prediction,
    as_classifier,
    load_classifier,
    most_probable,
    predict,
    predictions,
)
from keras_vit.prediction.images import images_of
from keras_vit.runtime.environment import lazy_names

__all__ = [
    "Classifier",
    "Embeddings",
    "Encoder",
    "Prediction",
    "as_classifier",
    "as_encoder",
    "embed",
    "embed_files",
    "embed_texts",
    "encoder_of",
    "images_of",
    "load_classifier",
    "load_embeddings",
    "load_network",
    "load_zero_shot",
    "most_probable",
    "nearest",
    "patch_sequences",
    "predict",
    "predictions",
]

if TYPE_CHECKING:
    from keras_vit.prediction.by_labels import embed_texts, load_zero_shot
    from keras_vit.prediction.embeddings_file import (
        Embeddings,
        embed_files,
        encoder_of,
        load_embeddings,
        nearest,
    )
    from keras_vit.prediction.encoder import Encoder, as_encoder, embed
    from keras_vit.prediction.images import patch_sequences
    from keras_vit.prediction.networks import load_network
else:  # They need Keras.
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "keras_vit.prediction.embeddings_file": (
                *("Embeddings", "embed_files", "encoder_of"),
                *("load_embeddings", "nearest"),
            ),
            "keras_vit.prediction.by_labels": (
                *("embed_texts", "load_zero_shot"),
            ),
            "keras_vit.prediction.encoder": ("Encoder", "as_encoder", "embed"),
            "keras_vit.prediction.networks": ("load_network",),
            "keras_vit.prediction.images": ("patch_sequences",),
        },
    )
