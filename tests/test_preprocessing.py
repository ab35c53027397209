"""`preprocess_input`: values, dtypes and kinds of images, also traced."""

import keras
import numpy as np
import pytest
from image_kinds import KINDS, PIXELS, SCALED, TENSORS, library
from keras import ops

from keras_vit.preprocessing import preprocess_input


def as_numpy(array):
    return np.asarray(ops.convert_to_numpy(array))


def trace(function):
    """Compiles a function as the backend does."""
    name = keras.backend.backend()
    compilers = {
        "jax": lambda: library("jax").jit(function),
        "tensorflow": lambda: library("tensorflow").function(function),
        "torch": lambda: library("torch").compile(function, backend="eager"),
    }
    return compilers[name]()


@pytest.fixture
def float16_floatx():
    before = keras.config.floatx()
    keras.config.set_floatx("float16")
    yield
    keras.config.set_floatx(before)


@pytest.mark.parametrize("dtype", ["uint8", "int32", "float32"])
@pytest.mark.parametrize("batch", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_scales_every_kind_of_image(kind, batch, dtype):
    pixels, expected = PIXELS, SCALED
    if batch:
        pixels, expected = np.stack([pixels, 255 - pixels]), [SCALED, -SCALED]
    images = KINDS[kind](pixels.astype(dtype))
    result = preprocess_input(images)
    np.testing.assert_allclose(as_numpy(result), expected, atol=1e-6)
    assert ops.is_tensor(result) == (kind in TENSORS)


def test_ends_of_the_range_are_exact():
    ends = np.array([[[0.0, 127.5, 255.0]]], "float32")
    np.testing.assert_array_equal(preprocess_input(ends), [[[-1.0, 0.0, 1.0]]])


@pytest.mark.parametrize("kind", ["numpy", *TENSORS])
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_floating_point_keeps_its_dtype(kind, dtype):
    result = preprocess_input(KINDS[kind](PIXELS.astype(dtype)))
    assert keras.backend.standardize_dtype(result.dtype) == dtype


def test_numpy_float64_stays_float64():
    assert preprocess_input(PIXELS.astype("float64")).dtype == "float64"


def test_bfloat16_tensor_stays_bfloat16():
    result = preprocess_input(ops.cast(PIXELS, "bfloat16"))
    assert keras.backend.standardize_dtype(result.dtype) == "bfloat16"
    np.testing.assert_allclose(
        as_numpy(ops.cast(result, "float32")), SCALED, atol=2**-8
    )


@pytest.mark.parametrize("kind", ["numpy", *TENSORS])
def test_integers_become_floatx(kind, float16_floatx):
    result = preprocess_input(KINDS[kind](PIXELS))
    assert keras.backend.standardize_dtype(result.dtype) == "float16"


@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_numpy_input_is_not_changed(dtype):
    images = PIXELS.astype(dtype)
    before = images.tobytes()
    result = preprocess_input(images)
    assert images.tobytes() == before
    assert not np.shares_memory(result, images)


@pytest.mark.parametrize("dtype", ["uint8", "float32"])
@pytest.mark.parametrize("kind", TENSORS)
def test_tensor_input_is_not_changed(kind, dtype):
    images = KINDS[kind](PIXELS.astype(dtype))
    preprocess_input(images)
    assert np.asarray(images).tobytes() == PIXELS.astype(dtype).tobytes()


@pytest.mark.parametrize("data_format", ["channels_first", "channels_last"])
def test_data_format_does_not_change_the_values(data_format):
    result = preprocess_input(PIXELS, data_format=data_format)
    np.testing.assert_allclose(result, SCALED, atol=1e-6)


def test_one_channel_keeps_its_shape():
    assert preprocess_input(PIXELS[..., :1]).shape == (2, 1, 1)


def test_no_images_give_no_images():
    images = np.zeros((0, 8, 8, 3), "float32")
    assert preprocess_input(images).shape == (0, 8, 8, 3)
    images = ops.convert_to_tensor(images)
    assert tuple(preprocess_input(images).shape) == (0, 8, 8, 3)


def test_pil_images():
    image = pytest.importorskip("PIL.Image").fromarray(PIXELS)
    result = preprocess_input(image)
    np.testing.assert_allclose(result, SCALED, atol=1e-6)
    result = preprocess_input([image, image])
    np.testing.assert_allclose(result, [SCALED, SCALED], atol=1e-6)
    assert result.dtype == "float32"


@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_in_tf_data_with_any_backend(dtype):
    tf = library("tensorflow")
    dataset = tf.data.Dataset.from_tensor_slices(PIXELS[np.newaxis])
    dataset = dataset.map(lambda image: tf.cast(image, dtype))
    (result,) = dataset.map(preprocess_input)
    assert isinstance(result, tf.Tensor)
    assert result.dtype == tf.float32
    np.testing.assert_allclose(result, SCALED, atol=1e-6)


def test_in_tf_data_on_images_of_unknown_rank():
    tf = library("tensorflow")
    png = tf.io.encode_png(PIXELS)
    dataset = tf.data.Dataset.from_tensors(png).map(tf.io.decode_image)
    assert dataset.element_spec.shape.rank is None
    (result,) = dataset.map(preprocess_input)
    np.testing.assert_allclose(result, SCALED, atol=1e-6)


def test_in_tf_data_on_floating_point_of_unknown_rank():
    tf = library("tensorflow")
    spec = tf.TensorSpec(None, tf.float32)
    dataset = tf.data.Dataset.from_generator(
        lambda: [PIXELS.astype("float32")], output_signature=spec
    )
    (result,) = dataset.map(preprocess_input)
    np.testing.assert_allclose(result, SCALED, atol=1e-6)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's compiler
@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_traced(dtype):
    images = ops.convert_to_tensor(PIXELS.astype(dtype))
    result = trace(preprocess_input)(images)
    np.testing.assert_allclose(as_numpy(result), SCALED, atol=1e-6)


def test_mapped_over_a_batch():
    images = ops.convert_to_tensor(PIXELS[np.newaxis].astype("float32"))
    result = ops.vectorized_map(preprocess_input, images)
    np.testing.assert_allclose(as_numpy(result)[0], SCALED, atol=1e-6)


def test_torch_tensor_that_needs_a_gradient():
    torch = library("torch")
    images = torch.tensor(PIXELS.astype("float32"), requires_grad=True)
    if keras.backend.backend() != "torch":
        pytest.skip("gradients of torch go through torch only")
    preprocess_input(images).sum().backward()
    np.testing.assert_allclose(images.grad, np.full_like(SCALED, 1 / 127.5))


@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_inside_a_functional_model(dtype, tmp_path):
    inputs = keras.Input((2, 1, 3), dtype=dtype)
    model = keras.Model(inputs, preprocess_input(inputs))
    images = PIXELS[np.newaxis].astype(dtype)
    np.testing.assert_allclose(model(images)[0], SCALED, atol=1e-6)
    model.save(tmp_path / "model.keras")
    model = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_allclose(model(images)[0], SCALED, atol=1e-6)
