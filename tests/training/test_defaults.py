"""What a recipe leaves open is filled in as the literature fine-tunes."""

import dataclasses

import keras
import numpy as np
import pytest
from tiny_runs import DATASET, recipe

from keras_vit import data
from keras_vit.training import (
    ModelConfig,
    OptimizerConfig,
    Recipe,
    TrainingConfig,
    train,
)
from keras_vit.training.defaults import DEFAULTS, kind_of, settled
from keras_vit.training.optimizers import OPTIMIZERS, make_schedule

WEIGHTS = ModelConfig(weights="fractals")
# MAE (arXiv:2111.06377, Table 9): rate per 256 images, layer decay, weight
# decay. BEiT (arXiv:2106.08254, Table 9): rate per 1024 images.
MAE, MAE_DECAY, WEIGHT_DECAY = 5e-4 / 256, 0.75, 0.05
BEIT = 2e-3 / 1024


def layers(*names):
    return keras.Sequential(
        [keras.Input((1,)), *(keras.layers.Dense(1, name=x) for x in names)]
    )


BLOCKS = layers("block_0", "block_1", "predictions")


def test_adamw_with_weights_is_as_mae_and_beit_fine_tune():
    found, _ = settled(Recipe(model=WEIGHTS), BLOCKS, 50_000)
    assert found.training.batch_size == 64
    rate = found.optimizer.learning_rate or 0.0
    for per_image in (MAE, BEIT):
        assert 0.75 <= rate / (64 * per_image) <= 1.25
    assert found.optimizer.layer_decay == MAE_DECAY
    assert found.optimizer.weight_decay == WEIGHT_DECAY
    # A warm-up of 5 epochs.
    schedule = make_schedule(
        found.optimizer, total_steps=300, steps_per_epoch=10
    )
    rates = [float(schedule(step)) for step in (0, 25, 50, 51)]
    np.testing.assert_allclose(rates[:3], [0, rate / 2, rate], rtol=1e-5)
    assert rates[3] < rate


@pytest.mark.parametrize("name", ["lion", "lamb", "muon"])
def test_other_optimizers_start_from_the_rates_of_adamw(name):
    usual, found = (
        Recipe(model=WEIGHTS, optimizer=OptimizerConfig(name=x)).optimizer
        for x in ("adamw", name)
    )
    ratio = (usual.learning_rate or 0) / (found.learning_rate or 1)
    assert ratio == pytest.approx(5 if name == "lion" else 1)
    decay = usual.weight_decay or 0
    assert found.weight_decay == pytest.approx(ratio * decay)


def test_sgd_with_weights_is_as_the_paper_fine_tunes():
    """Table 4 of arXiv:2010.11929: a rate that all of its rows have."""
    sgd = OptimizerConfig(name="sgd")
    found, _ = settled(Recipe(model=WEIGHTS, optimizer=sgd), BLOCKS, 50_000)
    rows = [{3e-3, 1e-2, 3e-2, 6e-2}, {1e-3, 3e-3, 1e-2, 3e-2}]
    assert found.optimizer.learning_rate in set.intersection(*rows)
    assert found.optimizer.weight_decay == 0
    assert found.optimizer.layer_decay == 1


def test_from_scratch_the_defaults_are_others():
    found, _ = settled(Recipe(), BLOCKS, 50_000)
    rate, decay = found.optimizer.learning_rate, found.optimizer.layer_decay
    assert (rate, decay, found.training.epochs) == (2e-3, 1.0, 60)


@pytest.mark.parametrize(
    ("training", "kind"),
    [({"trainable": "head"}, "head"), ({"lora_rank": 2}, "lora")],
)
def test_what_leaves_the_weights_as_they_are_has_a_higher_rate(training, kind):
    found = Recipe(model=WEIGHTS, training=TrainingConfig(**training))
    assert kind_of(found) == kind
    assert (found.optimizer.learning_rate or 0.0) >= 5e-4
    assert settled(found, BLOCKS, 999)[0].optimizer.layer_decay == 1


