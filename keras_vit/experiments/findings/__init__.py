"""Findings of the paper, shown again at small scale."""

from keras_vit.experiments.findings.measuring import SHOTS_AXIS, measured
from keras_vit.experiments.findings.showing import plot, summarise, table

__all__ = ["SHOTS_AXIS", "measured", "plot", "summarise", "table"]
