"""The layer normalization of tokens is Keras's own, forward and backward."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_vit.layers.common import TokenNormalization, normalizing

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(3, 2, size=(3, 5, 8)).astype("float32")
UPSTREAM = RANDOM.normal(size=X.shape).astype("float32")
SCALE, OFFSET = RANDOM.normal(size=(2, 8)).astype("float32")
EPSILON = 1e-2  # large enough to be seen


def expected(x, scale, offset):
    x = x.astype("float64")
    x = x - x.mean(-1, keepdims=True)
    deviation = np.sqrt((x**2).mean(-1, keepdims=True) + EPSILON)
    return x / deviation * scale + offset


def slope(of, name):
    """The gradient of sum(output * UPSTREAM), by central differences."""
    arguments = {"x": X, "scale": SCALE, "offset": OFFSET}
    arguments = {k: v.astype("float64") for k, v in arguments.items()}
    found = np.zeros_like(arguments[name])
    for index in np.ndindex(found.shape):
        ends = []
        for step in (1e-4, -1e-4):
            moved = arguments[name].copy()
            moved[index] += step
            ends.append((of(**{**arguments, name: moved}) * UPSTREAM).sum())
        found[index] = (ends[0] - ends[1]) / 2e-4
    return found


@pytest.fixture
def on_jax(backend):
    if backend != "jax":
        pytest.skip("Other backends use Keras's own layer.")


@pytest.mark.parametrize("shape", [(3, 5, 8), (15, 8), (3, 1, 5, 8)])
def test_output_is_that_of_numpy(shape):
    layer = TokenNormalization(epsilon=EPSILON)
    layer.build(shape)
    layer.set_weights([SCALE, OFFSET])
    found = ops.convert_to_numpy(layer(X.reshape(shape)))
    answer = expected(X, SCALE, OFFSET).reshape(shape)
    np.testing.assert_allclose(found, answer, 1e-5, 1e-5)


def test_gradients_are_those_of_differences(on_jax):
    import jax

    _, backward = jax.vjp(normalizing(EPSILON), X, SCALE, OFFSET)
    names = ("x", "scale", "offset")
    for name, found in zip(names, backward(UPSTREAM), strict=True):
        answer = slope(expected, name)
        np.testing.assert_allclose(found, answer, 1e-3, 1e-4, err_msg=name)


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "bfloat16", "float32"])
def test_precision_is_that_of_keras(policy):
    ours = TokenNormalization(epsilon=EPSILON, dtype=policy)
    theirs = keras.layers.LayerNormalization(epsilon=EPSILON, dtype=policy)
    found = []
    for layer in (ours, theirs):
        layer.build(X.shape)
        layer.set_weights([SCALE, OFFSET])
        found.append(layer(X))
    assert found[0].dtype == found[1].dtype
    mine, its = (ops.convert_to_numpy(ops.cast(x, "float32")) for x in found)
    # A rounding to bfloat16 may fall the other way.
    tolerance = 1e-2 if "16" in policy else 1e-5
    np.testing.assert_allclose(mine, its, tolerance, 1e-5)
