"""Predictions of whole splits, and their metrics."""

from keras_vit.evaluation.class_metrics import class_metrics
from keras_vit.evaluation.imagenet import (
    match_classes,
    read_real_labels,
    summarise_real,
)
from keras_vit.evaluation.metrics import (
    evaluate,
    images_at,
    multi_hot,
    per_class,
    summarise,
    top_k_accuracy,
    worst_rows,
    write_evaluation,
)
from keras_vit.evaluation.predictions import (
    Predictions,
    Together,
    accuracy,
    classes_to_keep,
    load_predictions,
    nearest_neighbour_predictions,
    predict_classes,
    unread,
)
from keras_vit.evaluation.regression import (
    Numbers,
    predict_numbers,
    summarise_numbers,
    write_numbers,
)

__all__ = [
    "Numbers",
    "Predictions",
    "Together",
    "accuracy",
    "class_metrics",
    "classes_to_keep",
    "evaluate",
    "images_at",
    "load_predictions",
    "match_classes",
    "multi_hot",
    "nearest_neighbour_predictions",
    "per_class",
    "predict_classes",
    "predict_numbers",
    "read_real_labels",
    "summarise",
    "summarise_numbers",
    "summarise_real",
    "top_k_accuracy",
    "unread",
    "worst_rows",
    "write_evaluation",
    "write_numbers",
]
