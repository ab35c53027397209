"""What a training sees of its features, and what it ends for."""

import dataclasses
import pathlib

import numpy as np
import pytest
from PIL import Image
from tiny_runs import DATASET, recipe

from keras_vit import data
from keras_vit.training import train
from keras_vit.training.tasks import (
    DISTILLATION,
    MAE,
    DistillConfig,
    MAEConfig,
)
from keras_vit.training.tasks.feature_watch import (
    collapsed_features,
    feature_statistics,
    first_batches,
    watched,
)


@dataclasses.dataclass(frozen=True)
class Made(type(recipe("run"))):
    """A recipe with the options of the methods."""

    mae: MAEConfig = MAEConfig(0.5, True, 8, 1, 2, 8, collapse_steps=4)
    distill: DistillConfig = DistillConfig(collapse_steps=4)


def made(run_dir, **options):
    return Made(**vars(recipe(run_dir, **options)))


def of_images(images):
    same = data.Examples(images, np.zeros(len(images), "int32"))
    return data.Dataset(same, same, same, ("one",))


def test_spread_and_rank_are_those_of_plain_features():
    """Two of one direction and its opposite; then as many each way."""
    line = np.array([[3.0, 0], [2, 0], [-1, 0], [-9, 0]])
    line = feature_statistics(np.tile(line, (2, 1)))
    assert line == pytest.approx({"feature_spread": 1, "feature_rank": 1})
    cross = np.concatenate([np.eye(3), -2 * np.eye(3)])
    found = feature_statistics(np.tile(cross, (2, 1)))
    assert found == pytest.approx({"feature_spread": 1, "feature_rank": 3})
    # A mean of length 0.8 leaves 1 - 0.8**2 to the deviations.
    near = np.tile([[0.8, 0.6], [0.8, -0.6]], (4, 1))
    near = feature_statistics(near)
    assert near == pytest.approx({"feature_spread": 0.6, "feature_rank": 1})
    same = feature_statistics(np.ones((5, 3)))
    assert same["feature_spread"] < 1e-6


@pytest.mark.parametrize("count", [1, 2, 7, 8])
def test_few_images_are_no_collapse(count):
    """One has no others, and N span at most N - 1 directions."""
    features = np.random.default_rng(count).normal(size=(count, 5))
    found = feature_statistics(features)
    assert collapsed_features(found) is None
    assert ("feature_spread" in found, "feature_rank" in found) == (
        count > 1,
        count > 7,
    )


def test_images_are_the_real_ones_and_the_middle_of_larger_ones():
    x = np.arange(5 * 4 * 4).reshape(5, 4, 4, 1)
    weights = np.array([1, 1, 0, 1, 0])
    batches = [({"image": x}, None, weights), ({"image": x}, None, weights)]
    found = first_batches(batches, (2, 2))
    assert len(found) == 2
    for images, real in found:
        np.testing.assert_array_equal(images, x[:, 1:3, 1:3])
        np.testing.assert_array_equal(real, weights > 0)
    many = [(np.zeros((200, 2, 2, 1)), None)] * 3
    assert len(first_batches(many, (2, 2))) == 2


@pytest.fixture(scope="module")
def teacher(tmp_path_factory):
    folder = tmp_path_factory.mktemp("teacher") / "run"
    return str(train(recipe(folder), dataset=DATASET).folder)


def test_constant_images_end_a_run_with_the_best_model_kept(teacher, tmp_path):
    images = np.full((24, 8, 8, 1), 100, "uint8")
    for name, task in (("mae", MAE), ("distill", DISTILLATION)):
        folder = tmp_path / name
        options = made(folder, training={"epochs": 4})
        distill = dataclasses.replace(options.distill, teacher=teacher)
        options = dataclasses.replace(options, distill=distill)
        with pytest.raises(ValueError, match=f"are the same.*{name}.collapse"):
            train(options, dataset=of_images(images), task=task)
        assert (folder / "model.keras").exists()


@pytest.mark.parametrize("name", ["mae", "distill"])
def test_one_image_is_refused(name, tmp_path):
    task = {"mae": MAE, "distill": DISTILLATION}[name]
    images = of_images(np.zeros((1, 8, 8, 1), "uint8"))
    with pytest.raises(ValueError, match=f"method='{name}' .*1 training image"):
        task.make_stream(made(tmp_path / "run"), images, None)


@pytest.mark.once
@pytest.mark.parametrize("kind", ["array", "encoded", "path"])
def test_images_that_are_all_the_same_are_warned_of(kind, tmp_path, capsys):
    """Without an evaluation, where no collapse is seen."""
    task = dataclasses.replace(MAE, make_stream=lambda *arguments: None)
    images = np.full((3, 8, 8, 1), 100, "uint8")
    for last, said in ((100, "are the same: see `keras-vit audit`"), (101, "")):
        images[2] = last
        contents = images.copy()
        if kind != "array":
            files = [tmp_path / f"{last}_{i}.png" for i in range(3)]
            for file, image in zip(files, images, strict=True):
                Image.fromarray(image[..., 0]).save(file)
            read = {"path": str, "encoded": pathlib.Path.read_bytes}[kind]
            contents = np.array([read(file) for file in files], object)
        train = data.Examples(contents, np.zeros(3, "int32"), kind)
        dataset = data.Dataset(train, None, None, ("one",))
        watched("mae", task).make_stream(None, dataset, None)
        out = capsys.readouterr().out
        assert said in out and bool(out) == bool(said)


def test_a_healthy_run_logs_both(tmp_path):
    options = made(tmp_path / "run", training={"epochs": 4})
    history = train(options, dataset=DATASET, task=MAE).history
    assert min(history["feature_spread"]) > 0.01
    assert min(history["feature_rank"]) > 1.5
