"""Compares pixels with big_vision's own operations.

Not for a plain run of the tests: tools/conformance.py gives the folder of
big_vision's repository. Its files are loaded with stand-ins for packages that
the operations on images do not compute with, and for tensorflow_addons, which
has had no release for the TensorFlow here: the kernels of TensorFlow that it
called, with its matrices.
"""

import importlib
import itertools
import math
import os
import sys
import types

import numpy as np
import pytest
import tensorflow as tf
from listed import reason_of

from keras_vit.data.augmentation import OPERATIONS
from keras_vit.data.config import PreprocessingConfig
from keras_vit.data.resizing import Geometry, evaluation_crop

SIZES = ((40, 60), (60, 40), (33, 33), (17, 90))
MAGNITUDES = (0.0, 2.0, 5.0, 9.0, 10.0)
GREY = [128] * 3


def transformed(images, matrix):
    return tf.raw_ops.ImageProjectiveTransformV3(
        images=images[None],
        transforms=tf.cast([[*matrix, 0.0, 0.0]], tf.float32),
        output_shape=tf.shape(images)[:2],
        fill_value=0.0,
        interpolation="NEAREST",
    )[0]


def rotate(images, angles):
    height, width = (float(x - 1) for x in images.shape[:2])
    cosine, sine = math.cos(angles), math.sin(angles)
    left = (width - (cosine * width - sine * height)) / 2
    top = (height - (sine * width + cosine * height)) / 2
    return transformed(images, [cosine, -sine, left, sine, cosine, top])


def translate(images, translations):
    x, y = translations
    return transformed(images, [1, 0, -x, 0, 1, -y])


def transform(images, transforms):
    return transformed(images, transforms[:6])  # the last two are 0


def theirs(name):
    folder = os.environ.get("SUITE_FOLDER", "")
    if not os.path.isdir(os.path.join(folder, "big_vision")):
        pytest.skip("big_vision is not here", allow_module_level=True)
    sys.path.insert(0, folder)
    image = types.SimpleNamespace(
        rotate=rotate, translate=translate, transform=transform
    )
    for missing, members in {
        "big_vision.utils": {},
        "tensorflow_addons": {"image": image},
    }.items():
        module = types.ModuleType(missing)
        vars(module).update(members)
        sys.modules.setdefault(missing, module)
    return importlib.import_module(f"big_vision.pp.{name}")


ops = theirs("ops_image")
augment = theirs("archive.autoaugment")


@pytest.fixture(autouse=True)
def listed(request):
    if reason := reason_of(request.node.nodeid):
        marker = pytest.mark.xfail(strict=True, reason=reason)
        request.node.add_marker(marker)


def assert_alike(found, expected):
    """Sums of floats that are whole numbers may end a little below."""
    apart = np.abs(found.astype(int) - expected)
    assert apart.max() <= 1 and np.mean(apart > 0) < 0.03


def drawn(height, width, seed=0):
    random = np.random.default_rng(seed)
    return random.integers(0, 256, (height, width, 3)).astype("uint8")


def prepared(image, **fields):
    size = (24, 24)
    config = PreprocessingConfig(**fields)
    return np.asarray(evaluation_crop(image, Geometry(size, 3, config)))


@pytest.mark.parametrize("size", SIZES)
def test_the_shorter_side_is_resized_and_the_middle_cut_out(size):
    image = drawn(*size)
    pixels = ops.get_resize_small(28)({"image": tf.constant(image)})
    expected = ops.get_central_crop(24)(pixels)["image"].numpy()
    found = prepared(image, resize_size=28)
    assert_alike(found, expected)


@pytest.mark.parametrize("size", SIZES)
def test_an_image_is_squashed(size):
    image = drawn(*size)
    expected = ops.get_resize(24)({"image": tf.constant(image)})["image"]
    found = prepared(image, evaluation="squash")
    assert_alike(found, expected.numpy())


@pytest.mark.parametrize(
    ("name", "magnitude", "negative"),
    list(itertools.product(OPERATIONS, MAGNITUDES, (False, True))),
)
def test_operations_of_randaugment(name, magnitude, negative, monkeypatch):
    monkeypatch.setattr(
        augment, "_randomly_negate_tensor", lambda x: -x if negative else x
    )
    # Our first number decides the direction: below a half, it is negative.
    shares = (0.25 if negative else 0.75, 0.6)
    where = tf.constant(shares)
    image = drawn(40, 44, seed=3)
    centre = iter(int(x * y) for x, y in zip((40, 44), shares, strict=True))
    monkeypatch.setattr(
        augment.tf, "random_uniform", lambda **_: tf.constant(next(centre))
    )
    hparams = augment.HParams(cutout_const=40, translate_const=100)
    function, _, arguments = augment._parse_policy_info(
        name, 0.5, magnitude, GREY, hparams
    )
    expected = function(tf.constant(image), *arguments).numpy()
    ours, strength = OPERATIONS[name]
    found = ours(tf.constant(image), strength(magnitude), where).numpy()
    assert_alike(found, expected)
