"""Data: sources by name, splits, images, augmentation and batches."""

from keras_vit.data.augmentation import AugmentationConfig
from keras_vit.data.config import DataConfig, PreprocessingConfig
from keras_vit.data.dataset import Dataset
from keras_vit.data.evaluation import evaluation_batches
from keras_vit.data.examples import Examples
from keras_vit.data.foreign import FitStream
from keras_vit.data.opening import open_dataset
from keras_vit.data.share import Share
from keras_vit.data.stream import TrainingStream, training_stream

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
