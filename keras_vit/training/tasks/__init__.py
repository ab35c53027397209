"""Ways to learn from images without labels, as tasks of `train`."""

from keras_vit.training.tasks.dino import DINO, DINOConfig, dino_network
from keras_vit.training.tasks.distillation import (
    DISTILLATION,
    DISTILLATION_WITH_LABELS,
    DistillConfig,
)
from keras_vit.training.tasks.mae import MAE, MAEConfig, autoencoder
from keras_vit.training.tasks.masked_patch import (
    MASKED_PATCH,
    MaskedPatchConfig,
)

__all__ = [
    "DINO",
    "DINOConfig",
    "DISTILLATION",
    "DISTILLATION_WITH_LABELS",
    "DistillConfig",
    "MAE",
    "MAEConfig",
    "MASKED_PATCH",
    "MaskedPatchConfig",
    "autoencoder",
    "dino_network",
]
