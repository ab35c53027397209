"""`keras-vit explain RUN --checkpoints`: what a model saw as it was trained."""

import re

import keras
import numpy as np
import pytest
import tiny_runs
from html_page import Page
from PIL import Image

from keras_vit.analysis import attention_rollout
from keras_vit.cli import main
from keras_vit.prediction import load_classifier
from keras_vit.runs import explained_checkpoints
from keras_vit.runs.explained_checkpoints import explain_checkpoints
from keras_vit.training import train
from keras_vit.training.checkpoint_files import restore_model

STEPS = [5, 10, 15]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "run"
    options = {"checkpoint_every_steps": 5, "keep_checkpoints": 9}
    options |= {"epochs": 3, "keep": "last"}
    recipe = tiny_runs.recipe(folder, training=options)
    train(recipe, dataset=tiny_runs.DATASET)
    return folder


@pytest.fixture(scope="module")
def photo(tmp_path_factory):
    path = tmp_path_factory.mktemp("photos") / "a<b>.png"
    pixels = np.random.default_rng(0).integers(0, 256, (8, 8), "uint8")
    Image.fromarray(pixels).save(path)
    return path


def test_each_checkpoint_has_its_maps(run, photo, tmp_path, monkeypatch):
    """The last is the model that was saved; the first is another."""
    found = []

    def rollout(model, images):
        found.append(
            (attention_rollout(model, images), tiny_runs.values(model))
        )
        return found[-1][0]

    monkeypatch.setattr(explained_checkpoints, "attention_rollout", rollout)
    page = explain_checkpoints(run, photo, tmp_path / "out")
    assert len(found) == len(STEPS)
    model = load_classifier(run, needs_classes=False).model
    for one, other in zip(found[-1][1], tiny_runs.values(model), strict=True):
        np.testing.assert_array_equal(one, other)
    assert not np.allclose(found[0][0], found[-1][0], atol=1e-6)
    text = page.read_text("utf-8")
    images = [x for x in Page(text).elements if x.get("alt", "")[:4] == "step"]
    assert [x["alt"] for x in images] == 2 * [f"step {x}" for x in STEPS]
    assert "a&lt;b&gt;.png" in text and "<b>.png" not in text
    with Image.open(tmp_path / "out" / "a<b>_checkpoints.png") as picture:
        assert np.asarray(picture.convert("L")).std() > 10


def test_the_command_writes_the_page(run, photo, tmp_path, capsys):
    words = ["explain", run, photo, "-o", tmp_path / "out", "--checkpoints"]
    assert main([*map(str, words)]) == 0
    assert capsys.readouterr().out.endswith("index.html\n")
    assert main([*map(str, words), "--top", "3"]) == 2
    assert "does not read top" in capsys.readouterr().err


def test_what_has_no_checkpoints_is_refused(run, photo, tmp_path):
    (tmp_path / "other").mkdir()
    for source, words in (
        (tmp_path / "other", "is no run"),
        (run / "model.keras", None),
    ):
        if words is None:  # The file of a run is the run.
            explain_checkpoints(source, photo, tmp_path / "a")
            continue
        with pytest.raises(ValueError, match=words):
            explain_checkpoints(source, photo, tmp_path / "b")
    assert not (tmp_path / "b").exists()


def test_a_checkpoint_of_another_network_is_refused(run):
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    before = tiny_runs.values(model)
    words = re.escape("another network was trained")
    with pytest.raises(ValueError, match=words):
        restore_model(run / "checkpoints", STEPS[0], model)
    np.testing.assert_array_equal(before[0], tiny_runs.values(model)[0])
