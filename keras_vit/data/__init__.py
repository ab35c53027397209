"""Data: sources by name, splits, images, augmentation and batches."""

from keras_vit.data.batches import (
    Share,
    TrainingStream,
    evaluation_batches,
    training_stream,
)
from keras_vit.data.config import (
    AugmentationConfig,
    DataConfig,
    PreprocessingConfig,
)
from keras_vit.data.dataset import Dataset
from keras_vit.data.examples import Examples
from keras_vit.data.fit_stream import FitStream
from keras_vit.data.opening import open_dataset

__all__ = [
    "AugmentationConfig",
    "DataConfig",
    "Dataset",
    "Examples",
    "FitStream",
    "PreprocessingConfig",
    "Share",
    "TrainingStream",
    "evaluation_batches",
    "open_dataset",
    "training_stream",
]
