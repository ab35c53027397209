"""Numbers of a CSV file: learned, evaluated and predicted in their units."""

import csv
import dataclasses
import json
import pathlib

import keras
import numpy as np
import pytest
from PIL import Image
from sklearn import metrics
from tiny_runs import Interrupt, recipe, values

import keras_vit
from keras_vit.data import DataConfig, open_dataset
from keras_vit.runs import evaluated, facts, finish
from keras_vit.training import train

LABELS = ("brightness", "depth")


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """Grey images; their level in dollars, and a number about 1e-4."""
    folder = tmp_path_factory.mktemp("numbers")
    random = np.random.default_rng(0)
    rows: list[tuple] = [("image", *LABELS)]
    for number in range(60):
        level = int(random.integers(20, 230))
        noise = random.integers(-20, 20, (8, 8))
        pixels = np.clip(level + noise, 0, 255).astype("uint8")
        Image.fromarray(pixels).save(folder / f"{number}.png")
        rows.append((f"{number}.png", 1000.5 + 40 * level, level * 1e-6))
    with (folder / "numbers.csv").open("w", newline="") as file:
        csv.writer(file).writerows(rows)
    return str(folder / "numbers.csv")


def config(folder, table, label_key="brightness,depth", **training):
    data = DataConfig(csv=table, label_key=label_key, reader="pillow")
    return recipe(folder, training=training, data=data)


