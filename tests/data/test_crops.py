"""Resizing and cropping against NumPy and what the original code calls."""

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from keras_vit.data.config import PreprocessingConfig
from keras_vit.data.dataset import Examples
from keras_vit.data.image_reader import crop_window, image_reader
from keras_vit.data.resizing import Geometry, resize
from keras_vit.data.seeds import key
from keras_vit.io.checks import check_size


def noise(height, width, channels=3):
    shape = (height, width, channels)
    return np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)


def bilinear(image, size):
    """Half-pixel centres, no antialiasing, edges repeated."""
    result = image.astype(float)
    for axis, length in enumerate(size):
        old = result.shape[axis]
        source = (np.arange(length) + 0.5) * old / length - 0.5
        low = np.floor(source).astype(int)
        weight = (source - low).reshape(
            [-1 if i == axis else 1 for i in range(3)]
        )
        below = result.take(np.clip(low, 0, old - 1), axis)
        above = result.take(np.clip(low + 1, 0, old - 1), axis)
        result = (1 - weight) * below + weight * above
    return result


def area(image, size):
    """Mean over the part of the image that each pixel covers."""
    result = image.astype(float)
    for axis, length in enumerate(size):
        old = result.shape[axis]
        edges = np.arange(length + 1) * old / length
        starts = np.arange(old)
        cover = np.clip(
            np.minimum(edges[1:, None], starts + 1)
            - np.maximum(edges[:-1, None], starts),
            0,
            None,
        )
        cover /= cover.sum(1, keepdims=True)
        result = np.moveaxis(np.tensordot(cover, result, (1, axis)), 0, axis)
    return result


def prepared(image, crop, size, example=0, **options):
    """An image as `image_reader` makes it."""
    config = PreprocessingConfig(**options)
    examples = Examples(image[None], np.array([0]))
    geometry = Geometry(check_size("", size), image.shape[-1], config)
    record = next(iter(examples.in_order()))
    record["example"] = tf.constant(example, tf.int64)
    result, readable = image_reader(examples, crop, geometry, 0)(record)
    assert readable
    return result.numpy()


def close(result, exact):
    """Equal to what is rounded down, unless that hangs on a float's error."""
    assert result.dtype == np.uint8
    assert result.shape == exact.shape
    difference = exact - result
    assert -0.01 < difference.min()
    assert difference.max() < 1.01


@pytest.mark.parametrize("size", [(7, 31), (23, 5)])
@pytest.mark.parametrize(
    ("method", "name"),
    [
        *((x, x) for x in ("box", "bilinear", "hamming", "bicubic")),
        ("lanczos3", "lanczos"),
    ],
)
def test_kernels_are_those_of_pillow(method, name, size):
    """Of numbers with fractions, which it has for a channel alone."""
    image = noise(13, 17, 1).astype("float32")
    found = resize(
        image, size, method=method, antialias=True, rounding="float32"
    )
    exact = Image.fromarray(image[..., 0]).resize(
        size[::-1], Image.Resampling[name.upper()]
    )
    np.testing.assert_allclose(
        found[..., 0], np.asarray(exact).clip(0, 255), atol=2e-3
    )


@pytest.mark.parametrize("size", [(8, 12), (40, 30)])
def test_squash_is_bilinear_without_antialiasing_rounded_down(size):
    image = noise(20, 25)
    close(prepared(image, "squash", size), bilinear(image, size))


def test_vision_transformer_keeps_fractions():
    image = noise(20, 25)
    result = prepared(image, "squash", (8, 12), rounding="float32")
    np.testing.assert_allclose(result, bilinear(image, (8, 12)), atol=1e-3)


@pytest.mark.parametrize(
    ("shape", "small"), [((30, 47), (10, 16)), ((47, 30), (16, 10))]
)
def test_resize_small_is_area_of_the_shorter_side(shape, small):
    image = noise(*shape)
    geometry = Geometry((8, 8), 3, PreprocessingConfig(resize_size=10))
    close(geometry.resize_small(image).numpy(), area(image, small))


@pytest.mark.parametrize("length", [100, 101])
def test_of_a_long_image_the_middle_is_scaled(length):
    image = noise(1, length)
    geometry = Geometry((4, 4), 3, PreprocessingConfig(resize_size=4))
    # As in a pipeline: in a graph, of an image of any size.
    any_size = tf.TensorSpec([None, None, 3], tf.uint8)
    resize = tf.function(geometry.resize_small, input_signature=[any_size])
    found = resize(image).numpy()
    start, stop = {100: (34, 66), 101: (34, 67)}[length]
    expected = image[:, start:stop].repeat(4, 0).repeat(4, 1)
    np.testing.assert_array_equal(found, expected)
    crop = prepared(image, "resize_small_central_crop", 4, resize_size=4)
    whole = image.repeat(4, 0).repeat(4, 1)
    first = (4 * length - 4) // 2
    np.testing.assert_array_equal(crop, whole[:, first : first + 4])


