"""Evaluation: accuracy, confusion matrix and a baseline."""

from keras_vit.evaluation.classification import (
    accuracy,
    confusion_matrix,
    nearest_neighbour_predictions,
    predict_probabilities,
)

__all__ = [
    "accuracy",
    "confusion_matrix",
    "nearest_neighbour_predictions",
    "predict_probabilities",
]
