import numpy as np
import pytest
from sklearn.datasets import load_digits

from keras_vit.data import DataConfig, open_dataset
from keras_vit.data.dataset import stratified_split

TARGET = load_digits().target


def test_the_digits_are_those_of_scikit_learn_in_its_order():
    config = DataConfig(name="digits", train_split="train")
    digits = open_dataset(config).train
    images = np.rint(load_digits().images * 255 / 16)
    assert digits.contents.dtype == np.uint8
    np.testing.assert_array_equal(digits.contents[..., 0], images)
    np.testing.assert_array_equal(digits.labels, TARGET)


def test_the_parts_are_the_stratified_split():
    digits = open_dataset(DataConfig(name="digits"))
    indices = stratified_split(
        TARGET, validation_fraction=0.1, test_fraction=0.2, seed=0
    )
    parts = (digits.train, digits.validation, digits.test)
    for part, index in zip(parts, indices, strict=True):
        np.testing.assert_array_equal(part.labels, TARGET[index])
        assert part.name_of(0) == f"digits:train[{index[0]}]"
    assert digits.class_names == tuple("0123456789")
    assert digits.name == "digits"


# The bounds of percentages are rounded: 1797 * 0.98 is 1761.06.
@pytest.mark.parametrize(
    ("split", "start", "stop"),
    [
        ("train", 0, 1797),
        ("train[:100]", 0, 100),
        ("train[16:24]", 16, 24),
        ("train[-10:]", 1787, 1797),
        ("train[:98%]", 0, 1761),
        ("train[98%:]", 1761, 1797),
        ("train[-50%:]", 899, 1797),
    ],
)
def test_splits_are_parts_of_train(split, start, stop):
    config = DataConfig(name="digits", train_split=split, test_split="train")
    digits = open_dataset(config)
    np.testing.assert_array_equal(digits.train.labels, TARGET[start:stop])
    assert digits.train.name_of(0) == f"digits:train[{start}]"
    assert digits.validation is None
    assert len(digits.test) == 1797


def test_parts_are_joined():
    split = "train[-5:]+train[:16]+train[16:24]"
    digits = open_dataset(DataConfig(name="digits", train_split=split)).train
    np.testing.assert_array_equal(digits.labels, [*TARGET[-5:], *TARGET[:24]])
    assert digits.name_of(5) == "digits:train[0]"


@pytest.mark.parametrize(
    "split",
    ["test", "train[5:5]", "train+test", "train[:5]+", "train[:5]+test"],
)
def test_other_splits_are_refused(split):
    with pytest.raises(ValueError, match="1797 images, as .*Received: '.*'"):
        open_dataset(DataConfig(name="digits", train_split=split))


def test_few_are_the_first_of_them_before_they_are_cut():
    digits = open_dataset(DataConfig(name="digits", max_examples=200))
    parts = (digits.train, digits.validation, digits.test)
    assert [len(part) for part in parts] == [140, 20, 40]
    labels = np.concatenate([part.labels for part in parts])
    np.testing.assert_array_equal(np.sort(labels), np.sort(TARGET[:200]))


def test_a_name_of_your_own_is_opened_by_its_function():
    def opener(config):
        assert config.name == "own/few"
        return open_dataset(DataConfig(train_split="train[:50]"))

    dataset = open_dataset(DataConfig(name="own/few"), {"own": opener})
    assert len(dataset.train) == 50
