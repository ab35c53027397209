"""Exports models to other runtimes: `keras_vit.export`, and its formats."""

from typing import TYPE_CHECKING

from keras_vit.exporting.runtimes_table import FORMATS, ExportFormat
from keras_vit.runtime.environment import lazy_names

__all__ = ["FORMATS", "ExportFormat", "export_pair"]

if TYPE_CHECKING:
    from keras_vit.exporting.export import export_pair
else:  # It needs Keras.
    __getattr__, __dir__ = lazy_names(
        __name__, {"keras_vit.exporting.export": ("export_pair",)}
    )
