"""Exports models to other runtimes: `keras_vit.export`, and its formats."""

from keras_vit.exporting.runtimes_table import FORMATS, ExportFormat

__all__ = ["FORMATS", "ExportFormat"]
