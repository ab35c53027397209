import numpy as np
import pytest
from sklearn.datasets import load_digits

from keras_vit import data
from keras_vit.data.splits import stratified_split

FRACTIONS = {"validation_fraction": 0.1, "test_fraction": 0.2}


@pytest.fixture(scope="module")
def labels():
    return load_digits().target


@pytest.fixture(scope="module")
def small():
    """The digits at their own size, so that no resampling is in the way."""
    return data.load("digits", image_size=(8, 8))


def test_split_holds_every_image_once(labels):
    parts = stratified_split(labels, seed=0, **FRACTIONS)
    together = np.sort(np.concatenate(parts))
    np.testing.assert_array_equal(together, np.arange(1797))


def test_split_sizes_are_the_fractions(labels):
    parts = stratified_split(labels, seed=0, **FRACTIONS)
    assert [len(part) for part in parts] == [1258, 180, 359]


def test_every_class_has_its_share_in_every_part(labels):
    shares = np.bincount(labels) / 1797
    for part in stratified_split(labels, seed=3, **FRACTIONS):
        counts = np.bincount(labels[part], minlength=10)
        assert np.abs(counts - shares * len(part)).max() < 1.5


def test_split_follows_its_seed(labels):
    first, again, other = (
        stratified_split(labels, seed=seed, **FRACTIONS)[2]
        for seed in (0, 0, 1)
    )
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


def test_images_and_labels_are_the_scans_of_the_split(small, labels):
    scans = np.rint(load_digits().images * 255 / 16)
    parts = stratified_split(labels, seed=0, **FRACTIONS)
    splits = (small.train, small.validation, small.test)
    for part, split in zip(parts, splits, strict=True):
        np.testing.assert_array_equal(split.images[..., 0], scans[part])
        np.testing.assert_array_equal(split.labels, labels[part])


def test_class_names_are_the_digits(small):
    assert small.class_names == tuple("0123456789")


def test_resized_images_stay_upright_and_in_place(small):
    large = data.load("digits", image_size=(32, 24)).test.images
    assert large.shape == (359, 32, 24, 1)
    assert large.dtype == np.uint8
    # Means over the pixels that one of the 8x8 became.
    blocks = large.reshape(359, 8, 4, 8, 3).mean(axis=(2, 4))
    scans = small.test.images[..., 0].astype(float)
    assert np.corrcoef(blocks.ravel(), scans.ravel())[0, 1] > 0.99


def test_colour_channels_repeat_the_grey(small):
    colour = data.load("digits", image_size=(8, 8), channels=3)
    np.testing.assert_array_equal(
        colour.test.images, np.repeat(small.test.images, 3, axis=-1)
    )


def test_unknown_data_set_names_the_known():
    with pytest.raises(ValueError, match="'digit'.*'digits'"):
        data.load("digit")


def test_a_label_is_missing():
    images = np.zeros((3, 8, 8, 1), "uint8")
    with pytest.raises(ValueError, match="labels of shape .2,. for 3 images"):
        data.Split(images, np.zeros(2, int))


def test_images_of_another_dtype_are_refused():
    with pytest.raises(ValueError, match="uint8.*float32"):
        data.Split(np.zeros((1, 8, 8, 1), "float32"), np.zeros(1, int))
