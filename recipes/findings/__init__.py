"""Findings of the paper, shown again at small scale."""

from findings.measuring import SHOTS_AXIS, measured
from findings.showing import plot, summarise, table

__all__ = [
    "SHOTS_AXIS",
    "measured",
    "plot",
    "summarise",
    "table",
]
