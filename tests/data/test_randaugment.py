import math

import numpy as np
import pytest
import tensorflow as tf

from keras_vit.data import augmentation
from keras_vit.data.augmentation import OPERATIONS, rand_augment
from keras_vit.data.seeds import key


def noise(side=24, channels=3):
    shape = (side, side, channels)
    return np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)


def augmented(image, example=0, epoch=0, seed=0, **options):
    drawn = key("rand_augment", seed, epoch, example)
    found = rand_augment(tf.constant(image), drawn, **options).numpy()
    # NumPy makes the same of it.
    np.testing.assert_array_equal(rand_augment(image, drawn, **options), found)
    return found


# Strengths at magnitude 10 and 15 by hand from EfficientNet's ranges, which
# AugReg used: 30 degrees, 4 bits, level 256, 1.8 + 0.1, 0.3, 100 pixels, half
# a side of 40 pixels, 110 levels, at a magnitude of 10.
STRENGTHS = {
    "AutoContrast": (None, None),
    "Equalize": (None, None),
    "Invert": (None, None),
    "Rotate": (math.pi / 6, math.pi / 4),
    "Posterize": (4, 6),
    "Solarize": (256, 384),
    "Color": (1.9, 2.8),
    "Contrast": (1.9, 2.8),
    "Brightness": (1.9, 2.8),
    "Sharpness": (1.9, 2.8),
    "ShearX": (0.3, 0.45),
    "ShearY": (0.3, 0.45),
    "TranslateX": (100, 150),
    "TranslateY": (100, 150),
    "Cutout": (40, 60),
    "SolarizeAdd": (110, 165),
}


def test_strengths_are_those_of_the_original():
    assert list(OPERATIONS) == list(STRENGTHS)
    for name, (_, strength) in OPERATIONS.items():
        for magnitude, expected in zip((10, 15), STRENGTHS[name], strict=True):
            if expected is None:
                assert strength(magnitude) is None
            else:
                assert strength(magnitude) == pytest.approx(expected)


def test_each_operation_has_a_function_of_its_own():
    for name, (function, _) in OPERATIONS.items():
        assert function.__name__.replace("_", "") == name.lower()


def test_every_operation_is_drawn_about_as_often(monkeypatch):
    marks = {
        name: (lambda image, strength, where, i=i: image * 0 + i, strength)
        for i, (name, (_, strength)) in enumerate(OPERATIONS.items())
    }
    monkeypatch.setattr(augmentation, "OPERATIONS", marks)
    function = tf.function(
        lambda example: rand_augment(
            tf.zeros((1, 1, 1), tf.uint8),
            key("rand_augment", 0, 0, example),
            num_layers=1,
        )
    )
    examples = tf.range(1600, dtype=tf.int64)
    drawn = [int(function(example)[0, 0, 0]) for example in examples]
    counts = np.bincount(drawn, minlength=16)
    # Binomial(1600, 1/16): 100 with a standard deviation of 9.7.
    assert len(counts) == 16
    assert counts.min() > 60
    assert counts.max() < 140


def test_layers_follow_each_other(monkeypatch):
    add_one = {"Add": (lambda image, *_: image + 1, lambda magnitude: None)}
    monkeypatch.setattr(augmentation, "OPERATIONS", add_one)
    image = np.zeros((2, 2, 3), np.uint8)
    np.testing.assert_array_equal(augmented(image, num_layers=3), image + 3)


def test_both_directions_are_drawn(monkeypatch):
    only = {"TranslateX": OPERATIONS["TranslateX"]}
    monkeypatch.setattr(augmentation, "OPERATIONS", only)
    filled_left = [
        (augmented(noise(), i, num_layers=1, magnitude=1)[:, 0] == 128).all()
        for i in range(40)
    ]
    assert 8 < sum(filled_left) < 32


def test_the_same_key_gives_the_same_image_and_another_key_another():
    first = augmented(noise(), example=3, epoch=1, seed=5)
    again = augmented(noise(), example=3, epoch=1, seed=5)
    np.testing.assert_array_equal(first, again)
    for change in ({"example": 4}, {"epoch": 2}, {"seed": 6}):
        others = [
            augmented(noise(), **{"example": 3, "epoch": 1, "seed": 5, **more})
            for more in (
                {name: value + i for name, value in change.items()}
                for i in range(4)
            )
        ]
        assert any(not np.array_equal(first, other) for other in others)


def test_magnitude_zero_is_not_the_identity():
    results = [augmented(noise(), i, magnitude=0) for i in range(12)]
    assert any(not np.array_equal(result, noise()) for result in results)


@pytest.mark.parametrize("magnitude", [15, 20, 30])
def test_magnitudes_above_ten_are_taken(magnitude):
    for example in range(30):
        result = augmented(noise(channels=1), example, magnitude=magnitude)
        assert result.shape == (24, 24, 1)


def test_posterize_keeps_the_first_bit_at_small_magnitudes():
    # TensorFlow, by which the original shifts, clamps shifts of bytes to 7.
    function, strength = OPERATIONS["Posterize"]
    for magnitude in (0, 2):
        shift = tf.constant(8 - strength(magnitude), tf.uint8)
        expected = tf.bitwise.left_shift(
            tf.bitwise.right_shift(noise(), shift), shift
        )
        found = function(tf.constant(noise()), strength(magnitude), None)
        np.testing.assert_array_equal(found, expected)
        assert len(np.unique(found)) == 2
