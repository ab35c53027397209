"""Predictions of whole splits, and their metrics."""

from typing import TYPE_CHECKING

from keras_vit.runtime.environment import lazy_names

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

if TYPE_CHECKING:
    from keras_vit.evaluation.metrics import (
        Numbers,
        evaluate,
        images_at,
        match_classes,
        multi_hot,
        per_class,
        predict_numbers,
        read_real_labels,
        summarise,
        summarise_numbers,
        summarise_real,
        top_k_accuracy,
        worst_rows,
        write_evaluation,
        write_numbers,
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
    from keras_vit.evaluation.scores_of_classes import class_metrics
else:  # They need Keras.
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "keras_vit.evaluation.scores_of_classes": ("class_metrics",),
            "keras_vit.evaluation.metrics": (
                "Numbers",
                "evaluate",
                "images_at",
                "match_classes",
                "multi_hot",
                "per_class",
                "predict_numbers",
                "read_real_labels",
                "summarise",
                "summarise_numbers",
                "summarise_real",
                "top_k_accuracy",
                "worst_rows",
                "write_evaluation",
                "write_numbers",
            ),
            "keras_vit.evaluation.predictions": (
                "Predictions",
                "Together",
                "accuracy",
                "classes_to_keep",
                "load_predictions",
                "nearest_neighbour_predictions",
                "predict_classes",
                "unread",
            ),
        },
    )
