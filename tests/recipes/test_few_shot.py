"""The few-shot recipe: run folders, trials, wrong arguments."""

import csv
import json

import keras
import numpy as np
import pytest
from PIL import Image
from recipe_scripts import script

from keras_vit import data
from keras_vit.evaluation.few_shot import choose_shots
from keras_vit.models import VisionTransformer, ViTConfig
from keras_vit.training.run import files as run_folder

NAMES = ("blue", "green", "red")


@pytest.fixture(scope="module")
def model_path(tmp_path_factory):
    """A model of other classes than the digits."""
    keras.utils.set_random_seed(0)
    model = VisionTransformer(
        ViTConfig(
            image_size=(8, 8),
            patch_size=(4, 4),
            channels=1,
            hidden_dim=8,
            num_layers=1,
            mlp_dim=8,
            num_heads=2,
            num_classes=3,
            include_preprocessing=True,
        )
    )
    folder = tmp_path_factory.mktemp("few_shot") / "trained"
    folder.mkdir()
    run_folder.save_model(model, NAMES, folder / "model.keras")
    return folder


@pytest.fixture(scope="module")
def finished(model_path):
    folder = model_path.parent / "out"
    code = script("few_shot").main(
        [
            *("--model.weights", str(model_path)),
            *("--run_dir", str(folder)),
            *("--crop", "squash"),
            *("--shots", "[1, 5]"),
            *("--num_seeds", "2"),
            *("--seed", "3"),
        ]
    )
    assert code == 0
    return folder, json.loads((folder / "result.json").read_text())


def test_result_is_the_accuracy_of_the_definition(finished, model_path):
    _, result = finished
    model = keras.saving.load_model(model_path / "model.keras")
    body = keras.Model(model.input, model.get_layer("predictions").input)
    digits = data.open_dataset(data.DataConfig(name="digits"))
    known, asked = (
        body.predict(part.contents.astype("float32"), verbose=0)
        for part in (digits.train, digits.test)
    )
    for row in result["rows"]:
        (chosen,) = choose_shots(
            digits.train.labels, 10, shots=[row["shots"]], seed=row["seed"]
        )
        x, labels = known[chosen].astype("float64"), digits.train.labels[chosen]
        mean, std = x.mean(axis=0), x.std(axis=0) + 1e-5
        x = np.hstack([(x - mean) / std, np.full((len(x), 1), 100.0)])
        solved = np.linalg.inv(x.T @ x + 1024 * np.eye(9)) @ x.T
        solved = solved @ np.where(np.eye(10)[labels], 1.0, -1.0)
        z = (asked - mean) / std
        scores = np.hstack([z, np.full((len(z), 1), 100.0)]) @ solved
        right = np.mean(scores.argmax(axis=1) == digits.test.labels)
        assert row["accuracy"] == pytest.approx(right)
    assert [row["seed"] for row in result["rows"]] == [3, 3, 4, 4]


def test_folder_is_complete(finished):
    folder, result = finished
    assert {path.name for path in folder.iterdir()} == {
        "config.yaml",
        "environment.json",
        "few_shot.csv",
        "few_shot.png",
        "keras_vit_run.json",
        "result.json",
    }
    with open(folder / "few_shot.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [float(row["accuracy"]) for row in rows] == [
        row["accuracy"] for row in result["rows"]
    ]
    assert [row["shots"] for row in result["summary"]] == [1, 5]
    assert result["num_features"] == 8


def test_picture_has_something_on_it(finished):
    with Image.open(finished[0] / "few_shot.png") as picture:
        assert min(picture.size) > 400
        assert np.asarray(picture.convert("L")).std() > 10


def test_finished_run_is_not_replaced(finished, model_path, capsys):
    with pytest.raises(SystemExit):
        script("few_shot").main(
            ["--model.weights", str(model_path), "--run_dir", str(finished[0])]
        )
    assert "holds a finished run" in capsys.readouterr().err


def test_trial_needs_no_weights(tmp_path, capsys, monkeypatch):
    opened: list = []
    monkeypatch.setattr("keras_vit.runs.script.open_page", opened.append)
    arguments = ["--smoke", "--open", "--run_dir", str(tmp_path / "run")]
    assert script("few_shot").main(arguments) == 0
    printed = capsys.readouterr().out
    assert opened == [tmp_path / "run-smoke" / "few_shot.png"]
    assert opened[0].exists()
    result = json.loads((tmp_path / "run-smoke" / "result.json").read_text())
    assert [row["num_train"] for row in result["rows"]][:2] == [10, 50]
    assert result["rows"][0]["num_test"] == 40  # A fifth of 200.
    assert f"| 5 | {result['summary'][1]['mean']:.2%} |" in printed


@pytest.mark.parametrize("probe", ["knn", "linear"])
def test_another_probe_of_all_images(probe, model_path, tmp_path, capsys):
    folder = tmp_path / "run"
    options = ["--model.weights", str(model_path), "--run_dir", str(folder)]
    options += ["--crop", "squash", "--probe", probe, "--num_seeds", "1"]
    options += ["--shots", "[5, null]", "--data.max_examples", "200"]
    assert script("few_shot").main(options) == 0
    result = json.loads((folder / "result.json").read_text())
    assert result["probe"] == probe
    assert [row["shots"] for row in result["rows"]] == [5, None]
    few, all_of_them = result["rows"]
    assert few["num_train"] == 50 < all_of_them["num_train"]
    assert all_of_them["accuracy"] > 0.2
    assert "| all | " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "--model.weights"),
        (["--model.weights", "nowhere.npz"], "nowhere.npz"),
        (["--smoke", "true", "--shots", "[0]"], "shots must be numbers above"),
        (["--smoke", "true", "--crop", "none"], "Unknown crop"),
        (["--smoke", "true", "--probe", "svm"], "Unknown probe"),
        (["--smoke", "true", "--shot", "[1]"], "Did you mean --shots"),
    ],
)
def test_wrong_arguments_are_explained(arguments, message, tmp_path, capsys):
    with pytest.raises(SystemExit) as ended:
        script("few_shot").main([*arguments, "--run_dir", str(tmp_path)])
    assert ended.value.code == 2
    assert message in capsys.readouterr().err
