"""Training on batches of the user's own, which Keras's `fit` takes."""

import dataclasses
import re

import keras
import numpy as np
import pytest
from tiny_training import bits, examples

from keras_vit import data
from keras_vit.data.config import data_of_run
from keras_vit.io.run_folder import read_config
from keras_vit.training import (
    ModelConfig,
    OptimizerConfig,
    Recipe,
    TrainingConfig,
    train,
)

CLASSES = ("circle", "square", "line")
NAME = "given/shapes"


class Batches(keras.utils.PyDataset):
    """Five batches of eight images."""

    def __len__(self):
        return 5

    def __getitem__(self, index):
        split = examples(40, seed=0)
        rows = slice(8 * index, 8 * index + 8)
        return split.contents[rows], np.eye(3, dtype="float32")[
            split.labels[rows]
        ]


def recipe(folder, epochs=2):
    return Recipe(
        model=ModelConfig(
            image_size=8, channels=1, hidden_dim=8, num_layers=1, mlp_dim=8
        ),
        optimizer=OptimizerConfig(warmup_epochs=0.5),
        training=TrainingConfig(epochs=epochs, batch_size=8),
        run_dir=str(folder),
    )


def own(batches):
    validation = examples(10, seed=1)
    labels = np.eye(3, dtype="float32")[validation.labels]
    size = 8 if isinstance(batches, tuple) else None
    stream = data.FitStream(batches, batch_size=size)
    return data.Dataset(stream, (validation.contents, labels), None, CLASSES)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("own") / "run"
    return train(recipe(folder), dataset=own(Batches()))


def test_a_dataset_of_keras_is_trained_on(trained):
    assert len(trained.history["val_accuracy"]) == 2
    assert trained.history["loss"][-1] < trained.history["loss"][0]
    assert (trained.folder / "model.keras").is_file()


def test_the_kind_of_dataset_does_not_matter(trained, tmp_path):
    split = examples(40, seed=0)
    labels = np.eye(3, dtype="float32")[split.labels]
    arrays = own((split.contents, labels))
    again = train(recipe(tmp_path / "run"), dataset=arrays)
    assert bits(again.model) == bits(trained.model)


@pytest.mark.once
@pytest.mark.parametrize(
    ("group", "field", "value"),
    [
        ("augmentation", "mixup_alpha", 0.2),
        ("augmentation", "rand_augment_layers", 1),
        ("preprocessing", "flip", False),
        ("preprocessing", "train", "squash"),
    ],
)
def test_what_would_change_own_batches_is_refused(
    group, field, value, tmp_path
):
    asked = recipe(tmp_path / "run")
    options = dataclasses.replace(getattr(asked, group), **{field: value})
    message = f"{field} does nothing with batches of your own. Received"
    with pytest.raises(ValueError, match=message):
        train(
            dataclasses.replace(asked, **{group: options}),
            dataset=own(Batches()),
        )
    assert not (tmp_path / "run").exists()


@pytest.mark.once
def test_a_run_goes_on_where_it_was_stopped(trained, tmp_path):
    class Killed(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            if epoch == 1:
                raise KeyboardInterrupt

    stopped = dataclasses.replace(recipe(tmp_path / "run"))
    with pytest.raises(KeyboardInterrupt):
        train(stopped, dataset=own(Batches()), callbacks=[Killed()])
    again = train(stopped, dataset=own(Batches()))
    assert bits(again.model) == bits(trained.model)


@pytest.mark.once
@pytest.mark.parametrize(
    ("options", "opened", "message"),
    [
        ({"folder": "cats"}, None, "{'name': None, 'folder': 'cats'}"),
        ({"max_examples": 9}, None, "{'max_examples': 9}, dataset.config with"),
        (
            {"split_seed": 1},
            {"split_seed": 2},
            "{'split_seed': 1}, dataset.config with {'split_seed': 2}",
        ),
        ({"csv": "a.csv"}, {"csv": "b.csv"}, "with {'csv': 'b.csv'}"),
    ],
)
def test_other_data_than_the_dataset_are_refused(
    options, opened, message, tmp_path
):
    config = opened and data.DataConfig(**opened)
    dataset = dataclasses.replace(own(Batches()), config=config)
    asked = dataclasses.replace(
        recipe(tmp_path / "run"), data=data.DataConfig(**options)
    )
    with pytest.raises(ValueError, match=re.escape(message)):
        train(asked, dataset=dataset)
    assert not (tmp_path / "run").exists()


@pytest.mark.once
def test_a_run_names_the_data_that_it_was_given(trained, tmp_path):
    named = dataclasses.replace(own(Batches()), name="shapes")
    run = train(recipe(tmp_path / "run"), dataset=named)
    for folder, name in ((trained.folder, "given"), (run.folder, NAME)):
        config = data_of_run(read_config(folder))
        assert config.name == name
        with pytest.raises(ValueError, match=f"given in Python.*{name!r}"):
            data.open_dataset(config)


@pytest.mark.once
def test_a_run_names_the_data_that_its_dataset_was_opened_by(tmp_path):
    config = data.DataConfig(max_examples=99, split_seed=3, reader="pillow")
    dataset = data.open_dataset(config)
    assert dataset.config == config
    open_ = dataclasses.replace(
        recipe(tmp_path / "open"), data=data.DataConfig(reader="pillow")
    )
    same = dataclasses.replace(recipe(tmp_path / "same"), data=config)
    for asked in (open_, same):
        run = train(asked, dataset=dataset)
        assert data_of_run(read_config(run.folder)) == config
