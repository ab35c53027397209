"""Estimates the memory and time of a training run in advance."""

from keras_vit.planning.counts import Counts, count
from keras_vit.planning.devices_table import Machine, machine
from keras_vit.planning.estimate import (
    Duration,
    PaperRun,
    Row,
    duration,
    paper_runs,
    plan,
)
from keras_vit.planning.memory import Memory, Settings, memory

__all__ = [
    "Counts",
    "Duration",
    "Machine",
    "Memory",
    "PaperRun",
    "Row",
    "Settings",
    "count",
    "duration",
    "machine",
    "memory",
    "paper_runs",
    "plan",
]
