"""Names what is in images."""

from keras_vit.prediction.classifier import (
    Classifier,
    classifier_of,
    load_classifier,
    load_network,
)
from keras_vit.prediction.images import images_of
from keras_vit.prediction.predict import (
    Prediction,
    as_classifier,
    most_probable,
    predict,
    predictions,
)

__all__ = [
    "Classifier",
    "Prediction",
    "as_classifier",
    "classifier_of",
    "images_of",
    "load_classifier",
    "load_network",
    "most_probable",
    "predict",
    "predictions",
]
