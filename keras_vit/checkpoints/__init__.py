"""Weights from and to files of every known format."""

from typing import TYPE_CHECKING

from keras_vit.runtime.lazy import lazy_names

__all__ = [
    "Info",
    "LoadReport",
    "check_weights",
    "load_checkpoint",
    "load_weights",
    "read_info",
    "save_checkpoint",
]

if TYPE_CHECKING:
    from keras_vit.checkpoints.engine.description import Info, read_info
    from keras_vit.checkpoints.engine.loading import (
        check_weights,
        load_checkpoint,
        load_weights,
    )
    from keras_vit.checkpoints.engine.matching import LoadReport
    from keras_vit.checkpoints.engine.saving import save_checkpoint
else:  # They need Keras.
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "keras_vit.checkpoints.engine.description": ("Info", "read_info"),
            "keras_vit.checkpoints.engine.loading": (
                *("check_weights", "load_checkpoint", "load_weights"),
            ),
            "keras_vit.checkpoints.engine.matching": ("LoadReport",),
            "keras_vit.checkpoints.engine.saving": ("save_checkpoint",),
        },
    )
