"""Variants by the recipes: trained, continued, evaluated, fine-tuned."""

import dataclasses
import json

import keras
import numpy as np
import pytest
import tiny_runs
import yaml
from recipe_scripts import TINY, script

import keras_vit
from keras_vit.checkpoints.engine import keras_files
from keras_vit.evaluation.config import ModelSource
from keras_vit.prediction.networks import load_model
from keras_vit.runs.script import parse
from keras_vit.runs.smoke import smoke
from keras_vit.training import ModelConfig, Recipe, build, train
from keras_vit.training.build import family_of
from keras_vit.training.config import config_of
from keras_vit.variants import VariantConfig, VariantTransformer

TWO_D = VariantConfig(position="2d", position_at="every_layer")
SIZES = {
    "image_size": 8,
    "patch_size": 4,
    "channels": 1,
    "hidden_dim": 8,
    "num_layers": 2,
    "mlp_dim": 8,
    "num_heads": 2,
}


def recipe(run_dir, **model):
    made = tiny_runs.recipe(run_dir)
    config = ModelConfig(**{**SIZES, "variant": TWO_D, **model})
    return dataclasses.replace(made, model=config)


def test_the_default_is_the_plain_model():
    assert (
        family_of(None, ModelConfig().variant)
        is keras_vit.models.VisionTransformer
    )
    assert type(config_of(ModelConfig(), 10)) is keras_vit.models.ViTConfig


def test_the_command_line_names_a_variant(tmp_path):
    arguments = ["--model.variant.position", "relative"]
    arguments += ["--model.variant.position_at", "every_layer_shared"]
    expected = VariantConfig("relative", "every_layer_shared")
    assert parse(Recipe, arguments, "").model.variant == expected
    # What the default stands for is not what was asked.
    arguments = arguments[:2]
    expected = VariantConfig("relative", "every_layer")
    assert parse(Recipe, arguments, "").model.variant == expected
    file = tmp_path / "config.yaml"
    file.write_text("model: {variant: {position: 2d}, image_size: 32}")
    model = parse(Recipe, ["--config", str(file)], "").model
    assert (model.variant, model.image_size) == (VariantConfig("2d"), 32)


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("position=3d", "Unknown position"),
        ("position_at=stm", "'stem'"),
        ("positon=2d", "Did you mean --model.variant.position"),
    ],
)
def test_a_wrong_variant_is_explained(argument, message, capsys):
    with pytest.raises(SystemExit) as ended:
        parse(Recipe, [f"--model.variant.{argument}"], "")
    assert ended.value.code == 2
    assert message in capsys.readouterr().err


def test_only_vision_transformers_have_variants():
    with pytest.raises(ValueError, match="Mixer, which has no variant"):
        ModelConfig(name="Mixer_B16", variant=TWO_D)


def test_a_trial_keeps_the_variant():
    asked = Recipe(model=ModelConfig(name="ViT_B16", variant=TWO_D))
    assert smoke(asked).model.variant == TWO_D


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A run of two epochs."""
    folder = tmp_path_factory.mktemp("variant") / "run"
    return train(recipe(folder), dataset=tiny_runs.DATASET)


def test_a_run_learns_and_tells_its_variant(finished):
    lines = (finished.folder / "metrics.jsonl").read_text().splitlines()
    assert np.isfinite([json.loads(line)["loss"] for line in lines]).all()
    kernel = finished.model.get_layer("predictions").kernel  # zero at first
    assert np.abs(keras.ops.convert_to_numpy(kernel)).max() > 0
    config = yaml.safe_load((finished.folder / "config.yaml").read_text())
    assert config["model"]["variant"] == dataclasses.asdict(TWO_D)


@pytest.mark.slow
@pytest.mark.parametrize("variant", [TWO_D, VariantConfig("relative")])
def test_a_run_continues_to_the_weights_of_one_in_one_go(variant, tmp_path):
    whole = train(
        recipe(tmp_path / "whole", variant=variant), dataset=tiny_runs.DATASET
    )
    asked = recipe(tmp_path / "run", variant=variant)
    with pytest.raises(KeyboardInterrupt):
        train(
            asked, dataset=tiny_runs.DATASET, callbacks=[tiny_runs.Interrupt()]
        )
    continued = train(asked, dataset=tiny_runs.DATASET)
    record = json.loads((continued.folder / "environment.json").read_text())
    assert [x["step"] for x in record["continued"]] == [5]
    for one, other in zip(
        tiny_runs.values(whole.model),
        tiny_runs.values(continued.model),
        strict=True,
    ):
        np.testing.assert_array_equal(one, other)


def test_the_model_of_a_run_is_loaded_again(finished):
    images = np.full((2, 8, 8, 1), 90.0, "float32")
    expected = keras.ops.convert_to_numpy(finished.model(images))
    loaded, names = keras_files.load_model(finished.folder / "model.keras")
    assert isinstance(loaded, VariantTransformer)
    assert loaded.config.variant == TWO_D
    source = ModelSource(weights=str(finished.folder))
    for model in (loaded, load_model(source)):
        np.testing.assert_array_equal(
            keras.ops.convert_to_numpy(model(images)), expected
        )
    (found,) = keras_vit.predict(finished.folder, images[:1])
    assert {name for name, _ in found.classes} == set(names)


def test_a_run_starts_from_it_at_a_larger_size(finished, tmp_path):
    asked = dataclasses.replace(
        tiny_runs.recipe(tmp_path / "larger"),
        model=ModelConfig(weights=str(finished.folder), image_size=16),
    )
    model = build.make_model(asked, tiny_runs.DATASET.class_names)
    assert model.input_shape == (None, 16, 16, 1)
    assert model.config.variant == TWO_D
    assert model.load_report.resampled.keys() == {
        f"{layer}/{axis}"
        for layer in ("position_embedding", "position_embedding_1")
        for axis in ("rows", "columns")
    }


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ({"name": "ViT_B16"}, "which no application builds"),
        ({"variant": VariantConfig("none")}, "bring their own variant"),
    ],
)
def test_weights_of_a_variant_decide_what_it_is(
    finished, model, message, tmp_path
):
    asked = dataclasses.replace(
        tiny_runs.recipe(tmp_path / "run"),
        model=ModelConfig(weights=str(finished.folder), **model),
    )
    with pytest.raises(ValueError, match=message):
        build.make_model(asked, tiny_runs.DATASET.class_names)


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments",
    [
        ["--model.variant.position", "relative"],
        ["--model.variant.attention", "axial"],
    ],
    ids=["relative", "axial"],
)
def test_recipes_train_evaluate_and_probe_a_variant(arguments, tmp_path):
    config = tmp_path / "tiny.yaml"
    config.write_text(TINY)
    run = str(tmp_path / "run")
    options = ["--config", str(config), *arguments, "--run_dir", run]
    assert script("pretrain").main(options) == 0
    weights = ["--model.weights", run]
    options = ["--run_dir", str(tmp_path / "evaluated")]
    assert script("evaluate").main([*weights, *options]) == 0
    result = json.loads((tmp_path / "evaluated" / "result.json").read_text())
    assert result["num_examples"] == 719
    options = ["--run_dir", str(tmp_path / "few"), "--crop", "squash"]
    assert script("few_shot").main([*weights, *options]) == 0
    assert (tmp_path / "few" / "few_shot.csv").is_file()
