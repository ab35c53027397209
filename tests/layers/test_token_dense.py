"""The dense layer of tokens is Keras's own, forward and backward."""

import functools
import math

import keras
import numpy as np
import pytest
from keras import ops

from keras_vit.layers.common import TokenDense, product

X = np.random.default_rng(0).normal(size=(3, 5, 4)).astype("float32")
UPSTREAM = np.random.default_rng(1).normal(size=(3, 5, 6)).astype("float32")


@pytest.fixture
def on_jax(backend):
    if backend != "jax":
        pytest.skip("Other backends use Keras's own layer.")


def test_output_is_that_of_numpy():
    layer = TokenDense(6, bias_initializer="normal", activation="relu")
    found = ops.convert_to_numpy(layer(X))
    kernel, bias = map(ops.convert_to_numpy, layer.weights)
    np.testing.assert_allclose(found, np.maximum(X @ kernel + bias, 0), 1e-5)


@pytest.mark.parametrize("shape", [(3, 5), (15,), (3, 1, 5)])
def test_gradients_are_those_of_numpy(on_jax, shape):
    import jax

    kernel = np.random.default_rng(2).normal(size=(4, 6)).astype("float32")
    x, upstream = X.reshape(*shape, 4), UPSTREAM.reshape(*shape, 6)
    _, backward = jax.vjp(product, x, kernel)
    of_x, of_kernel = backward(upstream)
    np.testing.assert_allclose(of_x, upstream @ kernel.T, 1e-5, 1e-6)
    expected = np.tensordot(X, UPSTREAM, axes=((0, 1), (0, 1)))
    np.testing.assert_allclose(of_kernel, expected, 1e-5, 1e-6)


def test_gradients_on_torch_are_those_of_numpy(backend):
    if backend != "torch":
        pytest.skip("It is how torch computes it.")
    layer = TokenDense(6, bias_initializer="normal")
    x = ops.convert_to_tensor(X).clone().requires_grad_()
    layer(x).backward(ops.convert_to_tensor(UPSTREAM))
    kernel = ops.convert_to_numpy(layer.kernel)
    sums = np.tensordot(X, UPSTREAM, axes=((0, 1), (0, 1)))
    found = (x.grad, layer.kernel.value.grad, layer.bias.value.grad)
    expected = (UPSTREAM @ kernel.T, sums, UPSTREAM.sum(axis=(0, 1)))
    for ours, numpys in zip(found, expected, strict=True):
        assert ours is not None
        np.testing.assert_allclose(
            ops.convert_to_numpy(ours), numpys, 1e-5, 1e-6
        )


def test_torch_exports_products_of_kernels(backend):
    """A file holds each kernel as it is: readers look for a product of it."""
    if backend != "torch":
        pytest.skip("It is torch that exports.")
    import torch

    model = keras.Sequential([keras.Input((5, 4)), TokenDense(6)])
    exported = torch.export.export(model, (torch.tensor(X),), strict=False)
    found = {str(node.target) for node in exported.graph.nodes}
    assert "aten.matmul.default" in found
    assert "aten.linear.default" not in found


def test_second_derivatives_are_there(on_jax):
    """Of the sum of squares, which a penalty on gradients takes."""
    import jax

    kernel = np.ones((4, 6), "float32")

    def penalty(kernel):
        loss = jax.grad(lambda x: ops.sum(ops.square(product(x, kernel))))
        return ops.sum(loss(X) ** 2)

    # The gradient of x is 2 x k k', of which the sum of squares is taken.
    step = 1e-2
    moved = kernel.copy()
    moved[1, 2] += step
    slope = (penalty(moved) - penalty(2 * kernel - moved)) / (2 * step)
    np.testing.assert_allclose(jax.grad(penalty)(kernel)[1, 2], slope, 1e-2)


def test_low_precision_gradients_have_the_dtype_of_their_inputs(on_jax):
    import jax

    x, kernel = ops.cast(X, "bfloat16"), ops.ones((4, 6), "bfloat16")
    _, backward = jax.vjp(product, x, kernel)
    found = backward(ops.cast(UPSTREAM, "bfloat16"))
    assert [str(array.dtype) for array in found] == ["bfloat16"] * 2


@pytest.mark.parametrize("mode", ["int8", "int4"])
def test_is_quantised_as_keras_own(mode):
    layer, expected = TokenDense(6), keras.layers.Dense(6)
    layer.build((None, 5, 4))
    expected.build((None, 5, 4))
    expected.set_weights(layer.get_weights())
    layer.quantize(mode)
    expected.quantize(mode)
    np.testing.assert_array_equal(
        ops.convert_to_numpy(layer(X)), ops.convert_to_numpy(expected(X))
    )


def test_inputs_of_another_precision_are_those_of_numpy(backend):
    if backend != "torch":
        pytest.skip("It is torch whose product takes one precision.")
    layer = TokenDense(6, bias_initializer="normal", autocast=False)
    x = ops.cast(X, "bfloat16")
    found = layer(x)
    x, kernel, bias = map(ops.convert_to_numpy, (x, *layer.weights))
    np.testing.assert_allclose(
        ops.convert_to_numpy(found), x.astype("float32") @ kernel + bias, 1e-5
    )


@pytest.mark.parametrize("approximate", [True, False])
def test_gelu_without_gradients_is_that_of_its_definition(approximate, backend):
    """Equations 1 and 2 of arXiv:1606.08415, and the input stays as it was."""
    if backend != "torch":
        pytest.skip("It is torch that writes over a product.")
    import torch

    gelu = functools.partial(ops.gelu, approximate=approximate)
    layer = TokenDense(6, gelu, bias_initializer="normal")
    x = ops.convert_to_tensor(X)
    with torch.no_grad():
        found = ops.convert_to_numpy(layer(x))
    kernel, bias = map(ops.convert_to_numpy, layer.weights)
    y = (X @ kernel + bias).astype("float64")
    shares = [(1 + math.erf(z / 2**0.5)) / 2 for z in y.ravel()]
    expected = y * np.reshape(shares, y.shape)
    if approximate:
        inner = (2 / np.pi) ** 0.5 * (y + 0.044715 * y**3)
        expected = y / 2 * (1 + np.tanh(inner))
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6)
    np.testing.assert_array_equal(ops.convert_to_numpy(x), X)
