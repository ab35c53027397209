"""NumPy's resizing is TensorFlow's, by which models are evaluated."""

import numpy as np
import pytest

from keras_vit.data import PreprocessingConfig, image_reader
from keras_vit.data.config import (
    EVALUATION_CROPS,
    METHODS,
    evaluation_of,
    preprocessing_in,
)
from keras_vit.data.image_reader import OF_PILLOW
from keras_vit.data.resizing import (
    Geometry,
    evaluation_crop,
    evaluation_fields,
    resize,
)
from keras_vit.trained_as import TrainedAs

BY_BOTH = [x for x in EVALUATION_CROPS if x in image_reader.CROPS]
IMAGE = np.random.default_rng(0).integers(0, 256, (37, 53, 3), "uint8")


@pytest.mark.parametrize("size", [(16, 20), (90, 61), (37, 53), (37, 8)])
@pytest.mark.parametrize("antialias", [False, True])
@pytest.mark.parametrize("method", sorted({*METHODS} - {*OF_PILLOW}))
def test_every_method_is_tensorflows(method, antialias, size):
    tf = pytest.importorskip("tensorflow")
    found = resize(
        IMAGE, size, method=method, antialias=antialias, rounding="float32"
    )
    expected = tf.image.resize(IMAGE, size, method, antialias=antialias)
    expected = np.clip(expected.numpy(), 0, 255)
    # TensorFlow looks its bicubic kernel up in a table of 1,024 entries.
    tolerance = 0.5 if method == "bicubic" and not antialias else 0.01
    np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance)


@pytest.mark.parametrize("rounding", ["uint8", "float32"])
@pytest.mark.parametrize(
    "crop", sorted({*EVALUATION_CROPS} & {*image_reader.CROPS})
)
@pytest.mark.parametrize("resize_size", [None, 30])
def test_every_crop_is_that_of_evaluation(crop, resize_size, rounding):
    tf = pytest.importorskip("tensorflow")
    config = PreprocessingConfig(
        train="resize_central_crop",
        evaluation=crop,
        resize_size=resize_size,
        rounding=rounding,
    )
    geometry = Geometry((24, 18), 3, config)
    found = evaluation_crop(IMAGE, geometry)
    image = tf.constant(IMAGE)
    expected = image_reader.CROPS[crop](image, geometry, None).numpy()
    assert found.shape == (24, 18, 3)
    assert found.dtype == rounding
    # Rounded down, a difference in the last bit can be one level.
    tolerance = 1 if rounding == "uint8" else 0.01
    difference = np.abs(found.astype(float) - expected)
    assert difference.max() <= tolerance
    assert (difference > 0.01).mean() < 0.01


@pytest.mark.parametrize("crop", EVALUATION_CROPS)
@pytest.mark.parametrize("resize_size", [None, 30])
def test_the_record_of_a_run_prepares_the_same(crop, resize_size):
    """Where training alone reads a size before the crop, too."""
    config = PreprocessingConfig(
        train="resize_small_random_crop",
        evaluation=crop,
        resize_size=resize_size,
    )
    record = preprocessing_in(evaluation_fields(config, (24, 18)), "it")
    found, expected = (
        evaluation_crop(IMAGE, Geometry((24, 18), 3, x))
        for x in (record, config)
    )
    np.testing.assert_array_equal(found, expected)


# Of images of 224x224: what is before the crop, and what it is for others.
BEFORE = [
    ("resize_small_central_crop", 256, (448, 224), 512),
    ("resize_small_central_crop", 256, (224, 448), 512),
    ("resize_small_central_crop", (256, 280), (224, 448), 512),
    ("resize_small_central_crop", 256, (384, 384), 438),
    ("resize_central_crop", 256, (224, 448), 512),
    ("resize_central_crop", (256, 280), (224, 448), (256, 560)),
    ("shorter_side_crop", 256, (224, 448), 512),
    ("longer_side_pad", 224, (112, 448), 448),
]


@pytest.mark.parametrize(("crop", "before", "size", "expected"), BEFORE)
def test_the_size_before_a_crop_grows_with_the_image(
    crop, before, size, expected
):
    rule = {"evaluation": crop, "resize_size": before}
    known = TrainedAs(preprocessing=rule, image_size=(224, 224))
    found = evaluation_of(known, size)
    assert found.resize_size == expected
    assert Geometry(size, 3, found)
    assert evaluation_of(known).resize_size == before


@pytest.mark.parametrize("method", METHODS)
def test_a_box_is_what_the_whole_has_there(method):
    for size in [(16, 20), (90, 61), (37, 8)]:
        options = {"method": method, "rounding": "float32"}
        box = (slice(3, 11), slice(1, 8))
        found = resize(IMAGE, size, box=box, **options)
        whole = resize(IMAGE, size, **options)
        np.testing.assert_array_equal(found, whole[box])


@pytest.mark.parametrize("axis", [0, 1])
def test_of_a_long_image_only_what_is_left_is_scaled(axis):
    """Scaled as a whole one of 1x10000 pixels would take 8 GB."""
    line = np.random.default_rng(0).integers(0, 256, (1, 10_000, 3), "uint8")
    geometry = Geometry((224, 224), 3, PreprocessingConfig())
    found = evaluation_crop(np.moveaxis(line, 1, axis), geometry)
    # Every pixel becomes 256 times 256 of them, and the middle is left.
    first = (10_000 * 256 - 224) // 2
    columns = (first + np.arange(224)) // 256
    expected = np.moveaxis(line[:, columns], 1, axis)
    assert np.array_equal(found, np.broadcast_to(expected, found.shape))
    assert (found[0, 0] != found[-1, -1]).any()


def test_area_is_the_mean_of_the_pixels():
    image = np.arange(16.0).reshape(4, 4, 1)
    found = resize(image, (2, 2), method="area")
    assert found[..., 0].tolist() == [[2, 4], [10, 12]]  # 2.5, 4.5, ...


def test_memory_of_a_big_image_is_that_of_the_result():
    import tracemalloc

    image = np.zeros((2000, 2000, 3), "uint8")
    tracemalloc.start()
    resize(image, (16, 16), method="area")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < image.nbytes / 2
