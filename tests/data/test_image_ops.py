"""Each operation of RandAugment against NumPy or Pillow."""

import math

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image, ImageEnhance, ImageFilter, ImageOps

from keras_vit.data.augmentation import OPERATIONS

FUNCTIONS = {function.__name__: function for function, _ in OPERATIONS.values()}
ANYWHERE = np.array([0.3, 0.7], "float32")  # Draws a minus sign.
OTHERWISE = np.array([0.6, 0.2], "float32")  # Draws a plus sign.
# ITU-R 601-2 as TensorFlow rounds it.
GREY = np.array([0.2989, 0.587, 0.114])


def noise(height=13, width=17, channels=3, low=0, high=256):
    generator = np.random.default_rng(0)
    shape = (height, width, channels)
    return generator.integers(low, high, shape, dtype=np.uint8)


def scene():
    """Few levels that are not as frequent: what equalize is for."""
    rows, columns = np.indices((24, 30))
    planes = [rows * columns % 97 + 20, rows // 3 * 9 + 5, columns % 7 * 3]
    return np.stack(planes, -1).astype(np.uint8)


def run(name, image, strength=None, where=ANYWHERE):
    """What TensorFlow and NumPy make of an image, which is the same."""
    found = FUNCTIONS[name](tf.constant(image), strength, where).numpy()
    arrays = FUNCTIONS[name](image, strength, where)
    assert arrays.dtype == found.dtype
    np.testing.assert_array_equal(arrays, found)
    return found


def nearest(image, source):
    """Reads image at source(x, y), rounded; grey outside."""
    height, width, _ = image.shape
    result = np.full_like(image, 128)
    for y in range(height):
        for x in range(width):
            source_x, source_y = source(x, y)
            column = math.floor(source_x + 0.5)
            row = math.floor(source_y + 0.5)
            if 0 <= row < height and 0 <= column < width:
                result[y, x] = image[row, column]
    return result


@pytest.mark.parametrize("image", [noise(low=40, high=200), scene()])
def test_autocontrast(image):
    low, high = image.min((0, 1)), image.max((0, 1))
    exact = (image - low.astype(float)) * 255 / (high - low.astype(float))
    # Cut off to whole numbers; what is whole may come out just below.
    assert np.abs(run("autocontrast", image) - np.floor(exact)).max() <= 1
    pillow = np.asarray(ImageOps.autocontrast(Image.fromarray(image)))
    assert np.abs(run("autocontrast", image).astype(int) - pillow).max() <= 1


def test_autocontrast_of_one_level_is_the_image():
    image = np.full((4, 5, 3), 77, np.uint8)
    np.testing.assert_array_equal(run("autocontrast", image), image)


@pytest.mark.parametrize("image", [noise(40, 50, high=90), scene()])
def test_equalize_is_pillows(image):
    pillow = np.asarray(ImageOps.equalize(Image.fromarray(image)))
    np.testing.assert_array_equal(run("equalize", image), pillow)


def test_equalize_of_few_pixels_is_the_image():
    image = noise(4, 5)
    np.testing.assert_array_equal(run("equalize", image), image)


def test_invert_is_pillows():
    pillow = np.asarray(ImageOps.invert(Image.fromarray(noise())))
    np.testing.assert_array_equal(run("invert", noise()), pillow)


@pytest.mark.parametrize("bits", [1, 4, 8])
def test_posterize_is_pillows(bits):
    pillow = ImageOps.posterize(Image.fromarray(noise()), bits)
    np.testing.assert_array_equal(run("posterize", noise(), bits), pillow)


def test_posterize_keeps_the_first_bit_and_of_more_than_eight_the_image():
    np.testing.assert_array_equal(run("posterize", noise(), 0), noise() & 128)
    np.testing.assert_array_equal(run("posterize", noise(), 12), noise())


@pytest.mark.parametrize("threshold", [0, 77, 256, 512])
def test_solarize_is_pillows(threshold):
    pillow = ImageOps.solarize(Image.fromarray(noise()), threshold)
    np.testing.assert_array_equal(run("solarize", noise(), threshold), pillow)


@pytest.mark.parametrize("addition", [0, 55, 110, 220])
def test_solarize_add(addition):
    image = noise().astype(int)
    expected = np.where(image < 128, np.minimum(image + addition, 255), image)
    np.testing.assert_array_equal(
        run("solarize_add", noise(), addition), expected
    )


@pytest.mark.parametrize("factor", [0.1, 0.7, 1.0, 1.9])
@pytest.mark.parametrize("name", ["color", "contrast", "brightness"])
def test_blends(name, factor):
    image = noise()
    grey = np.floor(image @ GREY + 0.5)[..., None]
    start = {
        "color": grey,
        "contrast": np.floor(grey.mean()),
        "brightness": 0.0,
    }[name]
    expected = np.floor(np.clip(start + factor * (image - start), 0, 255))
    assert np.abs(run(name, image, factor) - expected).max() <= 1


@pytest.mark.parametrize("factor", [0.1, 1.9])
@pytest.mark.parametrize(
    ("name", "enhance"),
    [
        ("color", ImageEnhance.Color),
        ("contrast", ImageEnhance.Contrast),
        ("brightness", ImageEnhance.Brightness),
        ("sharpness", ImageEnhance.Sharpness),
    ],
)
def test_blends_are_pillows_but_for_rounding(name, enhance, factor):
    image = noise(30, 40)
    pillow = np.asarray(enhance(Image.fromarray(image)).enhance(factor))
    result = run(name, image, factor).astype(int)
    assert np.abs(result - pillow).max() <= 2


def test_sharpness_smooths_with_pillows_kernel_and_leaves_the_border():
    image = noise(30, 40)
    smooth = Image.fromarray(image).filter(ImageFilter.SMOOTH)
    result = run("sharpness", image, 0.0).astype(int)
    assert np.abs(result - np.asarray(smooth)).max() <= 1
    for edge in (np.s_[0], np.s_[-1], np.s_[:, 0], np.s_[:, -1]):
        np.testing.assert_array_equal(result[edge], image[edge])


@pytest.mark.parametrize(("where", "sign"), [(ANYWHERE, -1), (OTHERWISE, 1)])
def test_rotate(where, sign):
    image, angle = noise(), sign * 0.4
    expected = nearest(
        image,
        lambda x, y: (
            8 + math.cos(angle) * (x - 8) - math.sin(angle) * (y - 6),
            6 + math.sin(angle) * (x - 8) + math.cos(angle) * (y - 6),
        ),
    )
    np.testing.assert_array_equal(run("rotate", image, 0.4, where), expected)


@pytest.mark.parametrize(("where", "sign"), [(ANYWHERE, -1), (OTHERWISE, 1)])
@pytest.mark.parametrize(
    ("name", "strength", "source"),
    [
        ("shear_x", 0.29, lambda x, y, s: (x + s * y, y)),
        ("shear_y", 0.29, lambda x, y, s: (x, y + s * x)),
        ("translate_x", 4.0, lambda x, y, s: (x + s, y)),
        ("translate_y", 4.0, lambda x, y, s: (x, y + s)),
    ],
)
def test_shears_and_translations(name, strength, source, where, sign):
    expected = nearest(noise(), lambda x, y: source(x, y, sign * strength))
    np.testing.assert_array_equal(run(name, noise(), strength, where), expected)


@pytest.mark.parametrize("where", [(0.5, 0.5), (0.0, 0.99)])
def test_cutout_is_a_grey_square_that_the_border_cuts(where):
    image = noise(20, 30)
    row, column = int(where[0] * 20), int(where[1] * 30)
    expected = image.copy()
    expected[max(row - 4, 0) : row + 4, max(column - 4, 0) : column + 4] = 128
    where = np.array(where, "float32")
    np.testing.assert_array_equal(run("cutout", image, 4, where), expected)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_grey_images_are_taken(name):
    image = noise(channels=1)
    strengths = {"posterize": 4, "solarize": 100, "solarize_add": 50}
    strengths |= {"cutout": 3}
    result = run(name, image, strengths.get(name, 0.9))
    assert result.shape == image.shape
    assert result.dtype == np.uint8
