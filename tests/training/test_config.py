import re

import pytest

from keras_vit.training import (
    DataConfig,
    ModelConfig,
    OptimizerConfig,
    Recipe,
    TrainingConfig,
)


@pytest.mark.parametrize(
    ("config", "fields", "message"),
    [
        (DataConfig, {"test_fraction": 0}, "test_fraction=0"),
        (DataConfig, {"validation_fraction": 0.8}, "Nothing is left"),
        (DataConfig, {"split_seed": -1}, "split_seed=-1"),
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
        (TrainingConfig, {"epochs": 0}, "epochs=0"),
        (TrainingConfig, {"label_smoothing": 1}, "label_smoothing=1"),
        (Recipe, {"seed": -1}, "seed=-1"),
        (Recipe, {"training": TrainingConfig(epochs=5)}, "warm-up"),
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


def test_rectangles_and_classes_reach_the_model():
    config = ModelConfig(image_size=(32, 16), patch_size=(8, 4)).vit(7)
    assert config.grid == (4, 4)
    assert config.num_classes == 7
    assert config.include_preprocessing
