"""What the weights that come with the package know of handwritten digits."""

import pathlib

import pytest
from recipe_scripts import script

CONFIGS = pathlib.Path(__file__).parents[2] / "recipes" / "configs"
measure = script("small_scale").measure
SCRATCH = {
    "model.weights": None,
    "model.hidden_dim": 96,
    "model.num_layers": 4,
    "model.mlp_dim": 192,
    "model.num_heads": 4,
}


@pytest.mark.slow
def test_few_shot_accuracy_is_above_that_of_drawn_weights(tmp_path):
    """By ten points at 1, 5, 10 and 25 images a class."""
    options = {
        "config": str(CONFIGS / "digits_from_fractals.yaml"),
        "model.image_size": 16,
    }
    shipped, scratch = (
        measure(options | more, seed=0, folder=tmp_path / "x", probe=True)
        for more in ({}, SCRATCH)
    )
    assert [row["images a class"] for row in shipped] == [1, 5, 10, 25]
    for ours, drawn in zip(shipped, scratch, strict=True):
        assert ours["accuracy"] > drawn["accuracy"] + 0.1
