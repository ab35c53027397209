"""Splits of tensorflow-datasets in memory, or read from their files."""

import dataclasses
from typing import Any

import numpy as np
import pytest
from numbered import PLAIN

from keras_vit.data import (
    DataConfig,
    evaluation_batches,
    open_dataset,
    tfds,
    training_stream,
)
from keras_vit.data.tfds import read_split


def test_labels_without_names_are_counted(prepared, monkeypatch):
    monkeypatch.setattr(tfds, "named_builder", lambda *_: prepared)
    config = DataConfig(
        name="shards", label_key="number", train_split="train[2:30]"
    )
    names = open_dataset(config).class_names
    assert names == tuple(map(str, range(28)))
    streamed = dataclasses.replace(config, memory_limit_mib=0)
    assert open_dataset(streamed).class_names == names


@pytest.mark.parametrize("limit", [0, 1])
def test_images_without_labels_are_refused(prepared, limit):
    with pytest.raises(ValueError, match="'train' of shards has labels below"):
        split_of(prepared, label_key="number", memory_limit_mib=limit)


def test_several_labels_of_a_stream_are_vectors(prepared):
    streamed, memory = (
        split_of(prepared, label_key="several", memory_limit_mib=limit)
        for limit in (0, 1)
    )
    labels = [record["label"].numpy() for record in streamed.in_order()]
    np.testing.assert_array_equal(labels, memory.labels)
    np.testing.assert_array_equal(memory.labels[6], [1, 1, 0, 0, 0])
    np.testing.assert_array_equal(memory.labels[4], np.zeros(5))


def test_missing_parts_are_cut_off_training(prepared, monkeypatch):
    monkeypatch.setattr(tfds, "named_builder", lambda *_: prepared)
    config = DataConfig(name="shards", label_key="several", memory_limit_mib=0)
    dataset = open_dataset(config)
    parts = (dataset.train, dataset.validation, dataset.test)
    assert [len(part) for part in parts] == [28, 4, 8]


@pytest.mark.parametrize("split", ["trian", "train[:9%"])
def test_an_unknown_split_is_named(prepared, split):
    with pytest.raises(ValueError, match="trian|9%"):
        split_of(prepared, split)


def split_of(builder, split="train", **options) -> Any:
    settings = {"name": "shards", "memory_limit_mib": 0}
    return read_split(builder, DataConfig(**{**settings, **options}), split)


def stream(examples, **options):
    return training_stream(
        examples,
        40,
        image_size=4,
        channels=1,
        batch_size=6,
        preprocessing=PLAIN,
        **options,
    )


def test_what_fits_is_in_memory_and_what_does_not_is_streamed(prepared):
    assert split_of(prepared, memory_limit_mib=1).kind == "encoded"
    streamed = split_of(prepared)
    assert streamed.kind == "record"
    assert len(streamed.records.files) == 3


SPLITS = ["train", "train[5:31]", "train[98%:]", "train[:5]+train[30:]"]


@pytest.mark.parametrize("split", SPLITS)
def test_a_stream_in_order_is_the_split(prepared, split):
    streamed, memory = (
        split_of(prepared, split, memory_limit_mib=limit) for limit in (0, 1)
    )
    assert len(streamed) == len(memory)
    labels = [int(record["label"]) for record in streamed.in_order()]
    np.testing.assert_array_equal(labels, memory.labels)


def test_an_epoch_of_a_stream_holds_each_image_once_in_its_order(prepared):
    source = stream(split_of(prepared))
    assert source.steps_per_epoch == 6
    epochs = []
    for epoch in range(3):
        taken = source.from_step(epoch * 6).take(6)
        shown = np.concatenate([x[:, 0, 0, 0].numpy() for x, _ in taken])
        assert len(set(shown)) == 36
        epochs.append(tuple(shown))
    assert len(set(epochs)) == 3


def test_a_stream_is_the_same_whatever_came_before(prepared):
    import keras

    source = stream(split_of(prepared))
    whole = [images.numpy() for images, _ in source.from_step(0).take(14)]
    keras.utils.set_random_seed(123)
    again = stream(split_of(prepared))
    later = [images.numpy() for images, _ in again.from_step(8).take(6)]
    np.testing.assert_array_equal(later, whole[8:])
    other = stream(split_of(prepared), seed=1)
    ((images, _),) = other.from_step(0).take(1)
    assert not np.array_equal(images, whole[0])


def test_names_of_a_step_of_a_stream_are_its_images(prepared):
    source = stream(split_of(prepared, "train[5:31]"))
    ((images, _),) = source.from_step(5).take(1)
    # 40 images in files of 13, 14 and 13.
    files = np.repeat(range(3), [13, 14, 13])
    first = np.array([0, 13, 27])
    numbers = images.numpy()[:, 0, 0, 0]
    expected = [
        f"tfrecord-0000{files[n]}-of-00003[{n - first[files[n]]}]"
        for n in numbers
    ]
    names = [name.rpartition(".")[2] for name in source.names_of(5)]
    assert names == expected


def test_a_stream_is_evaluated_once(prepared):
    batches = evaluation_batches(
        split_of(prepared),
        image_size=4,
        channels=1,
        batch_size=7,
        preprocessing=PLAIN,
    )
    found = [labels.numpy()[mask.numpy()] for _, labels, mask in batches]
    np.testing.assert_array_equal(np.concatenate(found), np.arange(40))


def test_max_examples_of_a_stream(prepared):
    assert len(split_of(prepared, max_examples=11)) == 11
