"""Estimates the memory and time of a training run in advance."""

from keras_vit.planning.compiler import Confirmed, check_compiler, confirm
from keras_vit.planning.counts import Counts, count
from keras_vit.planning.devices_table import Machine, machine
from keras_vit.planning.estimate import (
    Duration,
    PaperRun,
    Row,
    duration,
    largest_batch,
    paper_runs,
    plan,
)
from keras_vit.planning.memory import Memory, Settings, memory

__all__ = [
    "Confirmed",
    "Counts",
    "Duration",
    "Machine",
    "Memory",
    "PaperRun",
    "Row",
    "Settings",
    "check_compiler",
    "confirm",
    "count",
    "duration",
    "largest_batch",
    "machine",
    "memory",
    "paper_runs",
    "plan",
]
