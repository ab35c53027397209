"""Data sets of tensorflow-datasets by name, without a network."""

import numpy as np
import pytest
import tensorflow_datasets as tfds

from keras_vit.data import (
    DataConfig,
    evaluation_batches,
    open_dataset,
    training_stream,
)
from keras_vit.data.tfds import PRESETS, named_builder, prepare

# Classes and parts as published: Table 4 of the paper and its appendix B.1.1.
PUBLISHED = {
    "cifar10": (10, "train[:98%]", "train[98%:]", "test"),
    "cifar100": (100, "train[:98%]", "train[98%:]", "test"),
    "oxford_iiit_pet": (37, "train[:90%]", "train[90%:]", "test"),
    "oxford_flowers102": (102, "train[:90%]", "train[90%:]", "test"),
    "imagenet2012": (1000, "train[:99%]", "train[99%:]", "validation"),
    "imagenette": (10, "train[:90%]", "train[90%:]", "validation"),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_presets_have_the_classes_and_the_splits_of_the_paper(name, tmp_path):
    with tfds.testing.mock_data(num_examples=12):
        dataset = open_dataset(DataConfig(name=name, data_dir=str(tmp_path)))
    num_classes, *splits = PUBLISHED[name]
    assert len(dataset.class_names) == num_classes
    parts = (dataset.train, dataset.validation, dataset.test)
    for part, split in zip(parts, splits, strict=True):
        assert len(part) == 12
        assert part.name_of(3) == f"{name}:{split}[3]"


def test_every_preset_is_tested_or_has_its_own_test():
    assert {*PUBLISHED, "imagenet21k"} == set(PRESETS)


@pytest.mark.parametrize("name", ["cifar10", "oxford_iiit_pet"])
def test_images_of_one_size_and_of_many_reach_the_model(name, tmp_path):
    with tfds.testing.mock_data(num_examples=12):
        dataset = open_dataset(DataConfig(name=name, data_dir=str(tmp_path)))
    assert dataset.train.kind == {"cifar10": "array"}.get(name, "encoded")
    stream = training_stream(
        dataset.train,
        len(dataset.class_names),
        image_size=16,
        channels=3,
        batch_size=4,
    )
    ((images, labels),) = stream.from_step(1).take(1)
    assert images.shape == (4, 16, 16, 3)
    assert images.numpy().std() > 1
    np.testing.assert_array_equal(labels.numpy().sum(-1), 1)


def test_one_label_field_or_another(tmp_path):
    with tfds.testing.mock_data(num_examples=12):
        config = DataConfig(
            name="cifar100", label_key="coarse_label", data_dir=str(tmp_path)
        )
        assert len(open_dataset(config).class_names) == 20
        config = DataConfig(
            name="cifar100", label_key="colour", data_dir=str(tmp_path)
        )
        with pytest.raises(ValueError, match="label_key='colour'.*'coarse_l"):
            open_dataset(config)


def test_several_labels_of_an_image_are_a_vector(tmp_path):
    with tfds.testing.mock_data(num_examples=5):
        config = DataConfig(
            name="imagenet2012_real",
            label_key="real_label",
            train_split="validation",
        )
        dataset = open_dataset(config)
    labels = dataset.train.labels
    assert labels.shape == (5, 1000)
    assert set(np.unique(labels)) == {0, 1}
    assert labels.sum(-1).min() > 1
    batches = evaluation_batches(
        dataset.train, image_size=8, channels=3, batch_size=4
    )
    found = [rows.numpy()[mask.numpy()] for _, rows, mask in batches]
    np.testing.assert_array_equal(np.concatenate(found), labels)


@pytest.mark.parametrize(
    ("wrong", "near"),
    [
        ("cifer10", "'cifar10'"),
        ("oxford_pets_iiit", "'oxford_iiit_pet'"),
        ("imagnet2012", "'imagenet2012'"),
        ("digit", "'digits'"),
    ],
)
def test_an_unknown_name_has_the_nearest_and_not_all(wrong, near, tmp_path):
    with pytest.raises(ValueError, match=f"'{wrong}'.*nearest.*{near}") as got:
        open_dataset(DataConfig(name=wrong, data_dir=str(tmp_path)))
    assert len(str(got.value)) < 500


def test_a_path_is_no_name(tmp_path):
    for name in (str(tmp_path), "./photos", "~/photos"):
        with pytest.raises(ValueError, match=f"no path.*'{name}'.*folder"):
            DataConfig(name=name)


@pytest.mark.parametrize("name", ["cifar10:1.9.9", "imagenette/huge"])
def test_an_unknown_version_or_config_is_named(name, tmp_path):
    with pytest.raises(ValueError, match=f"'{name}' cannot be opened"):
        open_dataset(DataConfig(name=name, data_dir=str(tmp_path)))


def test_manual_data_says_what_to_download_and_where_to_put_it(tmp_path):
    with pytest.raises(ValueError) as caught:
        open_dataset(DataConfig(name="imagenet2012", data_dir=str(tmp_path)))
    message = str(caught.value)
    assert "ILSVRC2012_img_train.tar" in message
    assert str(tmp_path / "downloads" / "manual") in message
    assert len(message) < 1500


def test_the_folder_for_manual_data_does_not_hang_on_the_config(tmp_path):
    builder = named_builder("diabetic_retinopathy_detection", str(tmp_path))
    assert builder.builder_config
    with pytest.raises(ValueError) as caught:
        prepare(builder, download=False)
    assert f"into {tmp_path / 'downloads' / 'manual'} " in str(caught.value)


def test_data_that_may_not_be_downloaded_is_named(tmp_path):
    config = DataConfig(name="cifar10", data_dir=str(tmp_path), download=False)
    with pytest.raises(ValueError, match="download is off.*--data_dir") as got:
        open_dataset(config)
    assert str(tmp_path) in str(got.value)


def test_a_failed_download_says_what_to_do(tmp_path, monkeypatch):
    def offline(self, *args, **options):
        raise ConnectionError("no route to host")

    monkeypatch.setattr(
        tfds.core.DatasetBuilder, "download_and_prepare", offline
    )
    config = DataConfig(name="cifar10", data_dir=str(tmp_path))
    with pytest.raises(ValueError, match="(?s)no route to host.*--data_dir"):
        open_dataset(config)


def test_imagenet21k_is_the_users(tmp_path):
    config = DataConfig(name="imagenet21k", data_dir=str(tmp_path))
    with pytest.raises(ValueError, match="image-net.org.*split full"):
        open_dataset(config)