def test_what_is_said_stays():
    said = Recipe(
        model=WEIGHTS,
        optimizer=OptimizerConfig(
            learning_rate=0.3, weight_decay=0.2, layer_decay=0.9
        ),
        training=TrainingConfig(epochs=7, batch_size=48),
    )
    found, line = settled(said, BLOCKS, 60)
    assert (found.optimizer, found.training) == (said.optimizer, said.training)
    assert line == ""


def test_a_model_without_blocks_has_no_layer_decay():
    found, _ = settled(Recipe(model=WEIGHTS), layers("root", "head"), 999)
    assert found.optimizer.layer_decay == 1


@pytest.mark.parametrize(
    ("images", "parts", "expected"),
    [
        # The largest power of two of which they fill four.
        (256, 1, 64),
        (255, 1, 32),
        (43, 1, 8),
        (4, 1, 1),
        (1, 1, 1),
        (43, 3, 6),
        (None, 1, 64),
    ],
)
def test_the_batch_is_cut_to_the_images(images, parts, expected):
    training = TrainingConfig(accumulation_steps=parts)
    found, line = settled(Recipe(training=training), BLOCKS, images)
    assert found.training.batch_size == expected
    assert bool(line) == (expected < 64)
    assert found.training.micro_batch_size == expected // parts


def test_few_images_train_without_a_batch_size(tmp_path, capsys):
    few = recipe(tmp_path, training={"batch_size": None, "epochs": 1})
    run = train(few, dataset=DATASET)
    assert run.history["step"] == [5]  # 40 images, 8 each
    line = "Batches of 8 images, not 64, for 40 training images"
    assert line in capsys.readouterr().out
    # The run knows its batch: the same command goes on, another is refused.
    assert train(few, dataset=DATASET).history == run.history
    other = recipe(tmp_path, training={"batch_size": 4, "epochs": 1})
    with pytest.raises(ValueError, match="batch_size: was 8, now 4"):
        train(other, dataset=DATASET)


def test_a_batch_that_was_chosen_is_not_cut(tmp_path):
    with pytest.raises(ValueError, match="batch_size=64 does not fit"):
        train(recipe(tmp_path, training={"batch_size": 64}), dataset=DATASET)


def test_every_kind_and_optimizer_has_a_row():
    kinds = {kind for kind, _ in DEFAULTS}
    assert {name for _, name in DEFAULTS} <= set(OPTIMIZERS)
    assert {(kind, "adamw") for kind in kinds} <= set(DEFAULTS)


class Unlearn(keras.callbacks.Callback):
    """Answers one class alone, from an epoch on."""

    def __init__(self, begin):
        super().__init__()
        self.begin = begin

    def on_train_batch_begin(self, batch, logs=None):
        if self.epoch >= self.begin:
            self.model.get_layer("predictions").bias.assign([0.0, 0.0, 1e3])

    def on_epoch_begin(self, epoch, logs=None):
        self.epoch = epoch


@pytest.mark.parametrize(("begin", "warned"), [(1, True), (9, False)])
def test_a_training_that_unlearns_says_so(tmp_path, capsys, begin, warned):
    # Images of one level: two classes are told from the third at once.
    levels = np.repeat([[0, 0, 0, 255]], 10, 0).ravel()
    images = np.repeat(levels, 64).reshape(40, 8, 8, 1).astype("uint8")
    labels = (levels > 0).astype("int32")
    dataset = dataclasses.replace(
        DATASET, train=data.Examples(images, labels), validation=None
    )
    run = train(
        recipe(tmp_path, training={"epochs": 4}),
        dataset=dataset,
        callbacks=[Unlearn(begin)],
    )
    found = capsys.readouterr().out.count("Warning: the training accuracy")
    below = [x < run.history["accuracy"][0] for x in run.history["accuracy"]]
    assert below == [False, *[warned] * 3]
    assert found == warned
