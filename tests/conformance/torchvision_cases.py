"""Compares resized, cropped and padded images with torchvision's transforms.

Not for a plain run of the tests: tools/conformance.py gives the folder of
torchvision's wheel. Its compiled operators are for GPUs; the transforms use
none of them, and the two that an import looks up are declared here.
"""

import importlib
import os
import sys
from typing import Any

import numpy as np
import pytest
import torch
from listed import reason_of
from PIL import Image

from keras_vit.data.config import PreprocessingConfig
from keras_vit.data.resizing import (
    ASPECT_RATIO_RANGE,
    EVALUATION_CROPS,
    LEAST_AREA,
    Geometry,
    evaluation_crop,
    inception_window,
    resize,
)
from keras_vit.data.seeds import key

# Larger and smaller than 24 pixels, with an even and an odd rest.
SIZES = ((40, 60), (61, 40), (33, 33), (17, 90), (20, 15))
sizes = pytest.mark.parametrize(
    "size", SIZES, ids=[f"{height}x{width}" for height, width in SIZES]
)
METHODS = ("nearest", "bilinear", "bicubic", "lanczos", "box", "hamming")
NAMES = {"lanczos": "lanczos3"}  # ours, where another
COLOUR = (9, 130, 250)
DRAWN = 4000
# The distance between two samples of that size of one distribution is smaller
# in 999 of 1000 cases (Kolmogorov, Smirnov).
ALIKE = 1.95 * (2 / DRAWN) ** 0.5


def theirs() -> Any:
    folder = os.environ.get("SUITE_FOLDER", "")
    if not os.path.isdir(os.path.join(folder, "torchvision")):
        pytest.skip("torchvision is not here", allow_module_level=True)
    sys.path.insert(0, folder)
    library = torch.library.Library("torchvision", "FRAGMENT")
    for name in ("nms", "qnms"):
        boxes = "Tensor boxes, Tensor scores, float threshold"
        library.define(f"{name}({boxes}) -> Tensor")
    return importlib.import_module("torchvision.transforms.v2")


transforms = theirs()
functional: Any = transforms.functional


@pytest.fixture(autouse=True)
def listed(request):
    if reason := reason_of(request.node.nodeid):
        marker = pytest.mark.xfail(strict=True, reason=reason)
        request.node.add_marker(marker)


def drawn(size):
    random = np.random.default_rng(0)
    return random.integers(0, 256, (*size, 3)).astype("uint8")


def prepared(image, size=(24, 24), **fields):
    fields = {"rounding": "nearest", "antialias": True, **fields}
    config = PreprocessingConfig(**fields)
    return np.asarray(evaluation_crop(image, Geometry(size, 3, config)))


@pytest.mark.parametrize("method", METHODS)
@sizes
def test_the_shorter_side_of_a_picture_is_resized(size, method):
    image = drawn(size)
    pixels = functional.resize(Image.fromarray(image), [28], method)
    expected = functional.center_crop(pixels, [24])
    found = prepared(
        image,
        evaluation="cover_crop",
        resize_size=28,
        resize_method=NAMES.get(method, method),
    )
    np.testing.assert_array_equal(found, np.asarray(expected))


@pytest.mark.parametrize("method", METHODS)
@sizes
def test_both_sides_of_a_picture_are_resized(size, method):
    image = drawn(size)
    expected = functional.resize(Image.fromarray(image), [21, 30], method)
    method = NAMES.get(method, method)
    found = prepared(image, (21, 30), evaluation="squash", resize_method=method)
    np.testing.assert_array_equal(found, np.asarray(expected))


@pytest.mark.parametrize("antialias", [True, False], ids=["smooth", "sharp"])
@pytest.mark.parametrize(
    "method", ["nearest", "nearest-exact", "bilinear", "bicubic"]
)
@sizes
def test_tensors_are_resized(size, method, antialias):
    image = drawn(size)
    pixels = torch.from_numpy(image).movedim(2, 0).float()
    expected = functional.resize(
        pixels, [21, 30], method, antialias=antialias
    ).clip(0, 255)
    found = resize(
        image,
        (21, 30),
        method=method.removesuffix("-exact"),
        antialias=antialias,
        rounding="float32",
    )
    expected = expected.movedim(0, 2).numpy()
    np.testing.assert_allclose(found, expected, atol=2e-3)


@pytest.mark.parametrize("longest", [24, 31, 50])
@sizes
def test_the_longer_side_is_resized(size, longest):
    pixels = torch.zeros((3, *size))
    expected = functional.resize(pixels, None, max_size=longest).shape[1:]
    config = PreprocessingConfig(evaluation="longer_side_pad")
    crop = EVALUATION_CROPS["longer_side_pad"]
    found = crop.size_of(size, Geometry((longest, longest), 3, config))
    assert found == tuple(expected)


@pytest.mark.parametrize("wanted", [(24, 24), (23, 40), (70, 95)])
@sizes
def test_the_middle_is_cut_out_or_padded(size, wanted):
    image = drawn(size)
    expected = functional.center_crop(Image.fromarray(image), wanted)
    found = prepared(image, wanted, evaluation="cover_crop", resize_size=size)
    np.testing.assert_array_equal(found, np.asarray(expected))


@sizes
def test_padding_has_a_colour(size):
    image = drawn(size)
    config = PreprocessingConfig(evaluation="longer_side_pad")
    geometry = Geometry((24, 24), 3, config)
    inside = EVALUATION_CROPS["longer_side_pad"].size_of(size, geometry)
    pixels = functional.resize(Image.fromarray(image), inside, "bilinear")
    below, right = np.subtract(24, inside).tolist()
    expected = functional.pad(pixels, [0, 0, right, below], COLOUR)
    found = prepared(image, evaluation="longer_side_pad", padding_colour=COLOUR)
    np.testing.assert_array_equal(found, np.asarray(expected))


@pytest.fixture(scope="module")
def boxes():
    """Boxes of random crops (top, left, height, width): ours and theirs."""
    height, width = 500, 500
    torch.manual_seed(0)
    crop = transforms.RandomResizedCrop(
        24, scale=(LEAST_AREA, 1.0), ratio=ASPECT_RATIO_RANGE
    )
    image = torch.zeros((3, height, width))
    ours = [
        inception_window(height, width, key("crop", 0, 0, x))
        for x in range(DRAWN)
    ]
    drawn = (crop.make_params([image]) for _ in range(DRAWN))
    expected = [[x["top"], x["left"], x["height"], x["width"]] for x in drawn]
    return np.array(ours, "float64"), np.array(expected, "float64")


# What is drawn of a box (top, left, height, width), in an image of 500x500.
DRAWS = {
    "area": lambda x: x[:, 2] * x[:, 3],
    "ratio": lambda x: x[:, 3] / x[:, 2],
    "top": lambda x: x[:, 0] / np.maximum(500 - x[:, 2], 1),
    "left": lambda x: x[:, 1] / np.maximum(500 - x[:, 3], 1),
}


@pytest.mark.parametrize("what", DRAWS)
def test_random_boxes_have_a_distribution(what, boxes):
    ours, expected = (np.sort(DRAWS[what](x)) for x in boxes)
    both = np.concatenate([ours, expected])
    shares = [
        np.searchsorted(x, both, "right") / DRAWN for x in (ours, expected)
    ]
    assert np.max(np.abs(np.subtract(*shares))) < ALIKE
