"""Data sets, augmentation, and batches to train and to evaluate on."""

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
from keras_vit.data.dataset import Dataset, Examples
from keras_vit.data.loaders import FitStream
from keras_vit.data.sources import open_dataset

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
