import logging
import os
import subprocess
import sys

import numpy as np
import pytest
from sklearn.datasets import load_digits

from keras_vit.data import DataConfig, open_dataset, tfds
from keras_vit.data.dataset import stratified_split


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
    return str(tmp_path_factory.mktemp("data"))


def test_the_digits_are_those_of_scikit_learn_in_its_order(data_dir):
    builder = tfds.digits_builder(data_dir)
    examples = list(builder.as_dataset(split="train").as_numpy_iterator())
    images = np.stack([example["image"][..., 0] for example in examples])
    source = load_digits()
    np.testing.assert_array_equal(images, np.rint(source.images * 255 / 16))
    labels = [example["label"] for example in examples]
    np.testing.assert_array_equal(labels, source.target)


def test_tensorflow_datasets_warns_of_its_own_code_in_silence(data_dir):
    tfds.digits_builder(data_dir)
    logger = logging.getLogger("absl")

    def passes(text):
        level = logging.WARNING
        record = logging.LogRecord("absl", level, "", 0, text, (), None)
        return bool(logger.filter(record))

    assert not passes("`FeatureConnector.dtype` is deprecated. Please")
    assert passes("Something else")


def test_the_parts_are_the_stratified_split(data_dir):
    digits = open_dataset(DataConfig(name="digits", data_dir=data_dir))
    labels = load_digits().target
    indices = stratified_split(
        labels, validation_fraction=0.1, test_fraction=0.2, seed=0
    )
    parts = (digits.train, digits.validation, digits.test)
    for part, index in zip(parts, indices, strict=True):
        np.testing.assert_array_equal(part.labels, labels[index])
        assert part.name_of(0) == f"digits:train[{index[0]}]"
    assert digits.class_names == tuple("0123456789")
    assert digits.name == "digits"


def test_split_strings_are_taken(data_dir):
    config = DataConfig(
        name="digits",
        data_dir=data_dir,
        train_split="train[:100]",
        test_split="train[-10:]",
    )
    digits = open_dataset(config)
    target = load_digits().target
    np.testing.assert_array_equal(digits.train.labels, target[:100])
    np.testing.assert_array_equal(digits.test.labels, target[-10:])
    assert digits.validation is None


def test_the_second_time_nothing_is_written(data_dir, monkeypatch):
    tfds.digits_builder(data_dir)
    monkeypatch.setattr(tfds, "_prepare_digits", None)
    tfds.digits_builder(data_dir)


def test_they_are_kept_under_keras_home(monkeypatch, tmp_path):
    monkeypatch.setenv("KERAS_HOME", str(tmp_path))
    builder = tfds.digits_builder()
    assert str(builder.data_dir).startswith(str(tmp_path))


@pytest.mark.slow
def test_several_processes_prepare_them_at_once(tmp_path):
    command = (
        "from keras_vit.data.tfds import digits_builder;"
        f"builder = digits_builder({str(tmp_path)!r});"
        "print(len(list(builder.as_dataset(split='train'))))"
    )
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", command],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(3)
    ]
    outputs = [process.communicate() for process in processes]
    assert [out.strip() for out, _ in outputs] == ["1797"] * 3, outputs
    # Nothing but the data is left.
    assert os.listdir(tmp_path) == [tfds.DIGITS]
    assert os.listdir(tmp_path / tfds.DIGITS) == ["1.0.0"]


def test_who_comes_second_uses_what_is_there(tmp_path, data_dir):
    # The other process finishes while this one prepares.
    builder = tfds._digits_class()
    original = builder.download_and_prepare

    def slower(self, *args, **options):
        original(self, *args, **options)
        tfds.digits_builder(str(tmp_path))

    final = tmp_path / tfds.DIGITS / tfds.DIGITS_VERSION
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(builder, "download_and_prepare", slower)
        calls = iter([builder, tfds._digits_class()])
        patch.setattr(tfds, "_digits_class", lambda: next(calls))
        tfds._prepare_digits(final)
    assert tfds.digits_builder(str(tmp_path)).is_prepared()


def test_a_folder_that_cannot_be_written_to_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match="cannot be written.*data_dir"):
        tfds.digits_builder(str(tmp_path / "file"))
