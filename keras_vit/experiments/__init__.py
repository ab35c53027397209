"""What recipes share: a run is evaluated, reported on and told of."""

from keras_vit.experiments.competition import write_labels, write_submission
from keras_vit.experiments.reporting import evaluated, facts, finish
from keras_vit.experiments.script import run_script

__all__ = [
    "evaluated",
    "facts",
    "finish",
    "run_script",
    "write_labels",
    "write_submission",
]
