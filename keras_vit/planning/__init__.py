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
    StepCost,
    TextMemory,
    cost_of,
    count,
    duration,
    largest_batch,
    memory,
    paper_runs,
    plan,
    text_memory,
)
from keras_vit.planning.pretraining import Pretraining

__all__ = [
    "Confirmed",
    "Counts",
    "Duration",
    "Machine",
    "Memory",
    "PaperRun",
    "Pretraining",
    "Row",
    "Settings",
    "StepCost",
    "TextMemory",
    "check_compiler",
    "confirm",
    "cost_of",
    "count",
    "duration",
    "largest_batch",
    "machine",
    "memory",
    "paper_runs",
    "plan",
    "text_memory",
]
