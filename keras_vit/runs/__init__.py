"""What recipes share: a run is evaluated, reported on and told of."""

from keras_vit.runs.reporting import evaluated, facts, finish
from keras_vit.runs.script import run_script

__all__ = [
    "evaluated",
    "facts",
    "finish",
    "run_script",
]
