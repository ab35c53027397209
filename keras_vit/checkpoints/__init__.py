"""Weights from files."""

from keras_vit.checkpoints.keras_files import check_weights, load_weights

__all__ = ["check_weights", "load_weights"]
