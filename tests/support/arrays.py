"""Arrays of archives, and of layers."""

import os
from typing import Any

import keras
import numpy as np

from keras_vit.checkpoints.engine.recognition import OPENERS, kind_of
from keras_vit.checkpoints.files.tensors import TensorFile


def read_arrays(path: str | os.PathLike) -> dict[str, Any]:
    """Those of an archive, which is closed again: open files are warned of."""
    with np.load(path) as file:
        return dict(file)


def open_tensors(path) -> TensorFile:
    """Open a file or folder of named tensors."""
    return OPENERS[kind_of(path)](path)


def drawn(layer: keras.layers.Layer, shape: tuple) -> dict[str, Any]:
    """Builds a layer with random weights: float64 values by their names."""
    layer.build(shape)
    values = {}
    for i, weight in enumerate(layer.weights):
        drawn = np.random.default_rng(i).normal(size=weight.shape)
        weight.assign(drawn.astype("float32"))
        name = weight.path.split("/", 1)[-1]
        values[name] = drawn.astype("float32").astype("float64")
    return values
