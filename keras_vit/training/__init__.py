"""Training: recipes, runs and the folders that they leave behind."""

from keras_vit.training.config import (
    DataConfig,
    ModelConfig,
    OptimizerConfig,
    Recipe,
    TrainingConfig,
)
from keras_vit.training.run import Run, train

__all__ = [
    "DataConfig",
    "ModelConfig",
    "OptimizerConfig",
    "Recipe",
    "Run",
    "TrainingConfig",
    "train",
]
