"""Fractals as a data set: examples, names, cache."""

import numpy as np
import pytest
from named_data import fractals as module
from named_data.fractals import (
    FractalConfig,
    fractal_images,
    fractals,
    open_fractals,
)

from keras_vit import data

SMALL = FractalConfig(num_classes=5, images_per_class=4, image_size=16)


@pytest.fixture(scope="module")
def small():
    return fractals(SMALL)


def test_examples_are_class_after_class(small):
    assert small.contents.shape == (20, 16, 16, 1)
    assert small.contents.dtype == np.uint8
    assert small.labels.tolist() == np.repeat(range(5), 4).tolist()
    assert small.name_of(7) == "fractals[7]"


def test_names_are_read():
    name = "fractals/num_classes=5,images_per_class=4,image_size=16"
    assert FractalConfig.from_name(name) == SMALL
    assert FractalConfig.from_name("fractals") == FractalConfig()


def test_other_names_are_not_fractals():
    config = data.DataConfig(name="fractal", download=False)
    with pytest.raises(ValueError, match="no data set 'fractal'"):
        data.open_dataset(config)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("fractal/seed=1", "Unknown data set: 'fractal/seed=1'"),
        ("fractals/classes=1", "num_classes, images_per_class, image_size"),
        ("fractals/seed=a", "whole numbers"),
        ("fractals/seed=-1", "whole numbers"),
        ("fractals/num_classes=1", "num_classes must be at least 2"),
        ("fractals/image_size=4", "image_size must be at least 8"),
        (f"fractals/seed={2**63}", "seed must be at least 0 and below"),
    ],
)
def test_wrong_names_are_explained(name, message):
    with pytest.raises(ValueError, match=message):
        FractalConfig.from_name(name)


@pytest.mark.parametrize("instances", [[0], [0, -1]])
def test_wrong_numbers_are_explained(instances):
    with pytest.raises(ValueError, match="one class and one instance"):
        fractal_images([0, 1], instances)


def test_opened_fractals_are_cut_into_parts():
    name = "fractals/num_classes=5,images_per_class=10,image_size=8"
    dataset = open_fractals(data.DataConfig(name=name))
    parts = (dataset.train, dataset.validation, dataset.test)
    assert [np.bincount(part.labels).tolist() for part in parts] == [
        [7] * 5,
        [1] * 5,
        [2] * 5,
    ]
    assert dataset.class_names[4] == "fractal_4"
    assert dataset.name == name
    names = {part.name_of(i) for part in parts for i in range(len(part))}
    assert len(names) == 50


def test_opened_fractals_have_no_splits_by_name():
    config = data.DataConfig(name="fractals", train_split="train[:5]")
    with pytest.raises(ValueError, match="validation_fraction"):
        open_fractals(config)


def test_opened_fractals_are_batched(small):
    batches = data.evaluation_batches(
        small,
        image_size=16,
        channels=3,
        batch_size=8,
        preprocessing=data.PreprocessingConfig(evaluation="squash"),
    )
    images = np.concatenate([batch[0].numpy() for batch in batches])[:20]
    np.testing.assert_array_equal(images[..., :1], small.contents)
    np.testing.assert_array_equal(images[..., 2:], small.contents)


def test_cached_images_are_read_and_not_made_again(
    small, tmp_path, monkeypatch
):
    made = fractals(SMALL, cache_dir=tmp_path / "new").contents
    np.testing.assert_array_equal(made, small.contents)
    monkeypatch.setattr(module, "images_of", None)
    read = fractals(SMALL, cache_dir=tmp_path / "new").contents
    np.testing.assert_array_equal(read, small.contents)
    assert isinstance(read, np.memmap)
    assert len(list((tmp_path / "new").iterdir())) == 1


def test_each_config_has_a_file_of_its_own(tmp_path):
    for seed, classes, images, size in [
        (0, 2, 1, 8),
        (1, 2, 1, 8),
        (0, 3, 1, 8),
        (0, 2, 2, 8),
        (0, 2, 1, 9),
    ]:
        fractals(FractalConfig(classes, images, size, seed), cache_dir=tmp_path)
    assert len(list(tmp_path.iterdir())) == 5


@pytest.mark.parametrize("size", [0, 200])
def test_spoilt_cache_is_explained(size, tmp_path):
    fractals(SMALL, cache_dir=tmp_path)
    (path,) = tmp_path.iterdir()
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(ValueError, match="Remove it"):
        fractals(SMALL, cache_dir=tmp_path)


def test_cache_of_another_shape_is_explained(tmp_path):
    fractals(SMALL, cache_dir=tmp_path)
    (path,) = tmp_path.iterdir()
    np.save(path, np.zeros((3, 4), np.uint8))
    with pytest.raises(ValueError, match=r"uint8 of shape \(3, 4\)"):
        fractals(SMALL, cache_dir=tmp_path)