def test_resize_small_central_crop():
    image = noise(30, 47)
    result = prepared(image, "resize_small_central_crop", 8, resize_size=10)
    close(result, area(image, (10, 16))[1:9, 4:12])


def test_resize_central_crop():
    image = noise(30, 47)
    result = prepared(image, "resize_central_crop", (8, 6), resize_size=11)
    close(result, bilinear(image, (11, 11))[1:9, 2:8])


@pytest.mark.parametrize(
    ("crop", "whole"),
    [
        ("resize_small_random_crop", lambda x: area(x, (10, 16))),
        ("resize_random_crop", lambda x: bilinear(x, (10, 10))),
    ],
)
def test_random_crops_are_any_part(crop, whole):
    image = noise(30, 47)
    whole = whole(image)
    places = set()
    for example in range(60):
        result = prepared(image, crop, 8, example, resize_size=10)
        (found,) = [
            (top, left)
            for top in range(whole.shape[0] - 7)
            for left in range(whole.shape[1] - 7)
            if np.abs(whole[top : top + 8, left : left + 8] - result).max() < 2
        ]
        places.add(found)
    tops, lefts = map(set, zip(*places, strict=True))
    assert tops == set(range(whole.shape[0] - 7))
    assert lefts == set(range(whole.shape[1] - 7))


def windows(count, shape=(60, 80, 3)):
    draw = tf.function(
        lambda example: crop_window(shape, key("crop", 0, 0, example))
    )
    examples = tf.range(count, dtype=tf.int64)
    return np.array([draw(example).numpy() for example in examples])


def test_inception_crops_fill_their_ranges_and_go_no_further():
    top, left, height, width = windows(600).T
    share = height * width / (60 * 80)
    ratio = width / height
    # Sides are whole pixels.
    assert 0.045 < share.min() < 0.12
    assert 0.85 < share.max() <= 1
    assert 0.70 < ratio.min() < 0.80
    assert 1.25 < ratio.max() < 1.43
    assert top.min() == left.min() == 0
    # TensorFlow's sampler stops short of the last pixel.
    assert 58 <= (top + height).max() <= 60
    assert 78 <= (left + width).max() <= 80


@pytest.mark.parametrize("example", range(5))
def test_crops_of_the_whole_area_are_the_whole_image(example):
    image = noise(60, 60)
    found = prepared(image, "inception_crop", 8, example, least_area=1.0)
    assert np.abs(found - bilinear(image, (8, 8))).max() <= 1


def test_inception_crop_is_the_window_resized():
    image = noise(60, 80)
    for example, window in enumerate(windows(5)):
        top, left, height, width = window
        cut = image[top : top + height, left : left + width]
        result = prepared(image, "inception_crop", (16, 20), example)
        close(result, bilinear(cut, (16, 20)))


def read_encoded(data, crop, size, channels=3, example=0):
    examples = Examples(np.array([data], object), np.array([0]), kind="encoded")
    config = PreprocessingConfig()
    record = next(iter(examples.in_order()))
    record["example"] = tf.constant(example, tf.int64)
    geometry = Geometry(check_size("", size), channels, config)
    return image_reader(examples, crop, geometry, 0)(record)[0].numpy()


def test_jpeg_is_cropped_while_it_is_decoded_as_the_original_does():
    data = tf.io.encode_jpeg(noise(60, 80)).numpy()
    for example, window in enumerate(windows(5)):
        decoded = tf.image.decode_and_crop_jpeg(data, window, channels=3)
        result = read_encoded(data, "inception_crop", 16, example=example)
        close(result, bilinear(decoded.numpy(), (16, 16)))


def test_other_kinds_are_cropped_at_the_same_window():
    image = noise(60, 80)
    data = tf.io.encode_png(image).numpy()
    for example in range(3):
        np.testing.assert_array_equal(
            read_encoded(data, "inception_crop", 16, example=example),
            prepared(image, "inception_crop", 16, example),
        )


@pytest.mark.parametrize(
    ("image_size", "expected"), [(224, 256), (384, 448), (112, 128)]
)
def test_resize_sizes_are_those_of_big_vision(image_size, expected):
    geometry = Geometry((image_size, image_size), 3, PreprocessingConfig())
    assert geometry.smaller_side == expected
    assert geometry.both_sides == (expected, expected)


def test_a_crop_of_more_than_there_is_is_refused():
    with pytest.raises(ValueError, match="resize_size=100.*224x224"):
        Geometry((224, 224), 3, PreprocessingConfig(resize_size=100))


@pytest.mark.parametrize(
    "options",
    [
        {"train": "crop"},
        {"evaluation": "inception_crop"},
        {"resize_method": "cubic"},
        {"rounding": "uint16"},
        {"resize_size": 0},
    ],
)
def test_unknown_values_are_refused_by_name(options):
    ((name, value),) = options.items()
    with pytest.raises(ValueError, match=f"{name}(=|: ){value!r}"):
        PreprocessingConfig(**options)
