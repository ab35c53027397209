import re

import pytest
from sweep import SweepConfig, SweepRecipe

from keras_vit.runs.script import parse
from keras_vit.training import (
    ModelConfig,
    OptimizerConfig,
    Recipe,
    TrainingConfig,
)


@pytest.mark.parametrize(
    ("config", "fields", "message"),
    [
        (ModelConfig, {"channels": 2}, "channels=2"),
        (ModelConfig, {"pooling": "none"}, "pooling: 'none'"),
        (ModelConfig, {"pooling": "average"}, "'token', 'mean'"),
        (ModelConfig, {"patch_size": 5}, "cannot be cut"),
        (ModelConfig, {"num_heads": 3}, "num_heads=3"),
        (ModelConfig, {"num_layers": 0}, "num_layers=0"),
        (ModelConfig, {"dropout_rate": 1.0}, "dropout_rate=1.0"),
        (OptimizerConfig, {"learning_rate": 0.0}, "learning_rate=0.0"),
        (OptimizerConfig, {"weight_decay": -0.1}, "weight_decay=-0.1"),
        (OptimizerConfig, {"clip_norm": float("nan")}, "clip_norm=nan"),
        (OptimizerConfig, {"schedule": "step"}, "'cosine', 'linear'"),
        (OptimizerConfig, {"layer_decay": 0}, "layer_decay=0"),
        (OptimizerConfig, {"warmup_steps": -1}, "warmup_steps=-1"),
        (TrainingConfig, {"epochs": 0}, "epochs=0"),
        (TrainingConfig, {"steps": 0}, "steps=0"),
        (TrainingConfig, {"loss": "hinge"}, "'softmax', 'sigmoid'"),
        (TrainingConfig, {"trainable": "half"}, "'all', 'head'"),
        (TrainingConfig, {"precision": "float16"}, "mixed_float16"),
        (TrainingConfig, {"ema_decay": 1.0}, "ema_decay=1.0"),
        (
            TrainingConfig,
            {"batch_size": 10, "accumulation_steps": 4},
            "batch_size=10, accumulation_steps=4",
        ),
        (
            TrainingConfig,
            {"evaluate_every_steps": 15, "checkpoint_every_steps": 10},
            "evaluate_every_steps=15, checkpoint_every_steps=10",
        ),
        (ModelConfig, {"resnet_units": (1, 0)}, "resnet_units=(1, 0)"),
        (ModelConfig, {"resnet_width": 32}, "no ResNet before this model"),
        (
            ModelConfig,
            {"weights": "fractals", "resnet_units": ()},
            "resnet_units. Leave those out",
        ),
        (SweepConfig, {"learning_rates": (0.1, 0.0)}, "learning_rates=(0.1"),
        (Recipe, {"distribution": "many"}, "'auto', 'single'"),
        (TrainingConfig, {"label_smoothing": 1}, "label_smoothing=1"),
        (Recipe, {"seed": -1}, "seed=-1"),
        (
            Recipe,
            {
                "training": TrainingConfig(epochs=5),
                "optimizer": OptimizerConfig(warmup_epochs=5),
            },
            "optimizer.warmup_epochs=5, training.epochs=5",
        ),
        (
            Recipe,
            {
                "training": TrainingConfig(steps=500),
                "optimizer": OptimizerConfig(warmup_steps=500),
            },
            "optimizer.warmup_steps=500, training.steps=500",
        ),
        (
            Recipe,
            {
                "training": TrainingConfig(trainable="head"),
                "optimizer": OptimizerConfig(layer_decay=0.5),
            },
            'optimizer.layer_decay=0.5, training.trainable="head"',
        ),
    ],
)
def test_values_that_make_no_sense_are_refused(config, fields, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        config(**fields)


@pytest.mark.parametrize(
    ("pooling", "class_token"), [("token", True), ("mean", False)]
)
def test_a_class_token_only_where_it_is_looked_at(pooling, class_token):
    assert ModelConfig(pooling=pooling).vit(3).class_token is class_token


def test_a_resnet_by_its_sizes_is_before_a_transformer_or_the_model():
    sizes = {"resnet_units": (2, 1), "resnet_width": 32}
    hybrid = ModelConfig(image_size=32, patch_size=2, **sizes).vit(3)
    assert (hybrid.resnet_units, hybrid.resnet_width) == ((2, 1), 32)
    assert hybrid.grid == (2, 2)  # 32 / 4 / 2 cells in patches of 2
    bit = ModelConfig(name="BiT_R50x1", image_size=32, **sizes).vit(3)
    assert (bit.units, bit.width) == ((2, 1), 32)


def test_rectangles_and_classes_reach_the_model():
    config = ModelConfig(image_size=(32, 16), patch_size=(8, 4)).vit(7)
    assert config.grid == (4, 4)
    assert config.num_classes == 7
    assert config.include_preprocessing


def test_a_warm_up_in_another_unit_waits_for_the_data():
    """What it is in the other unit depends on the number of images."""
    Recipe(training=TrainingConfig(steps=4))
    Recipe(optimizer=OptimizerConfig(warmup_steps=10_000))


def test_a_batch_is_cut_into_equal_parts():
    training = TrainingConfig(batch_size=12, accumulation_steps=4)
    assert training.micro_batch_size == 3


@pytest.mark.parametrize("source", ["folder", "csv"])
def test_one_source_of_data_replaces_the_other(source):
    recipe = parse(Recipe, [f"--data.{source}", "flowers"], "")
    assert getattr(recipe.data, source) == "flowers"
    assert recipe.data.name is None


def test_lists_and_nulls_are_read():
    arguments = ["--sweep.learning_rates", "[0.01, 0.03]"]
    arguments += ["--optimizer.clip_norm", "null"]
    recipe = parse(SweepRecipe, arguments, "")
    assert recipe.sweep.learning_rates == (0.01, 0.03)
    assert recipe.optimizer.clip_norm is None
