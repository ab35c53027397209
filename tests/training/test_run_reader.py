"""Runs whose images Pillow reads: the same as TensorFlow's, and resumed."""

import keras
import numpy as np
import pytest
from tiny_runs import DATASET, Interrupt, recipe, values

from keras_vit import data
from keras_vit.training import train
from keras_vit.training.run import files as run_folder
from keras_vit.training.run import resume

# Of images that are not resized, whose pixels are the same to the bit.
OPTIONS = {
    "augmentation": data.AugmentationConfig(shift=0.2, mixup_alpha=0.2),
}


def run(folder, reader, *callbacks, **options):
    asked = recipe(folder, data=data.DataConfig(reader=reader), **options)
    plain = data.PreprocessingConfig(train="squash", evaluation="squash")
    fields = {**vars(asked), **OPTIONS, "preprocessing": plain}
    return train(type(asked)(**fields), dataset=DATASET, callbacks=callbacks)


def assert_same(one, other):
    for x, y in zip(values(one.model), values(other.model), strict=True):
        np.testing.assert_array_equal(x, y)
    for name in ("loss", "val_loss", "val_accuracy"):
        assert one.history[name] == other.history[name]


@pytest.fixture(scope="module")
def by_pillow(tmp_path_factory):
    return run(tmp_path_factory.mktemp("runs") / "pillow", "pillow")


def test_the_weights_are_those_of_a_run_that_tensorflow_reads(
    by_pillow, tmp_path
):
    pytest.importorskip("tensorflow")
    assert_same(by_pillow, run(tmp_path / "run", "tensorflow"))


def test_a_run_resumes_to_the_same_weights_with_its_own_reader(
    by_pillow, tmp_path
):
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "run", "pillow", Interrupt())
    with pytest.raises(ValueError, match="reader: was 'pillow', now 'tensorfl"):
        run(tmp_path / "run", "tensorflow")
    # Where nothing is asked for, what it began with.
    assert_same(by_pillow, run(tmp_path / "run", "auto"))
    config = run_folder.read_config(tmp_path / "run")
    assert config["data"]["reader"] == "pillow"


def test_what_read_the_images_is_in_the_config(by_pillow):
    config = run_folder.read_config(by_pillow.folder)
    asked = recipe(by_pillow.folder)
    other = recipe(by_pillow.folder, data=data.DataConfig(reader="tensorflow"))
    config |= {"augmentation": {}, "preprocessing": {}}
    found = resume.differences(config, asked)
    assert not any("reader" in line for line in found)
    found = resume.differences(config, other)
    assert "data.reader: was 'pillow', now 'tensorflow'" in found
    # Before there was the option, TensorFlow read.
    del config["data"]["reader"]
    found = resume.differences(config, other)
    assert not any("reader" in line for line in found)


def test_batches_are_cut_for_accumulated_gradients(tmp_path):
    pytest.importorskip("tensorflow")
    parts = {"epochs": 1, "accumulation_steps": 2}
    runs = [
        run(tmp_path / reader, reader, training=parts)
        for reader in ("pillow", "tensorflow")
    ]
    assert_same(*runs)


def test_several_processes_of_tensorflow_need_its_reader(monkeypatch, tmp_path):
    monkeypatch.setattr(keras.backend, "backend", lambda: "tensorflow")
    with pytest.raises(ValueError, match=r"from tf\.data"):
        run(tmp_path / "run", "pillow", distribution="multiworker")
    assert not (tmp_path / "run").exists()
