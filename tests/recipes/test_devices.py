"""Recipes that predict on several devices find what one device finds."""

import json

import pytest
import virtual_devices

SCRIPT = """
import contextlib, io, json, pathlib, sys
import numpy as np
import tiny_training as tiny
from recipe_scripts import script
from keras_vit.training.run.files import save_model

folder, choices = pathlib.Path(sys.argv[1]), sys.argv[2:]
model = tiny.model(
    hidden_dim=16, mlp_dim=32, pooling="mean", class_token=False, num_classes=10
)
random = np.random.default_rng(3)
model.set_weights([random.normal(size=w.shape) for w in model.get_weights()])
path = folder / "model.keras"
save_model(model, list("0123456789"), path)

def run(name, choice, *options):
    place = folder / f"{name}-{choice}"
    with contextlib.redirect_stdout(io.StringIO()) as told:
        code = script(name).main([
            "--model.weights", str(path), "--data.name", "digits",
            "--data.max_examples", "150", "--batch_size", "8",
            "--distribution", choice, "--run_dir", str(place), *options,
        ])
    assert code == 0
    several = "4 devices (cpu:0, cpu:1, cpu:2, cpu:3)"
    assert (several in told.getvalue()) == (choice != "single")
    return place, json.loads((place / "result.json").read_text())

def found(choice):
    place, result = run(
        "evaluate", choice, "--split", "train", "--preprocessing.evaluation",
        "squash",
    )
    with np.load(place / "predictions.npz") as arrays:
        predictions = {name: array.tolist() for name, array in arrays.items()}
    shots = run(
        "few_shot", choice, "--shots", "[2]", "--num_seeds", "1",
        "--crop", "squash",
    )[1]
    return {
        "predictions": predictions,
        "accuracy": result["top1"],
        "images": result["num_examples"],
        "shots": shots["rows"],
    }

print(json.dumps({choice: found(choice) for choice in choices}))
"""
CHOICES = {
    "jax": ("single", "auto", "fsdp", "model_parallel"),
    "tensorflow": ("single", "auto"),
}


@pytest.mark.slow
def test_each_image_counts_once_on_any_devices(backend, tmp_path):
    """Their number divides no batch but the padded ones."""
    if backend not in CHOICES:
        pytest.skip("There is one device on torch.")
    told = virtual_devices.run(
        SCRIPT, tmp_path, *CHOICES[backend], devices=4, backend=backend
    )
    one, *several = json.loads(told).values()
    assert one["images"] == len(one["predictions"]["labels"])
    assert one["images"] % 8
    assert 0 < one["accuracy"] < 1
    for other in several:
        probabilities = other["predictions"].pop("probabilities")
        expected = one["predictions"]["probabilities"]
        for row, other_row in zip(expected, probabilities, strict=True):
            assert other_row == pytest.approx(row, rel=1e-4, abs=1e-6)
        for name, values in other["predictions"].items():
            assert values == one["predictions"][name]
        for name in ("accuracy", "images", "shots"):
            assert other[name] == one[name]
