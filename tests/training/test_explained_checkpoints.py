"""What a model saw as it was trained: of checkpoints, and kept on the way."""

import dataclasses
import re
import shutil

import keras
import numpy as np
import pytest
import tiny_runs
from html_page import Page
from PIL import Image

from keras_vit.analysis import (
    attention_maps,
    attention_rollout,
    overlay,
    report,
)
from keras_vit.analysis.features import same_colours
from keras_vit.cli import main
from keras_vit.prediction import load_classifier
from keras_vit.runs import explained_checkpoints
from keras_vit.runs.explained_checkpoints import (
    FeaturesOverTime,
    every,
    explain_checkpoints,
    with_pictures,
)
from keras_vit.training import train
from keras_vit.training.checkpointing import restore_model
from keras_vit.training.tasks import MAE, MAEConfig

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


def test_pixels_beyond_white_and_black_stay_white_and_black():
    found = explained_checkpoints._bytes(np.array([-3.0, 127.6, 255.7]))
    assert found.tolist() == [0, 128, 255] and found.dtype == "uint8"


def test_what_has_no_checkpoints_is_refused(run, photo, tmp_path):
    (tmp_path / "other").mkdir()
    without = shutil.ignore_patterns("checkpoints")
    shutil.copytree(run, tmp_path / "finished", ignore=without)
    for source, words in (
        (tmp_path / "other", "is no run"),
        (tmp_path / "finished", "has none. Train with"),
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


# --- Kept on the way ---


@dataclasses.dataclass(frozen=True)
class Made(type(tiny_runs.recipe("run"))):
    """A recipe with the options of MAE."""

    mae: MAEConfig = MAEConfig(0.5, True, 8, 1, 2, 8)


def unlabelled(folder, steps=20, callbacks=()):
    """Train for some intervals of 2 steps; return the file and the model."""
    options = {"epochs": None, "steps": steps, "checkpoint_every_steps": 2}
    recipe = tiny_runs.recipe(folder, training={**options, "keep": "last"})
    run = train(
        Made(**vars(recipe)),
        dataset=tiny_runs.DATASET,
        task=with_pictures(MAE, folder),
        callbacks=callbacks,
    )
    with np.load(folder / "over_time.npz", allow_pickle=False) as arrays:
        return dict(arrays), run.model


@pytest.fixture(scope="module")
def over_time(tmp_path_factory):
    return unlabelled(tmp_path_factory.mktemp("over_time") / "run")


def test_features_are_observed_wherever_their_score_stands(tmp_path):
    def features_last(recipe, model):
        return [lambda validation: "another", *MAE.make_scores(recipe, model)]

    model = load_classifier("fractals").model
    tasks = {
        "last": dataclasses.replace(MAE, make_scores=features_last),
        "none": dataclasses.replace(MAE, make_scores=lambda *_: []),
    }
    found = {
        name: [
            make(None)
            for make in with_pictures(task, tmp_path).make_scores(None, model)
        ]
        for name, task in tasks.items()
    }
    assert found["last"][0] == "another"
    for *_, last in found.values():
        assert isinstance(last.observe, FeaturesOverTime)


def test_the_start_the_end_and_a_few_between_are_kept(over_time):
    found, _ = over_time
    assert found["steps"].tolist() == [0, 4, 8, 12, 16, 20]
    assert [every(x) for x in (1, 7, 8, 14, 15, 100)] == [1, 1, 2, 2, 4, 16]
    for interval in (7, 8, 99, 1000):
        kept = [0]
        for now in range(1, interval + 1):
            kept = [x for x in kept if x % every(now) == 0] + [now]
        assert kept[0] == 0 and kept[-1] == interval
        assert 4 <= len(kept) <= 8
        assert len({*np.diff(kept)[:-1]}) == 1  # Evenly, but for the last.


def test_the_last_row_is_what_the_model_sees(over_time):
    """By plain NumPy, of the first 4 of 10 validation images."""
    found, model = over_time
    images = np.asarray(tiny_runs.DATASET.validation.contents, "float32")
    features = np.array(keras.ops.convert_to_numpy(model(images)), "float64")
    features /= np.linalg.norm(features, axis=1, keepdims=True)
    for i in range(4):
        similar = features @ features[i]
        similar[i] = -2
        nearest = np.argsort(-similar)[:4]
        np.testing.assert_array_equal(
            found["neighbours"][-1, i], images[nearest]
        )
    np.testing.assert_array_equal(found["images"], images[:4])
    weights = attention_maps(model, images[:4])[-1].mean(axis=1)
    prefix = model.config.num_prefix_tokens
    assert model.config.pooling == "mean"
    rows = weights[:, prefix:].mean(axis=1)[:, prefix:]
    maps = rows.reshape(-1, *model.config.grid)
    large = images[:4].astype("uint8").repeat(28, axis=1).repeat(28, axis=2)
    shown = [
        np.asarray(
            Image.fromarray(x).resize((160, 160), Image.Resampling.LANCZOS)
        )
        for x in overlay(large, maps, blur=1)
    ]
    np.testing.assert_allclose(found["attention"][-1], shown, atol=2)
    assert found["patches"].shape == (6, 4, 2, 2, 3)
    colours = found["patches"][-1].reshape(-1, 3)
    assert np.ptp(colours, axis=0).tolist() == [255] * 3


def test_a_stopped_run_keeps_the_same(over_time, tmp_path):
    class Stop(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            if epoch == 9:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        unlabelled(tmp_path / "run", callbacks=[Stop()])
    found, _ = unlabelled(tmp_path / "run")
    assert found.keys() == over_time[0].keys()
    for name, expected in over_time[0].items():
        np.testing.assert_array_equal(found[name], expected, err_msg=name)


@pytest.mark.once
def test_the_report_draws_a_strip_of_each_image(over_time, tmp_path):
    np.savez(tmp_path / "over_time.npz", **over_time[0])
    page = Page(report.render_report(tmp_path))
    part = page.part("over_time")
    assert "Image 4" in part and "Image 5" not in part
    shown = [x["alt"] for x in page.all("img")]
    steps = [f"step {x}" for x in (0, 4, 8, 12, 16, 20)]
    assert shown == 4 * 3 * ["the image", *steps]


@pytest.mark.once
def test_what_has_no_attention_shows_neighbours_alone(tmp_path):
    model = keras.Sequential([keras.Input((8, 8, 1)), keras.layers.Flatten()])
    keep = FeaturesOverTime(model, tmp_path)
    images = np.eye(3, 64, dtype="float32").reshape(3, 8, 8, 1) * 255
    keep(0, 0, images[:1], np.ones((1, 2)))  # One has no neighbour.
    assert not (tmp_path / "over_time.npz").exists()
    (tmp_path / "two").mkdir()
    FeaturesOverTime(model, tmp_path / "two")(0, 0, images[:2], np.eye(2))
    assert (tmp_path / "two" / "over_time.npz").exists()
    keep(0, 0, images, np.array([[1.0, 0], [0, 1], [1, 1]]))
    with np.load(tmp_path / "over_time.npz") as arrays:
        assert "attention" not in arrays
        others = arrays["neighbours"][0, 0]
    np.testing.assert_array_equal(others[:2], images[[2, 1]])
    assert (others[2:] == 128).all()
    page = Page(report.render_report(tmp_path))
    assert "neighbours" in page.part("over_time")


def test_colours_stay_the_same_when_components_change_places():
    first = np.random.default_rng(0).random((5, 3, 3, 3))
    other = np.stack([1 - first[..., 2], first[..., 0], first[..., 1]], -1)
    found = same_colours(np.stack([first, other, first]))
    np.testing.assert_allclose(found, np.stack([first] * 3))
