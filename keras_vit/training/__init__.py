"""Training: recipes, runs and their folders.

Reading a run folder imports nothing of the rest.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from keras_vit.training.config import (
        DataConfig,
        ModelConfig,
        OptimizerConfig,
        Recipe,
        TrainingConfig,
    )
    from keras_vit.training.training_run import Run, train

__all__ = [
    "DataConfig",
    "ModelConfig",
    "OptimizerConfig",
    "Recipe",
    "Run",
    "TrainingConfig",
    "train",
]


def __getattr__(name):
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = "training_run" if name in ("Run", "train") else "config"
    return getattr(importlib.import_module(f"{__name__}.{home}"), name)
