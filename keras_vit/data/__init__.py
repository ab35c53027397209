"""Data sets, augmentation, and batches to train and to evaluate on."""

from typing import TYPE_CHECKING

from keras_vit.data.config import (
    AugmentationConfig,
    DataConfig,
    PreprocessingConfig,
)
from keras_vit.runtime.environment import lazy_names

__all__ = [
    "AugmentationConfig",
    "DataConfig",
    "Dataset",
    "Examples",
    "FitStream",
    "PreprocessingConfig",
    "Share",
    "Sources",
    "TrainingStream",
    "evaluation_batches",
    "file_names",
    "open_dataset",
    "skipped_files",
    "training_stream",
]

if TYPE_CHECKING:
    from keras_vit.data.batches import (
        FitStream,
        Share,
        TrainingStream,
        evaluation_batches,
        training_stream,
    )
    from keras_vit.data.dataset import (
        Dataset,
        Examples,
        Sources,
        file_names,
        skipped_files,
    )
    from keras_vit.data.sources import open_dataset
else:  # They need Keras, or what reads every kind of file.
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "keras_vit.data.batches": (
                "FitStream",
                *("Share", "TrainingStream"),
                *("evaluation_batches", "training_stream"),
            ),
            "keras_vit.data.dataset": (
                *("Dataset", "Examples", "Sources"),
                *("file_names", "skipped_files"),
            ),
            "keras_vit.data.sources": ("open_dataset",),
        },
    )
