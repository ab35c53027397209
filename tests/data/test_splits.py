import numpy as np
import pytest
from sklearn.datasets import load_digits

from keras_vit.data.dataset import stratified_split

FRACTIONS = {"validation_fraction": 0.1, "test_fraction": 0.2}


@pytest.fixture(scope="module")
def labels():
    return load_digits().target


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
