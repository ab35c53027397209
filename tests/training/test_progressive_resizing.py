"""Progressive resizing: one run, one set of weights, several sizes."""

import dataclasses

import keras
import numpy as np
import pytest
import tiny_training as tiny
from tiny_runs import DATASET, recipe, values

from keras_vit import data
from keras_vit.layers import AddPositionEmbedding
from keras_vit.training import ModelConfig, TrainingConfig, train
from keras_vit.training.stages import (
    Plan,
    ResampledPositions,
    at_size,
    stage_plans,
)
from keras_vit.variants import VariantConfig

# 8 steps of two sizes, a checkpoint after each two.
OPTIONS = {
    "epochs": 1,
    "steps": 8,
    "image_sizes": (4, 8),
    "checkpoint_every_steps": 2,
}


def resized(run_dir, *, model=None, **training):
    made = recipe(run_dir, training={**OPTIONS, **training})
    model = {"patch_size": 2, "dropout_rate": 0.1, **(model or {})}
    return dataclasses.replace(
        made, model=dataclasses.replace(made.model, **model)
    )


def interpolated(table, new):
    """Linear along rows and columns, corners on corners."""

    def along(values, size):
        old = np.arange(len(values))
        return np.interp(np.linspace(0, old[-1], size), old, values)

    for axis, size in enumerate(new):
        table = np.apply_along_axis(along, axis, table, size)
    return table


@pytest.mark.parametrize("prefix", [0, 1])
def test_positions_are_interpolated_between_the_patches(prefix):
    random = np.random.default_rng(0)
    full = AddPositionEmbedding((5, 4), num_prefix_tokens=prefix)
    full.build((None, 20 + prefix, 8))
    table = random.normal(size=(1, 20 + prefix, 8)).astype("float32")
    full.set_weights([table])
    x = random.normal(size=(2, 6 + prefix, 8)).astype("float32")
    found = keras.ops.convert_to_numpy(ResampledPositions(full, (3, 2))(x)) - x
    grid = table[0, prefix:].reshape(5, 4, 8).astype("float64")
    expected = np.concatenate(
        [table[0, :prefix], interpolated(grid, (3, 2)).reshape(6, 8)]
    )
    np.testing.assert_allclose(found, [expected] * 2, atol=1e-5)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"pooling": "map", "class_token": False, "representation_dim": 8},
        {"variant": VariantConfig(mlp="local")},
    ],
    ids=["token", "map", "local"],
)
def test_a_smaller_network_is_that_model_with_its_positions_resampled(options):
    model = tiny.model(patch_size=2, dropout_rate=0.0, **options)
    random = np.random.default_rng(1)
    model.set_weights([random.normal(size=w.shape) for w in model.weights])
    smaller = at_size(model, 4)
    config = dataclasses.replace(model.config, image_size=(4, 4))
    other = type(model)(config)
    known = {weight.path: weight for weight in model.weights}
    for weight in other.weights:
        value = keras.ops.convert_to_numpy(known[weight.path])
        if weight.path == "position_embedding/embedding":
            prefix = model.config.num_prefix_tokens
            grid = interpolated(value[0, prefix:].reshape(4, 4, 8), (2, 2))
            value = np.concatenate([value[0, :prefix], grid.reshape(4, 8)])
            value = value[None]
        weight.assign(value)
    images = random.uniform(0, 255, (2, 4, 4, 1)).astype("float32")
    found, expected = (
        keras.ops.convert_to_numpy(network(images))
        for network in (smaller, other)
    )
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    assert [id(x) for x in smaller.weights] == [id(x) for x in model.weights]


class Sizes(keras.callbacks.Callback):
    """Writes down what is trained on, and stops before an epoch."""

    def __init__(self, stop=None):
        super().__init__()
        self.stop, self.found = stop, []

    def on_epoch_begin(self, epoch, logs=None):
        if epoch == self.stop:
            raise KeyboardInterrupt
        self.found.append(self.model.input_shape[1])


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    sizes = Sizes()
    folder = tmp_path_factory.mktemp("resized") / "run"
    return train(resized(folder), dataset=DATASET, callbacks=[sizes]), sizes


