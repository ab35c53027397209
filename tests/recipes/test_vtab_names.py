"""The tasks of VTAB-1k by the names that every recipe takes."""

import numpy as np
import pytest
import vtab_builders
from named_data.sources import SOURCES
from vtab.dataset import open_vtab
from vtab.tasks import TASKS

from keras_vit import data
from keras_vit.data import DataConfig, open_dataset

pytest.importorskip("tensorflow_datasets")

CHOICE = {"train_split": "train800", "validation_split": "val200"}


def opened(name, **options):
    config = DataConfig(name=name, check_images="none", **options)
    return open_dataset(config, SOURCES)


@pytest.mark.parametrize(
    "name",
    [
        name if name in ("dtd", "kitti_distance") else slow
        for name in TASKS
        for slow in [pytest.param(name, marks=pytest.mark.slow)]
    ],
)
def test_every_task_is_a_data_set_by_name(name, mocked):
    # Noise may be all of one class, which `open_dataset` refuses.
    dataset = open_vtab(DataConfig(name=f"vtab/{name}"))
    assert dataset.name == f"vtab/{name}"
    assert len(dataset.class_names) == TASKS[name].num_classes
    assert dataset.validation is None
    assert TASKS[name].final in dataset.train.source
    assert TASKS[name].test in dataset.test.source


def test_the_splits_have_the_names_of_the_benchmark(mocked):
    choice = opened("vtab/dtd", **CHOICE, test_split="test")
    assert choice.train.source.endswith("train[:800]")
    assert choice.validation.source.endswith("validation[:200]")
    final = opened("vtab/dtd", train_split="train800val200")
    assert final.train.source.endswith("train[:800]+validation[:200]")


def test_a_trial_keeps_the_first_images(mocked):
    dataset = opened("vtab/dsprites_location", max_examples=5)
    assert len(dataset.train) == len(dataset.test) == 5
    batches = data.evaluation_batches(
        dataset.test, image_size=8, channels=3, batch_size=4
    )
    masks = [mask.numpy() for _, _, mask in batches]
    assert np.concatenate(masks).sum() == 5


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"train_split": "train800"}, "train800val200, or train800 and val200"),
        ({"train_split": "train[:800]"}, r"train\[:800\]"),
        ({"test_split": "validation"}, "test_split='validation'"),
    ],
)
def test_other_splits_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        opened("vtab/dtd", **options)


def test_unknown_tasks_are_named():
    with pytest.raises(ValueError, match="Unknown task of VTAB: 'imagenet'"):
        opened("vtab/imagenet")


def test_data_that_is_not_there_says_how_to_get_it(tmp_path):
    vtab_builders.describe(tmp_path, ["dtd"])
    with pytest.raises(ValueError, match="by hand into .*manual_dir"):
        opened("vtab/resisc45", data_dir=str(tmp_path), download=False)


def test_images_that_tensorflow_alone_reads_are_refused(mocked):
    config = data.DataConfig(
        name="vtab/smallnorb_azimuth", data_dir=mocked, reader="pillow"
    )
    with pytest.raises(ValueError, match="reader='pillow'.*to tensorflow"):
        data.open_dataset(config, SOURCES)
