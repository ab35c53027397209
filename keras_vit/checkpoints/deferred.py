"""Models whose weights start as what a file holds, not as random numbers."""

from collections.abc import Callable

import keras
import numpy as np

__all__ = ["built_with"]

ALIGNMENT = 64  # bytes, Eigen's with AVX-512


def built_with(build: Callable, plan_of: Callable) -> keras.Model:
    """Builds a model whose weights are read when they are made.

    Keras defers the weights that are made in a stateless scope and makes them
    when it ends; until then each can be given another initializer. So nothing
    is drawn that is thrown away, and memory holds the model once.

    Args:
        build: function that returns the model.
        plan_of: function from the model to the `Plan` of what is read.

    Returns:
        The model with its `load_report`. Weights without a step have their
        own initial values.

    Raises:
        Exception: what a step raises; the model is lost then.
    """
    starts = {}
    with keras.StatelessScope():
        model = build()
        try:
            plan = plan_of(model)
        except Exception:
            for variable in model.variables:
                variable._initializer = np.zeros
            raise
        for variable in model.variables:
            if variable.path in plan.steps:
                start = Start(plan.steps[variable.path], starts)
                starts[variable.path] = variable._initializer = start
    for start in starts.values():
        if start.error:
            raise start.error
    for variable in model.variables:
        # Inside another stateless scope, and should Keras no longer defer.
        if variable.path in starts and not starts[variable.path].was_read:
            variable.assign(plan.steps[variable.path]())
    model.load_report = plan.report
    return model


class Start:
    """An initializer that reads; after an error the rest are zeros.

    Keras makes all deferred weights in one go, and would try again those that
    an exception left out.
    """

    def __init__(self, step, starts):
        self.step = step
        self.starts = starts
        self.error = None
        self.was_read = False

    def __call__(self, shape, dtype=None):
        if any(start.error for start in self.starts.values()):
            return np.zeros(shape, dtype)
        try:
            array = taken_over(self.step())
        except Exception as error:
            self.error = error
            return np.zeros(shape, dtype)
        self.was_read = True
        return array


def taken_over(array: np.ndarray):
    """The array as a tensor of the backend, in the memory that it has.

    Keras's own conversion copies, which takes longer and holds several more
    of the largest weights.
    """
    whole = array.flags.writeable and array.flags.c_contiguous
    if not whole or not array.size:
        return array  # A part of something stays as it is.
    taker = TAKERS.get(keras.backend.backend())
    return taker(array) if taker else array


def _taken_by_jax(array):
    import jax

    return jax.device_put(array)


def _taken_by_tensorflow(array):
    import tensorflow as tf

    # DLPack knows no dtype of ml_dtypes, as bfloat16, and TensorFlow aborts at
    # memory that its vector instructions cannot read.
    if array.dtype.isbuiltin != 1 or array.ctypes.data % ALIGNMENT:
        return array
    return tf.experimental.dlpack.from_dlpack(array.__dlpack__())


def _taken_by_torch(array):
    import torch

    # Nor does torch know a dtype of ml_dtypes.
    return array if array.dtype.isbuiltin != 1 else torch.from_numpy(array)


TAKERS = {
    "jax": _taken_by_jax,
    "tensorflow": _taken_by_tensorflow,
    "torch": _taken_by_torch,
}
