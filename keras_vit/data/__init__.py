"""Data: sources by name, splits, images, augmentation and batches."""

from keras_vit.data.augment import RandomAffine
from keras_vit.data.batches import TrainingBatches
from keras_vit.data.dataset import Dataset, Split
from keras_vit.data.datasets import load
from keras_vit.data.images import read_image

__all__ = [
    "Dataset",
    "RandomAffine",
    "Split",
    "TrainingBatches",
    "load",
    "read_image",
]
