"""Names what is in images."""

from keras_vit.experiments.prediction.classifier import (
    Classifier,
    classifier_of,
)
from keras_vit.experiments.prediction.loading import (
    load_classifier,
    load_network,
)
from keras_vit.experiments.prediction.predict import (
    Prediction,
    as_classifier,
    most_probable,
    predict,
    predictions,
)
from keras_vit.experiments.prediction.sources import images_of

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
