"""VTAB-1k on mocked data sets of the right sizes."""

import re

import numpy as np
import pytest
from vtab.dataset import VtabSplit, open_vtab
from vtab.tasks import GROUPS, PAPER, TASKS

from keras_vit import data

tfds = pytest.importorskip("tensorflow_datasets")


tf = pytest.importorskip("tensorflow")


# Percents of the training images, in task_adaptation's *_PERCENT constants.
TRAIN_PERCENT = {
    "caltech101": 90,
    "cifar100": 90,
    "pets": 80,
    "svhn": 90,
    "eurosat": 60,
    "resisc45": 60,
    "clevr_count": 90,
    "clevr_distance": 90,
    "dsprites_location": 80,
    "dsprites_orientation": 80,
}


TEST_PERCENT = {
    "eurosat": 80,
    "resisc45": 80,
    "dsprites_location": 90,
    "dsprites_orientation": 90,
}


# Table 9's last column.
PAPER_MEANS = {
    "ViT-H/14 JFT": 77.6,
    "ViT-L/16 JFT": 76.3,
    "ViT-L/16 I21k": 72.7,
}


pytestmark = pytest.mark.usefixtures("sized")


UNSUPERVISED = (
    "dtd",
    "sun397",
    "retinopathy",
    "clevr_count",
    "dsprites_location",
    "kitti_distance",
)


def numbers(split):
    """The first and the last number of a slice, None where it is open."""
    found = re.fullmatch(r"(\w+)(?:\[(\d*):(\d*)\])?", split)
    assert found is not None
    name, first, last = found.groups()
    return name, int(first or 0), int(last) if last else None


@pytest.mark.parametrize("name", TASKS)
def test_task_opens_with_its_counts_and_labels(name, mocked):
    task = TASKS[name]
    dataset = open_vtab(data.DataConfig(name=f"vtab/{name}"))
    splits = dataset.test.builder.info.splits
    assert splits[task.train].num_examples == 800
    assert splits[task.validation].num_examples == 200
    assert splits[task.final].num_examples == 1000
    assert len(dataset.class_names) == task.num_classes
    labels = dataset.train.labels
    assert len(labels) == 7  # What is mocked, whatever the split.
    assert labels.min() >= 0 and labels.max() < task.num_classes
    batches = data.evaluation_batches(
        dataset.train, image_size=8, channels=3, batch_size=7
    )
    assert next(iter(batches))[0].shape == (7, 8, 8, 3)
    assert dataset.validation is None


TEST_SIZES = {
    "caltech101": 6084,
    "cifar100": 10_000,
    "dtd": 1880,
    "flowers102": 6149,
    "pets": 3669,
    "sun397": 21_750,
    "svhn": 26_032,
    "camelyon": 32_768,
    "eurosat": 5400,
    "resisc45": 6300,
    "retinopathy": 42_670,
    "clevr_count": 15_000,
    "clevr_distance": 15_000,
    "dmlab": 22_735,
    "dsprites_location": 73_728,
    "dsprites_orientation": 73_728,
    "kitti_distance": 711,
    "smallnorb_azimuth": 12_150,
    "smallnorb_elevation": 12_150,
}


@pytest.mark.parametrize("name", TASKS)
def test_tests_have_the_sizes_of_the_benchmark(name, mocked):
    """Table 2 of arXiv:1910.04867, retinopathy's as of btgraham-300."""
    builder = tfds.builder(TASKS[name].builder)
    test = VtabSplit(builder, TASKS[name], TASKS[name].test)
    assert len(test) == TEST_SIZES[name]


@pytest.mark.parametrize("name", TASKS)
def test_slices_are_cut_by_whole_percents(name):
    task = TASKS[name]
    assert numbers(task.train) == ("train", 0, 800)
    part, first, last = numbers(task.validation)
    assert last is not None and last - first == 200
    if name in TRAIN_PERCENT:
        assert part == "train"
        assert first == TRAIN_PERCENT[name] * task.sizes["train"] // 100
    else:
        assert first == 0
        assert part == ("test" if "smallnorb" in name else "validation")
    if name in TEST_PERCENT:
        size = task.sizes["train"]
        start = TEST_PERCENT[name] * size // 100
        assert numbers(task.test) == ("train", start, None)
    elif "smallnorb" in name:
        half = task.sizes["test"] // 2
        assert numbers(task.test) == ("test", half, None)
    else:
        assert task.test == ("validation" if "clevr" in name else "test")


def test_groups_are_those_of_the_benchmark():
    groups = [task.group for task in TASKS.values()]
    assert [groups.count(group) for group in GROUPS] == [7, 4, 8]
    assert groups == sorted(groups, key=GROUPS.index)


@pytest.mark.parametrize("model", PAPER)
def test_table_of_the_paper_has_its_mean(model):
    assert len(PAPER[model]) == len(TASKS)
    assert np.mean(PAPER[model]) == pytest.approx(PAPER_MEANS[model], abs=0.06)


@pytest.mark.parametrize("name", TASKS)
def test_versions_are_those_asked_for_or_the_drift_is_said(name, tmp_path):
    task = TASKS[name]
    builder = tfds.builder(task.builder, data_dir=tmp_path)
    _, _, asked = task.builder.partition(":")
    if asked:
        assert builder.version.match(asked)
        assert not task.drift
    else:
        assert f"{builder.version}" in task.drift


@pytest.mark.parametrize("name", TASKS)
def test_downloads_by_hand_are_said(name, tmp_path):
    builder = tfds.builder(TASKS[name].builder, data_dir=tmp_path)
    needed = bool(builder.MANUAL_DOWNLOAD_INSTRUCTIONS)
    assert bool(TASKS[name].by_hand) == needed


@pytest.mark.parametrize("name", UNSUPERVISED)
def test_no_supervised_keys(name, tmp_path):
    """Of these `as_supervised=True` would give no label."""
    builder = tfds.builder(TASKS[name].builder, data_dir=tmp_path)
    assert builder.info.supervised_keys is None


@pytest.mark.parametrize("name", UNSUPERVISED)
def test_data_sets_without_supervised_keys_have_labels(name, mocked):
    builder = tfds.builder(TASKS[name].builder)
    records = VtabSplit(builder, TASKS[name], TASKS[name].test).in_order()
    assert records.element_spec["label"] == tf.TensorSpec((), tf.int32)
    assert len(list(records)) == 7