def test_half_of_the_steps_are_of_each_size(run):
    trained, sizes = run
    assert sizes.found == [4, 4, 8, 8]
    assert trained.model.input_shape == (None, 8, 8, 1)
    assert trained.history["step"] == [2, 4, 6, 8]
    # One schedule over the whole training, whose end is a rate of 0.
    rates = trained.history["learning_rate"]
    assert rates == sorted(rates, reverse=True)
    assert rates[2] > 0


@pytest.mark.parametrize(
    "stops",
    [
        pytest.param((1, 3), id="inside", marks=pytest.mark.slow),
        pytest.param((2,), id="between"),
    ],
)
def test_a_stopped_run_ends_with_the_same_weights(run, tmp_path, stops):
    recipe_ = resized(tmp_path / "run")
    for stop in stops:
        with pytest.raises(KeyboardInterrupt):
            train(recipe_, dataset=DATASET, callbacks=[Sizes(stop)])
    trained = train(recipe_, dataset=DATASET, callbacks=[Sizes()])
    expected, _ = run
    for one, other in zip(
        values(trained.model), values(expected.model), strict=True
    ):
        np.testing.assert_array_equal(one, other)
    assert trained.history["val_loss"] == expected.history["val_loss"]


@pytest.mark.slow
def test_the_average_of_the_weights_goes_through_all_sizes(tmp_path):
    trained = train(
        resized(tmp_path / "run", ema_decay=0.9, accumulation_steps=2),
        dataset=DATASET,
    )
    assert trained.history["step"] == [2, 4, 6, 8]
    assert np.isfinite(trained.history["val_loss"]).all()


@pytest.mark.once
def test_stages_end_at_checkpoints():
    plan = Plan(100, 10, 8, checkpoint_every=8, evaluate_every=8)
    ends = [x.total for x in stage_plans(plan, (1, 2, 3))]
    assert ends == [32, 72, 100]


@pytest.mark.parametrize("sizes", [(8, 4), (4, 4), (0, 8)])
def test_sizes_that_do_not_grow_are_refused(sizes):
    with pytest.raises(ValueError, match="image_sizes must be ascending"):
        TrainingConfig(image_sizes=sizes)


def test_sizes_do_not_go_with_an_early_end():
    with pytest.raises(ValueError, match="early_stopping_patience=3"):
        TrainingConfig(image_sizes=(4, 8), early_stopping_patience=3)


@pytest.mark.once
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"image_sizes": (4, 6)}, "Add that size"),
        ({"image_sizes": (5, 8)}, "cut into patches"),
        ({"checkpoint_every_steps": 8}, "begins at a checkpoint"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(tmp_path, options, message):
    with pytest.raises(ValueError, match=message):
        train(resized(tmp_path / "run", **options), dataset=DATASET)
    assert not (tmp_path / "run").exists()


@pytest.mark.once
def test_a_resnet_is_refused(tmp_path):
    made = resized(tmp_path / "run")
    model = ModelConfig(name="BiT_R50x1", size="tiny", image_size=8, channels=1)
    with pytest.raises(ValueError, match="a Vision Transformer, plain"):
        train(dataclasses.replace(made, model=model), dataset=DATASET)


@pytest.mark.once
def test_positions_at_every_layer_are_refused(tmp_path):
    made = resized(tmp_path / "run", model={"variant": VariantConfig("2d")})
    with pytest.raises(ValueError, match="plain or with .*position='2d'"):
        train(made, dataset=DATASET)
    assert not (tmp_path / "run").exists()


@pytest.mark.once
def test_batches_of_one_size_are_refused(tmp_path):
    images = np.zeros((8, 8, 8, 1), "uint8")
    stream = data.FitStream((images, np.eye(3)[np.zeros(8, int)]), batch_size=8)
    foreign = dataclasses.replace(DATASET, train=stream, validation=None)
    with pytest.raises(ValueError, match="read in any size"):
        train(resized(tmp_path / "run"), dataset=foreign)
