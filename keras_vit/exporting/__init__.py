"""Exports models to other runtimes: `keras_vit.export`, and its formats."""

from keras_vit.exporting.formats_table import FORMATS, ExportFormat

__all__ = ["FORMATS", "ExportFormat"]
