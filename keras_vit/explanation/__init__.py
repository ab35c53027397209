"""Shows what models see in images."""

from keras_vit.explanation.explain import check_folder, explain, explain_run

__all__ = ["check_folder", "explain", "explain_run"]
