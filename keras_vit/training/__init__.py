"""Training: recipes, runs and their folders.

Reading a run folder imports nothing of the rest.
"""

from typing import TYPE_CHECKING

from keras_vit.runtime.environment import lazy_names

__all__ = [
    "DataConfig",
    "ModelConfig",
    "OptimizerConfig",
    "Recipe",
    "Run",
    "TrainingConfig",
    "train",
]

if TYPE_CHECKING:
    from keras_vit.training.config import (
        DataConfig,
        ModelConfig,
        OptimizerConfig,
        Recipe,
        TrainingConfig,
    )
    from keras_vit.training.training_run import Run, train
else:
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "keras_vit.training.config": (
                *("DataConfig", "ModelConfig", "OptimizerConfig", "Recipe"),
                "TrainingConfig",
            ),
            "keras_vit.training.training_run": ("Run", "train"),
        },
    )
