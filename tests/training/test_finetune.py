import contextlib
import io

import keras
import numpy as np
import pytest
import yaml
from recipe_scripts import TINY

from keras_vit.data import RandomAffine
from keras_vit.training import (
    DataConfig,
    ModelConfig,
    OptimizerConfig,
    Recipe,
    TrainingConfig,
    finetune,
)
from keras_vit.training.finetuning import make_batches


def recipe(run_dir, **options):
    groups = yaml.safe_load(TINY)
    return Recipe(
        data=DataConfig(**groups["data"]),
        model=ModelConfig(**groups["model"]),
        augmentation=RandomAffine(**groups["augmentation"]),
        optimizer=OptimizerConfig(**groups["optimizer"]),
        training=TrainingConfig(**groups["training"]),
        run_dir=str(run_dir),
        **options,
    )


def trained(run_dir, callbacks=(), **options):
    with contextlib.redirect_stdout(io.StringIO()):
        return finetune(recipe(run_dir, **options), callbacks)


def weights(run):
    return [keras.ops.convert_to_numpy(x) for x in run.model.weights]


class Epochs(keras.callbacks.Callback):
    def __init__(self):
        super().__init__()
        self.seen = []

    def on_epoch_end(self, epoch, logs=None):
        self.seen.append(epoch)


@pytest.fixture(scope="module")
def epochs():
    return Epochs()


@pytest.fixture(scope="module")
def first(tmp_path_factory, epochs):
    return trained(tmp_path_factory.mktemp("first"), [epochs])


def test_same_recipe_gives_the_same_weights(first, tmp_path):
    again = trained(tmp_path)
    for one, other in zip(weights(first), weights(again), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)


def test_the_seed_reaches_the_batches(first, tmp_path):
    one, other = (
        make_batches(first.dataset, recipe(tmp_path, seed=seed))[0][1]
        for seed in (0, 1)
    )
    assert not np.array_equal(one, other)


def test_training_lowers_the_loss(first):
    assert first.history["loss"][1] < first.history["loss"][0]


def test_history_has_speed_and_learning_rate_of_each_epoch(first):
    assert len(first.history["images_per_second"]) == 2
    # The cosine ends at zero.
    assert first.history["learning_rate"][1] == pytest.approx(0, abs=1e-6)


def test_callbacks_of_the_caller_are_called(first, epochs):
    assert epochs.seen == [0, 1]
