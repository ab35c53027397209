"""VTAB-1k with one setting for all tasks, and its table beside the paper's."""

from vtab.config import Setting, Vtab, smoke_vtab
from vtab.table import NO_RESULT, group_means, table, write_report

__all__ = [
    "NO_RESULT",
    "Setting",
    "Vtab",
    "group_means",
    "smoke_vtab",
    "table",
    "write_report",
]
