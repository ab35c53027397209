"""`preprocess_input`: what it refuses, and how it says so."""

import re

import keras
import numpy as np
import pytest
from image_kinds import KINDS, PIXELS, TENSORS

from keras_vit.preprocessing import preprocess_input

BAD_VALUES = {
    "NaN": ([np.nan, 3.0, 255.0], "NaN or infinity"),
    "infinity": ([np.inf, 3.0, 255.0], "NaN or infinity"),
    "preprocessed": ([-1.0, 0.5, 1.0], "-1 to 1. Do not preprocess twice"),
    "overshoot": ([-3.5, 0.5, 251.0], "clip what a bicubic resize"),
    "16 bits": ([0.0, 900.0, 65535.0], "65535. Divide 16 bits by 257"),
    "scaled": ([0.0, 0.5, 1.0], "0 to 1. Multiply images in [0, 1] by 255"),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("case", BAD_VALUES)
def test_bad_values_are_named(case, kind):
    pixels, message = BAD_VALUES[case]
    images = KINDS[kind](np.array([[pixels]], "float32"))
    with pytest.raises(ValueError, match=re.escape(message)):
        preprocess_input(images)


@pytest.mark.parametrize("kind", ["numpy", *TENSORS])
@pytest.mark.parametrize("pixel", [-1, 256])
def test_bad_integers_are_named(pixel, kind):
    images = KINDS[kind](np.full((2, 2, 3), pixel, "int32"))
    with pytest.raises(ValueError, match=str(pixel)):
        preprocess_input(images)


@pytest.mark.parametrize("dtype", ["uint8", "int32", "float32"])
def test_images_of_zeros_and_ones_are_very_dark(dtype):
    images = np.array([[[0, 1, 1]]], dtype)
    expected = [[[-1.0, -253 / 255, -253 / 255]]]
    np.testing.assert_allclose(preprocess_input(images), expected, atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", [(2, 3), (1, 1, 2, 2, 3)])
def test_rank_other_than_3_or_4(shape, kind):
    images = KINDS[kind](np.zeros(shape, "uint8"))
    with pytest.raises(ValueError, match=re.escape(f"{shape}")):
        preprocess_input(images)


def test_rank_of_a_keras_tensor():
    with pytest.raises(ValueError, match="rank"):
        preprocess_input(keras.Input((3,)))


def test_a_number_is_no_image():
    with pytest.raises(ValueError, match="rank"):
        preprocess_input(255)


def test_grey_pil_image_is_told_to_convert():
    grey = pytest.importorskip("PIL.Image").fromarray(PIXELS).convert("L")
    with pytest.raises(ValueError, match=re.escape('image.convert("RGB")')):
        preprocess_input(grey)


@pytest.mark.parametrize("dtype", ["bool", "complex64", "str", "object"])
def test_dtype_that_holds_no_pixels(dtype):
    with pytest.raises(ValueError, match="integers or floating point"):
        preprocess_input(PIXELS.astype(dtype))


@pytest.mark.parametrize("kind", TENSORS)
@pytest.mark.parametrize("dtype", ["bool", "complex64"])
def test_dtype_of_a_tensor_that_holds_no_pixels(dtype, kind):
    images = KINDS[kind](PIXELS.astype(dtype))
    with pytest.raises(ValueError, match="integers or floating point"):
        preprocess_input(images)


def test_images_of_different_sizes():
    with pytest.raises(ValueError, match="of one size"):
        preprocess_input([PIXELS, PIXELS[:1]])


def test_unknown_data_format():
    with pytest.raises(ValueError, match="'NHWC'"):
        preprocess_input(PIXELS, data_format="NHWC")