@pytest.fixture(scope="module")
def run(table, tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    chosen = config(folder, table, epochs=30)
    found = train(chosen)
    finish(found, chosen, {**evaluated(found, chosen, "test"), **facts(found)})
    return found


def predicted(run, examples):
    found = keras_vit.predict(run.folder, list(examples.contents))
    return np.array([[value for _, value in x.classes] for x in found])


def test_predictions_are_in_the_units_of_the_file(run):
    test = run.dataset.test
    found = predicted(run, test)
    names = [
        name
        for name, _ in keras_vit.predict(run.folder, test.contents[0])[
            0
        ].classes
    ]
    assert names == list(LABELS)
    for column, scale in enumerate((8000, 2e-4)):
        error = np.abs(found[:, column] - test.labels[:, column]).mean()
        assert error < 0.15 * scale
    assert run.model.trained_as.problem == "regression"
    assert "Task: regression" in (run.folder / "data.txt").read_text()


def test_what_cannot_be_read_is_named_in_the_result(run, table, tmp_path):
    test = dataclasses.replace(run.dataset.test, on_broken_image="skip")
    dataset = dataclasses.replace(run.dataset, test=test)
    again = dataclasses.replace(run, dataset=dataset, folder=tmp_path)
    broken = pathlib.Path(test.contents[1])
    whole = broken.read_bytes()
    broken.write_bytes(whole[:40])
    try:
        result = evaluated(again, config(tmp_path, table), "test")
    finally:
        broken.write_bytes(whole)
    left_out = {"count": 1, "files": [str(broken)]}
    assert result["skipped"]["unreadable"] == left_out
    assert result["num_examples"] == len(test) - 1


def test_the_result_has_the_metrics_of_scikit_learn(run):
    test = run.dataset.test
    result = json.loads((run.folder / "result.json").read_text())
    with (run.folder / "predictions.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    true, found = (
        np.array([[float(row[f"{kind} {x}"]) for x in LABELS] for row in rows])
        for kind in ("true", "predicted")
    )
    assert (true == test.labels).all()
    assert [row["image"] for row in rows] == list(test.contents)
    np.testing.assert_allclose(found, predicted(run, test), rtol=1e-5)
    expected = {
        "mae": metrics.mean_absolute_error(true, found),
        "r2": metrics.r2_score(true, found),
    }
    assert {x: result[x] for x in expected} == pytest.approx(expected, rel=1e-9)
    assert result["num_examples"] == len(test)
    assert result["r2"] > 0.5


def test_the_error_in_a_training_is_in_units(run):
    found = predicted(run, run.dataset.validation)
    true = run.dataset.validation.labels
    expected = metrics.mean_absolute_error(true, found)
    assert min(run.history["val_mae"]) == pytest.approx(expected, rel=1e-4)
    best = run.history["val_r2"][np.argmin(run.history["val_mae"])]
    assert best == pytest.approx(metrics.r2_score(true, found), abs=1e-4)


def test_the_best_model_is_in_units(run, table):
    best = run.folder / "model.keras"
    part = run.dataset.validation
    found = keras_vit.predict(
        keras.saving.load_model(best), list(part.contents)
    )
    found = np.array([[value for _, value in x.classes] for x in found])
    expected = min(run.history["val_mae"])
    error = metrics.mean_absolute_error(part.labels, found)
    assert error == pytest.approx(expected, rel=1e-4)


@pytest.mark.once
def test_r2_selects_the_best_model(table, tmp_path):
    chosen = {"best_metric": "val_r2", "epochs": 4}
    found = train(config(tmp_path, table, **chosen))
    part = found.dataset.validation
    error = metrics.r2_score(part.labels, predicted(found, part))
    assert error == pytest.approx(max(found.history["val_r2"]), abs=1e-4)


@pytest.mark.once
@pytest.mark.parametrize("options", [{}, {"ema_decay": 0.5}])
def test_a_run_that_was_stopped_ends_with_the_same(options, table, tmp_path):
    whole = train(config(tmp_path / "whole", table, **options))
    stopped = config(tmp_path / "stopped", table, **options)
    with pytest.raises(KeyboardInterrupt):
        train(stopped, callbacks=[Interrupt()])
    resumed = train(stopped)
    pairs = zip(values(whole.model), values(resumed.model), strict=True)
    assert all((x == y).all() for x, y in pairs)


@pytest.mark.once
def test_with_the_head_of_an_earlier_run_it_begins_where_that_ended(
    run, table, tmp_path
):
    chosen = config(tmp_path, table, epochs=1)
    model = {"weights": str(run.folder), "head": "keep"}
    chosen = keras_vit.training.Recipe(
        data=chosen.data,
        model=keras_vit.training.ModelConfig(**model),
        optimizer=keras_vit.training.OptimizerConfig(
            name="sgd", learning_rate=1e-30, warmup_steps=1
        ),
        training=chosen.training,
        preprocessing=chosen.preprocessing,
        run_dir=str(tmp_path),
    )
    found = train(chosen)
    for x, y in zip(values(found.model), values(run.model), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-7)


@pytest.mark.once
@pytest.mark.parametrize(
    ("training", "message"),
    [
        ({"loss": "softmax"}, "numbers to learn.*loss='softmax'"),
        ({"best_metric": "val_auc"}, "best_metric='val_auc'"),
        ({"label_smoothing": 0.3}, "label_smoothing=0.3"),
        ({"class_weight": "balanced"}, "has numbers.*class_weight"),
    ],
)
def test_options_of_classes_are_refused(training, message, table, tmp_path):
    with pytest.raises(ValueError, match=message):
        train(config(tmp_path, table, **training))
    assert not (tmp_path / "config.yaml").exists()


@pytest.mark.once
def test_a_number_that_is_the_same_everywhere_is_refused(table, tmp_path):
    text = "\n".join(["image,label", *(f"{i}.png,0.5" for i in range(20))])
    path = table.replace("numbers.csv", "same.csv")
    with open(path, "w") as file:
        file.write(text)
    with pytest.raises(ValueError, match="'label' is 0.5 of all"):
        train(config(tmp_path, path, "label"))


def test_numbers_are_learned_about_0(run, table):
    labels = open_dataset(run_data(table)).train.labels
    mean, deviation = labels.mean(axis=0), labels.std(axis=0)
    targets = keras_vit.training.build.targets_of(run.dataset)
    normal = targets.normalised(run.dataset).train.labels
    np.testing.assert_allclose(normal, (labels - mean) / deviation)


def run_data(table):
    return DataConfig(csv=table, label_key="brightness,depth", reader="pillow")
