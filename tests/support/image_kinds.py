"""Images of every kind that `preprocess_input` takes, for its tests."""

import numpy as np
import pytest
from keras import ops

# Two rows, one column, three channels, and what x / 127.5 - 1 makes of them.
PIXELS = np.array([[[0, 51, 102]], [[153, 204, 255]]], "uint8")
SCALED = np.array([[[-1.0, -0.6, -0.2]], [[0.2, 0.6, 1.0]]])

# How each kind of image is made from a NumPy array.
KINDS = {
    "numpy": lambda array: array,
    "nested lists": lambda array: array.tolist(),
    "list of arrays": lambda array: list(array),
    "the backend": ops.convert_to_tensor,
    "tensorflow": lambda array: library("tensorflow").constant(array),
    "jax": lambda array: library("jax").numpy.asarray(array),
    "torch": lambda array: library("torch").tensor(array),
}
TENSORS = ("the backend", "tensorflow", "jax", "torch")


def library(name):
    return pytest.importorskip(name)
