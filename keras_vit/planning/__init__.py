"""Estimates the memory and time of a training run in advance."""

from keras_vit.planning.compiler import Confirmed, check_compiler, confirm
from keras_vit.planning.devices_table import Machine, machine
from keras_vit.planning.estimate import (
    Counts,
    Duration,
    Memory,
    PaperRun,
    Row,
    Settings,
    TextMemory,
    count,
    duration,
    largest_batch,
    memory,
    paper_runs,
    plan,
    text_memory,
)

__all__ = [
    "Confirmed",
    "Counts",
    "Duration",
    "Machine",
    "Memory",
    "PaperRun",
    "Row",
    "Settings",
    "TextMemory",
    "check_compiler",
    "confirm",
    "count",
    "duration",
    "largest_batch",
    "machine",
    "memory",
    "paper_runs",
    "plan",
    "text_memory",
]
