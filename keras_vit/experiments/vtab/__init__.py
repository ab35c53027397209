"""VTAB-1k with one setting for all tasks, and its table beside the paper's."""

from keras_vit.experiments.vtab.config import Setting, Vtab, smoke_vtab
from keras_vit.experiments.vtab.report import write_report
from keras_vit.experiments.vtab.table import NO_RESULT, group_means, table

__all__ = [
    "NO_RESULT",
    "Setting",
    "Vtab",
    "group_means",
    "smoke_vtab",
    "table",
    "write_report",
]
