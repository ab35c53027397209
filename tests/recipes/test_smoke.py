"""Every config of the folder trains, shrunk to a laptop."""

import contextlib
import dataclasses
import io
import json

import numpy as np
import pytest
from recipe_scripts import RECIPES, script

from keras_vit.checkpoints.engine.keras_files import load_model
from keras_vit.runs.script import parse
from keras_vit.runs.smoke import smoke
from keras_vit.training import Recipe, train

PRETRAIN = script("pretrain")
CONFIGS = sorted((RECIPES / "configs").rglob("*.yaml"))
# Those with a method are of pretrain.py alone, and have no classes.
METHODS = [x for x in CONFIGS if "\nmethod: " in x.read_text("utf-8")]
# One of each kind of optimizer; the others take minutes.
QUICK = {
    "table4_cifar10",
    "s16_90ep",
}


def whole(config, *arguments):
    record = PRETRAIN.PretrainRecipe if config in METHODS else Recipe
    return parse(record, ["--config", str(config), *arguments], "")


def shrunk(config, run_dir):
    return smoke(whole(config, "--run_dir", str(run_dir)))


def parameter(config):
    marks = [] if config.stem in QUICK else [pytest.mark.slow]
    return pytest.param(config, id=config.stem, marks=marks)


@pytest.mark.parametrize(
    "config", [parameter(x) for x in CONFIGS if x not in METHODS]
)
def test_two_steps_in_miniature(config, tmp_path):
    recipe = shrunk(config, tmp_path / "run")
    # The first step warms up from a rate of 0, and may be the best of two.
    training = dataclasses.replace(recipe.training, keep="last")
    recipe = dataclasses.replace(recipe, training=training)
    with contextlib.redirect_stdout(io.StringIO()):
        run = train(recipe)
    assert run.folder == tmp_path / "run-smoke"
    lines = (run.folder / "metrics.jsonl").read_text().splitlines()
    assert np.isfinite([json.loads(line)["loss"] for line in lines]).all()
    # Zero at first: the head of the recipe's model has learned.
    kernel = run.model.get_layer("predictions").kernel
    assert np.abs(kernel.numpy()).max() > 0
    model, names = load_model(run.folder / "model.keras")
    assert names == tuple("0123456789")
    assert model.input_shape[1:3] == (32, 32)


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config.stem)
def test_smoke_keeps_what_makes_the_recipe(config, tmp_path):
    full = whole(config)
    small = shrunk(config, tmp_path)
    assert small.augmentation == full.augmentation
    assert small.preprocessing.train == full.preprocessing.train
    assert small.model.name == full.model.name
    for field in ("name", "learning_rate", "schedule", "weight_decay"):
        assert getattr(small.optimizer, field) == getattr(full.optimizer, field)
    for field in ("loss", "head_bias", "ema_decay", "precision"):
        assert getattr(small.training, field) == getattr(full.training, field)
    assert (small.training.steps, small.smoke) == (2, True)
    assert smoke(small) == small
