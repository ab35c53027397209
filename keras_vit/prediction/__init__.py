"""Classifies and embeds images with public weights, trained runs and models."""

from keras_vit.prediction.classifier import (
    Classifier,
    Prediction,
    as_classifier,
    load_classifier,
    most_probable,
    predict,
    predictions,
)
from keras_vit.prediction.embeddings_file import (
    Embeddings,
    embed_files,
    load_embeddings,
)
from keras_vit.prediction.encoder import Encoder, as_encoder, embed
from keras_vit.prediction.images import images_of
from keras_vit.prediction.networks import load_network
from keras_vit.prediction.patch_sequences import patch_sequences
from keras_vit.prediction.search import encoder_of, nearest

__all__ = [
    "Classifier",
    "Embeddings",
    "Encoder",
    "Prediction",
    "as_classifier",
    "as_encoder",
    "embed",
    "embed_files",
    "encoder_of",
    "images_of",
    "load_classifier",
    "load_embeddings",
    "load_network",
    "most_probable",
    "nearest",
    "patch_sequences",
    "predict",
    "predictions",
]
