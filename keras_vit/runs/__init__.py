"""What recipes share: command line, evaluation and report of a run."""

from keras_vit.runs.reporting import evaluated, facts, finish
from keras_vit.runs.script import run_script

__all__ = [
    "evaluated",
    "facts",
    "finish",
    "run_script",
]
