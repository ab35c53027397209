"""Weights from and to files of every known format."""

from keras_vit.checkpoints.description import Info, read_info
from keras_vit.checkpoints.loading import (
    check_weights,
    load_checkpoint,
    load_weights,
)
from keras_vit.checkpoints.matching import LoadReport
from keras_vit.checkpoints.saving import save_checkpoint

__all__ = [
    "Info",
    "LoadReport",
    "check_weights",
    "load_checkpoint",
    "load_weights",
    "read_info",
    "save_checkpoint",
]
