"""Memory that large arrays are read into."""

import numpy as np
import pytest

from keras_vit.checkpoints.files import tensors

LARGE = (tensors.LARGE // 4 + 3,)  # numbers of float32


@pytest.mark.parametrize("order", ["C", "F"])
def test_large_arrays_start_at_a_page(order):
    array = tensors.empty((3, tensors.LARGE), np.dtype("float16"), order)
    assert array.ctypes.data % 4096 == 0
    assert (
        getattr(array.flags, f"{order.lower()}_contiguous")
        and array.flags.writeable
    )


@pytest.mark.parametrize("shape", [(), (0,), (2, 3), (2, tensors.LARGE)])
def test_stacks_as_numpy_does(shape):
    random = np.random.default_rng(0)
    arrays = [random.random(shape, "float32") for _ in range(3)]
    np.testing.assert_array_equal(
        tensors.stacked(arrays, -1), np.stack(arrays, -1)
    )


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("place", [0, LARGE[0] // 2, -1])
def test_one_number_that_is_not_finite_is_found(value, place):
    array = np.full(LARGE, np.finfo("float32").max, "float32")
    assert tensors.is_finite(array)
    array[place] = value
    assert not tensors.is_finite(array)
