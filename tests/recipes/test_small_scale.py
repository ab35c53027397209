"""The harness of docs/paper.md, and that its results are those reported."""

import argparse
import json
import pathlib
import statistics
import zipfile

import numpy as np
import pytest
from recipe_scripts import TINY, script

from keras_vit.data import Examples
from keras_vit.data.dataset import Dataset

ROOT = pathlib.Path(__file__).parents[2]
RESULTS = sorted((ROOT / "docs" / "results" / "small_scale").glob("*.json"))
small_scale = script("small_scale")
few_images, recipes_of = small_scale.few_images, small_scale.recipes_of
summarise, table = small_scale.summarise, small_scale.table
EXPERIMENTS = small_scale.experiments()
FRACTALS = "fractals/num_classes=2,images_per_class=40,image_size=16"
ROWS = [
    {"model": "a", "size": 1, "accuracy": 0.5},
    {"model": "a", "size": 1, "accuracy": 0.7},
    {"model": "a", "size": 2, "accuracy": 0.9},
    {"model": "b", "size": 1, "accuracy": 0.25},
    {"model": "b", "size": 2, "accuracy": 1.0},
]


def sized(name, size="small", seeds=None):
    options = argparse.Namespace(experiment=name, size=size, seeds=seeds)
    return small_scale.sized(EXPERIMENTS[name], options)


def test_cells_are_all_combinations_where_the_first_axis_counts():
    experiment = {
        "options": {"seed": 1, "x": 0},
        "axes": {
            "a": {"one": {"x": 1}, "none": None},
            "b": {2: {"x": 3, "y": 2}},
        },
    }
    assert small_scale.cells(experiment) == [
        ({"a": "one", "b": 2}, {"seed": 1, "x": 1, "y": 2}),
        ({"a": "none", "b": 2}, {"seed": 1, "x": 3, "y": 2}),
    ]


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_run_is_a_recipe(name, monkeypatch):
    monkeypatch.chdir(ROOT)
    for size in ("small", *EXPERIMENTS[name].get("sizes", {})):
        for labels, options in small_scale.cells(sized(name, size)):
            assert (
                recipes_of(options, seed=3, folder=ROOT / "x")[-1].seed == 3
            ), labels


def test_an_unknown_size_ends_with_those_that_there_are():
    with pytest.raises(SystemExit, match="Expected one of small"):
        sized("pooling", "huge")


def test_summary_is_mean_and_sample_deviation():
    first, *_, last = summarise(ROWS, ["model", "size"])
    assert (first["model"], first["size"], first["seeds"]) == ("a", 1, 2)
    assert first["mean"] == pytest.approx(0.6)
    assert first["std"] == pytest.approx(statistics.stdev([0.5, 0.7]))
    assert (last["mean"], last["std"], last["seeds"]) == (1.0, 0.0, 1)


def test_table_has_the_last_axis_in_columns():
    axes = ["model", "size"]
    result = {"axes": axes, "summary": summarise(ROWS, axes)}
    assert table(result).splitlines() == [
        "| model | size: 1 | size: 2 |",
        "|---|--:|--:|",
        "| a | 60.0 ± 14.1 | 90.0 ± 0.0 |",
        "| b | 25.0 ± 0.0 | 100.0 ± 0.0 |",
    ]


def test_by_compute_a_cell_says_what_an_image_takes():
    rows = [{"size": 1, "accuracy": 0.5, "multiply_adds": 1_250_000}]
    summary = summarise(rows, ["size"])
    result = {"axes": ["size"], "summary": summary, "by_compute": True}
    assert "| 50.0 ± 0.0 (1.2 M) |" in table(result)
    figure = small_scale.plot({**result, "finding": "none"})
    [line] = figure.axes[0].get_lines()[:1]
    assert line.get_xdata() == [1.25]  # millions


def test_few_images_are_so_many_of_each_class():
    labels = np.arange(60, dtype="int32") % 3
    images = np.zeros((60, 8, 8, 1), "uint8")
    examples = Examples(images, labels)
    dataset = Dataset(examples, examples, examples, ("a", "b", "c"))
    few = few_images(dataset, 4, seed=0)
    assert np.bincount(few.train.labels).tolist() == [4, 4, 4]
    assert few.validation is None and few.test is examples
    again = few_images(dataset, 4, seed=1)
    assert few.train.numbers.tolist() != again.train.numbers.tolist()
    assert few_images(dataset, None, seed=0) is dataset


def test_an_experiment_trains_what_is_missing_and_nothing_else(
    tmp_path, monkeypatch
):
    config = tmp_path / "tiny.yaml"
    config.write_text(TINY)
    before = {
        "config": str(config),
        "data.name": FRACTALS,
        "training.epochs": 1,
        "training.batch_size": 8,
    }
    experiment = {
        "command": "python recipes/small_scale.py x",
        "paper": "table 0",
        "finding": "none",
        "seeds": 1,
        "options": {
            "training.epochs": 1,
            "optimizer.warmup_epochs": 0.5,
            **{f"pretraining.{key}": value for key, value in before.items()},
        },
        "axes": {
            "images": {
                7: {
                    "images_a_class": 7,
                    "pretraining.method": "masked_patch",
                },
                "all": {},
            }
        },
    }
    path = tmp_path / "results" / "x.json"
    first = small_scale.run(experiment, path, tmp_path / "runs")
    assert first == json.loads(path.read_text())
    assert [row["images"] for row in first["rows"]] == [7, "all"]
    assert all(0 <= row["accuracy"] <= 1 for row in first["rows"])
    folders = sorted(x.name for x in (tmp_path / "runs").glob("[!.]*"))
    assert folders[:2] == ["0", "1"]
    before = [tmp_path / "runs" / name for name in folders[2:]]
    # What is pre-trained without labels has no classification layer.
    configs = [
        zipfile.ZipFile(folder / "model.keras").read("config.json")
        for folder in before
    ]
    models = [json.loads(x)["config"]["config"] for x in configs]
    assert sorted(x["num_classes"] for x in models) == [0, 2]
    calls = []
    monkeypatch.setattr(
        small_scale,
        "measure",
        lambda options, **_: calls.append(options) or [{"accuracy": 1.0}],
    )
    again = small_scale.run(experiment, path, tmp_path / "runs")
    assert (calls, again["rows"]) == ([], first["rows"])
    experiment["seeds"] = 2
    small_scale.run(experiment, path, tmp_path / "runs")
    assert len(calls) == 2
    assert small_scale.plot(again).axes[0].get_xlabel() == "images"


@pytest.mark.parametrize("path", RESULTS, ids=lambda path: path.stem)
def test_a_result_is_of_the_experiment_as_it_is_now(path):
    result = json.loads(path.read_text())
    name, _, size = path.stem.partition("_large")
    experiment = sized(name, "large" if _ else "small")
    combined = json.loads(json.dumps(small_scale.cells(experiment)))
    measured = [row["options"] for row in result["rows"]]
    for _, options in combined:
        assert options in measured
    assert all(options in [x for _, x in combined] for options in measured)
    assert result["summary"] == summarise(result["rows"], result["axes"])
    assert min(x["seeds"] for x in result["summary"]) >= 3
    assert path.with_suffix(".png").exists()


@pytest.mark.parametrize("path", RESULTS, ids=lambda path: path.stem)
def test_the_document_has_the_measured_numbers(path):
    result = json.loads(path.read_text())
    document = (ROOT / "docs" / "paper.md").read_text()
    assert table(result) in document
    assert result["command"] in document
