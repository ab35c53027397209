"""Planning: what a training run needs, before it is paid for."""

from keras_vit.planning.counts import Counts, count
from keras_vit.planning.devices_table import Machine, machine
from keras_vit.planning.duration import Duration, duration
from keras_vit.planning.memory import Memory, memory
from keras_vit.planning.paper_runs import PaperRun, paper_runs
from keras_vit.planning.runs import Row, plan
from keras_vit.planning.settings import Settings

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
