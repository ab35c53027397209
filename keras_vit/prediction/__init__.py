"""Classifies images with public weights, trained runs and models."""

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
from keras_vit.prediction.networks import load_network

__all__ = [
    "Classifier",
    "Prediction",
    "as_classifier",
    "images_of",
    "load_classifier",
    "load_network",
    "most_probable",
    "predict",
    "predictions",
]
