"""Arrays that become the tensors of a backend as they are."""

import keras
import ml_dtypes
import numpy as np
import pytest

import keras_vit
from keras_vit.checkpoints.engine import loading
from keras_vit.checkpoints.files import tensors
from keras_vit.runtime.workarounds import taken_over

SHAPE = (3, tensors.LARGE // 4)


def whole(dtype):
    array = tensors.empty(SHAPE, np.dtype(dtype), "C")
    array[:] = np.arange(array.size).reshape(SHAPE) % 7
    return array


ARRAYS = {
    "float32": whole("float32"),
    "bfloat16": whole(ml_dtypes.bfloat16),
    "uint8": whole("uint8"),
    "part": whole("float32")[:, 1::2],
    "transposed": whole("float32").T,
    "unaligned": whole("float32").ravel()[1:],
    "number": np.array(3.5, "float32"),
    "empty": np.zeros((0, 4), "float32"),
}


@pytest.mark.parametrize("kind", ARRAYS)
def test_values_are_those_of_the_array(kind):
    array = ARRAYS[kind]
    variable = keras.Variable(
        lambda shape, dtype: taken_over(array),
        shape=array.shape,
        dtype=array.dtype.name,
        trainable=False,
    )
    np.testing.assert_array_equal(
        keras.ops.convert_to_numpy(variable), array, strict=True
    )
    keras.ops.multiply(
        variable, variable
    )  # TensorFlow wants aligned memory here.


def test_array_that_may_not_be_written_to_stays_as_it_is():
    array = np.broadcast_to(np.float32(1), SHAPE)
    variable = keras.Variable(
        lambda shape, dtype: taken_over(array), shape=SHAPE
    )
    variable.assign_add(np.ones(SHAPE, "float32"))
    assert array[0, 0] == 1
    assert (keras.ops.convert_to_numpy(variable) == 2).all()


def test_nothing_is_copied():
    array = whole("float32")
    tensor = taken_over(array)
    array[0, 0] = 100
    assert float(tensor[0, 0]) == 100


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_weights_of_every_dtype_are_loaded(dtype):
    if dtype == "float64" and keras.backend.backend() == "jax":
        pytest.skip("JAX has no float64 unless it is switched on.")
    model = keras_vit.load_checkpoint("fractals", dtype=dtype)
    whole = keras_vit.load_checkpoint("fractals")
    for found, expected in zip(model.weights, whole.weights, strict=True):
        assert keras.backend.standardize_dtype(found.dtype) == dtype
        np.testing.assert_allclose(
            keras.ops.convert_to_numpy(found).astype("float32"),
            keras.ops.convert_to_numpy(expected),
            rtol=0.01,
            atol=1e-3,
        )


def test_a_load_that_fails_leaves_nothing_behind(monkeypatch):
    def fail(array):
        raise ValueError("No room.")

    with monkeypatch.context() as patched:
        patched.setattr(loading, "taken_over", fail)
        with pytest.raises(ValueError, match="No room"):
            keras_vit.load_checkpoint("fractals")
    assert keras_vit.load_checkpoint("fractals").count_params() > 0
