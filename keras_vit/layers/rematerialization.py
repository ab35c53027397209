"""Activations recomputed in the backward pass, on every backend."""

from collections.abc import Callable

import keras
from keras import ops

__all__ = ["rematerialize"]


def rematerialize(layer: keras.layers.Layer, function: Callable, x):
    """Computes `function(x)` without keeping what it computes on the way.

    `keras.remat` alone fails on layers with dropout: JAX sees the seed state
    leave the rematerialised function, TensorFlow refuses variables inside it
    (keras#20936, keras#20964). Here the function gets all state of the layer
    as arguments, and the seeds move on outside of it.

    Args:
        layer: a built layer; it owns all variables that `function` uses.
        function: from one tensor to one tensor.
        x: tensor.

    Returns:
        The tensor `function(x)`.
    """
    weights, seeds = [], []
    for variable in layer.variables:
        is_seed = variable.name == "seed_generator_state"
        (seeds if is_seed else weights).append(variable)
    drawn = [ops.copy(v) for v in seeds]
    for seed in seeds:
        # What keras.random.SeedGenerator.next does to its state.
        seed.assign(seed + ops.array([0, 1], dtype=seed.dtype))

    def pure(x, *values):
        state = list(zip([*weights, *seeds], [*values, *drawn], strict=True))
        with keras.StatelessScope(state_mapping=state):
            return function(x)

    return keras.remat(pure)(x, *(ops.convert_to_tensor(v) for v in weights))
