"""Shows what models see in images."""

from keras_vit.experiments.explanation.explain import check_folder, explain
from keras_vit.experiments.explanation.of_run import explain_run

__all__ = ["check_folder", "explain", "explain_run"]
