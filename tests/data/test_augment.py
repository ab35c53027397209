import numpy as np
import pytest

from keras_vit.data.augment import RandomAffine, affine_transform

AUGMENT = RandomAffine(shift=0.2, rotation=30, zoom=0.2)


def noise(count=4, height=12, width=10):
    shape = (count, height, width, 3)
    return np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)


def transformed(images, shift=(0, 0), angle=0.0, scale=1.0):
    count = len(images)
    return affine_transform(
        images,
        shift=np.tile(np.array(shift, float), (count, 1)),
        angle=np.full(count, angle),
        scale=np.full(count, scale),
    )


def test_zero_strength_changes_nothing():
    images = noise()
    same = RandomAffine()(images, [0, 1, 2, 3], seed=0, epoch=0)
    np.testing.assert_array_equal(same, images)


def test_identity_transform_is_exact():
    np.testing.assert_array_equal(transformed(noise()), noise())


def test_shift_is_a_roll_with_zeros_for_what_comes_in():
    images = noise()
    expected = np.roll(images, (2, -3), axis=(1, 2))
    expected[:, :2] = 0
    expected[:, :, -3:] = 0
    np.testing.assert_array_equal(transformed(images, (2, -3)), expected)


def test_half_a_pixel_is_the_mean_of_two():
    images = noise()
    expected = np.rint(images[:, 1:] / 2 + images[:, :-1] / 2)
    result = transformed(images, (0.5, 0))
    np.testing.assert_array_equal(result[:, 1:], expected)


@pytest.mark.parametrize("turns", [1, 2, 3])
def test_quarter_turns_are_counter_clockwise(turns):
    images = noise(height=10, width=10)
    result = transformed(images, angle=turns * np.pi / 2)
    np.testing.assert_array_equal(result, np.rot90(images, turns, axes=(1, 2)))


def test_scale_enlarges_about_the_centre():
    # Bilinear sampling is exact on a plane.
    rows, columns = np.indices((11, 11))
    plane = (100 + 4 * (rows - 5) - 8 * (columns - 5)).astype(np.uint8)
    result = transformed(plane[None, :, :, None], scale=2.0)
    expected = 100 + 2 * (rows - 5) - 4 * (columns - 5)
    np.testing.assert_array_equal(result[0, ..., 0], expected)


def test_same_seed_epoch_and_example_give_the_same_image():
    first = AUGMENT(noise(), [5, 6, 7, 8], seed=1, epoch=2)
    again = AUGMENT(noise(), [5, 6, 7, 8], seed=1, epoch=2)
    np.testing.assert_array_equal(first, again)


def test_an_image_does_not_depend_on_its_batch():
    images = noise()
    together = AUGMENT(images, [5, 6, 7, 8], seed=1, epoch=2)
    alone = AUGMENT(images[2:3], [7], seed=1, epoch=2)
    reversed_ = AUGMENT(images[::-1], [8, 7, 6, 5], seed=1, epoch=2)
    np.testing.assert_array_equal(together[2:3], alone)
    np.testing.assert_array_equal(together, reversed_[::-1])


@pytest.mark.parametrize(
    "other",
    [
        {"examples": [6], "seed": 1, "epoch": 2},
        {"examples": [5], "seed": 0, "epoch": 2},
        {"examples": [5], "seed": 1, "epoch": 3},
    ],
)
def test_another_seed_epoch_or_example_gives_another_image(other):
    first = AUGMENT(noise(1), [5], seed=1, epoch=2)
    assert not np.array_equal(first, AUGMENT(noise(1), **other))


def test_shifts_fill_their_bounds_and_go_no_further():
    # One bright pixel in the middle; 0.2 of 21 pixels is 4.2.
    images = np.zeros((300, 21, 21, 1), np.uint8)
    images[:, 10, 10] = 255
    moved = RandomAffine(shift=0.2)(images, range(300), seed=0, epoch=0)
    weights = moved[..., 0] / moved.sum(axis=(1, 2, 3))[:, None, None]
    offsets = weights.sum(axis=2) @ np.arange(21) - 10  # down
    assert -4.3 < offsets.min() < -3.9
    assert 3.9 < offsets.max() < 4.3
    assert abs(offsets.mean()) < 0.5


@pytest.mark.parametrize(
    "bounds", [{"shift": 1.0}, {"zoom": -0.1}, {"rotation": 180}]
)
def test_bounds_out_of_range_are_refused(bounds):
    (name,) = bounds
    with pytest.raises(ValueError, match=name):
        RandomAffine(**bounds)
