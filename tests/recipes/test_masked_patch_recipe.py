"""The recipe of masked patches, and the picture that it draws."""

import json

import numpy as np
import pytest
from masked_patch.completions import painted, seen
from PIL import Image
from recipe_scripts import CONFIGS, TINY, output_of

from keras_vit.training.tasks.hidden_patches import patch_pixels
from keras_vit.training.tasks.masked_patch import (
    colour_classes,
    patch_colours,
)

GRID = (2, 3)
PICTURES = np.random.default_rng(0).uniform(0, 255, (2, 8, 12, 3))


@pytest.mark.parametrize(
    ("target", "cells"), [("mean_colour", 1), ("downsized", 4)]
)
def test_painted_colours_are_those_that_were_named(target, cells):
    """Within half a level of the mean of each cell."""
    classes = colour_classes(patch_colours(PICTURES, GRID, cells))
    answers = np.eye(512)[classes]
    found = painted(answers, GRID, (8, 12, 3), target)
    height, width = 4 // cells, 4 // cells
    means = PICTURES.reshape(2, 8 // height, height, 12 // width, width, 3)
    means = means.mean(axis=(2, 4), keepdims=True) / 255
    expected = np.broadcast_to(
        means, (2, 8 // height, height, 12 // width, width, 3)
    )
    np.testing.assert_allclose(
        found, expected.reshape(2, 8, 12, 3), atol=1 / 16 + 1 / 255
    )


def test_painted_pixels_are_those_that_were_said():
    answers = patch_pixels(PICTURES, GRID)
    found = painted(answers, GRID, (8, 12, 3), "pixels")
    np.testing.assert_allclose(found, PICTURES / 255, atol=1e-5)


def test_masked_patches_are_grey_and_others_stand_in_their_places():
    source = np.array([[0, 1, 2, 3, 4, 5], [-1, 0, 2, 3, 5, 5]])
    pictures = PICTURES / 255
    found = seen(pictures, source, GRID)
    np.testing.assert_allclose(found[0], pictures[0])
    np.testing.assert_allclose(found[1, :4, :4], 0.5)
    np.testing.assert_allclose(found[1, :4, 4:8], pictures[1, :4, :4])
    np.testing.assert_allclose(found[1, 4:, 4:8], pictures[1, 4:, 8:])
    np.testing.assert_allclose(found[1, 4:, :4], pictures[1, 4:, :4])


@pytest.mark.slow
@pytest.mark.parametrize("target", ["mean_colour", "pixels"])
def test_from_hidden_patches_to_a_fine_tuned_model(tmp_path, target):
    config = tmp_path / "tiny.yaml"
    config.write_text(TINY)
    folder = tmp_path / "masked"
    output = output_of(
        *("pretrain", "--method", "masked_patch"),
        *("--config", config, "--run_dir", folder),
        *("--masked_patch.target", target),
        *("--training.best_metric", "val_loss"),
    )
    result = json.loads((folder / "result.json").read_text())
    assert ("val_accuracy" in result) == (target == "mean_colour")
    assert f"loss {result['val_loss']:.4f} on hidden patches" in output
    assert "Learning curves" in (folder / "report.html").read_text()
    with Image.open(folder / "masked_patch.png") as picture:
        assert np.asarray(picture.convert("L")).min() < 30
    tuned = ("--run_dir", tmp_path / "tuned", "--model.weights", folder)
    sizes = ("patch_size", "hidden_dim", "num_layers", "mlp_dim", "num_heads")
    of_weights = [x for size in sizes for x in (f"--model.{size}", "null")]
    output_of("finetune", "--config", config, *of_weights, *tuned)
    assert (tmp_path / "tuned" / "result.json").is_file()


@pytest.mark.slow
def test_smoke_tries_the_config_of_the_paper(tmp_path):
    config = CONFIGS / "paper" / "masked_patch_b16.yaml"
    output_of(
        *("pretrain", "--method", "masked_patch"),
        *("--config", config, "--smoke", "true"),
        *("--run_dir", tmp_path / "run"),
    )
    assert (tmp_path / "run-smoke" / "masked_patch.png").is_file()
