"""Evaluation: every image counted once, class by class, and a baseline."""

from keras_vit.evaluation.gallery import images_at, worst
from keras_vit.evaluation.imagenet import (
    match_classes,
    read_real_labels,
    summarise_real,
)
from keras_vit.evaluation.metrics import (
    evaluate,
    multi_hot,
    per_class,
    summarise,
    top_k_accuracy,
    write_evaluation,
    write_per_class,
)
from keras_vit.evaluation.predictions import (
    Predictions,
    accuracy,
    load_predictions,
    nearest_neighbour_predictions,
    predict_classes,
)

__all__ = [
    "Predictions",
    "accuracy",
    "evaluate",
    "images_at",
    "load_predictions",
    "match_classes",
    "multi_hot",
    "nearest_neighbour_predictions",
    "per_class",
    "predict_classes",
    "read_real_labels",
    "summarise",
    "summarise_real",
    "top_k_accuracy",
    "worst",
    "write_evaluation",
    "write_per_class",
]
