"""Commands whose runs, models and images are in object stores."""

import json

import numpy as np
import pytest
from recipe_scripts import TINY_SWEEP, output_of

import keras_vit
from keras_vit.io.stores import Store
from keras_vit.training.run import files as run_folder

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    """A machine that has nothing of the runs."""
    monkeypatch.setenv("KERAS_HOME", str(tmp_path / "cache"))
    run_folder._mirrors.clear()


@pytest.fixture(scope="module")
def run(emulator):
    """The address of a finished run, and what the command printed."""
    asked = emulator.address("runs/tiny")
    said = output_of("finetune", "--smoke", "--run_dir", asked)
    return f"{asked}-smoke", said


def result(address):
    return json.loads(Store(address).read("result.json") or b"")


def test_the_run_is_whole_and_its_address_is_said(run):
    address, said = run
    names = Store(address).find().keys()
    assert {"report.html", "model.keras", "per_class.csv"} <= names
    assert not any("lock" in name or "partial" in name for name in names)
    assert f"report and model: {address}" in said
    assert result(address)["num_examples"] == 8


def test_the_model_is_evaluated_in_another_run(run, emulator):
    address, _ = run
    evaluated = emulator.address("runs/evaluated")
    said = output_of(
        *("evaluate", "--model.weights", address),
        *("--run_dir", evaluated, "--batch_size", "4"),
    )
    assert f"report: {evaluated}/report.html" in said
    assert result(evaluated)["top1"] == result(address)["top1"]
    assert "report.html" in Store(evaluated).find()


def test_images_are_classified_by_a_copy_as_in_the_store(run, tmp_path):
    address, _ = run
    store = Store(address)
    for name in store.find():
        store.download(name, tmp_path / "copy" / name)
    expected = keras_vit.predict(
        str(tmp_path / "copy"), str(tmp_path / "copy" / "examples")
    )
    found = keras_vit.predict(address, f"{address}/examples")
    assert len(found) == len(expected) > 1
    for one, other in zip(found, expected, strict=True):
        assert one.classes == other.classes


def test_a_file_of_weights_is_loaded_by_its_address(emulator, tmp_path):
    model = keras_vit.load_checkpoint("fractals")
    keras_vit.save_checkpoint(model, tmp_path / "a.npz", format="google")
    Store(emulator.address("weights")).upload(tmp_path / "a.npz", "a.npz")
    loaded = keras_vit.load_checkpoint(emulator.address("weights/a.npz"))
    for one, other in zip(
        loaded.get_weights(), model.get_weights(), strict=True
    ):
        np.testing.assert_array_equal(one, other)


def test_a_sweep_and_all_its_runs_are_in_the_store(emulator, tmp_path):
    (tmp_path / "tiny.yaml").write_text(TINY_SWEEP)
    address = emulator.address("runs/sweep")
    options = "--config", tmp_path / "tiny.yaml", "--run_dir", address
    output_of("sweep", *options)
    names = Store(address).find().keys()
    assert {"sweep.csv", "sweep.png", "result.json"} <= names
    assert {"learning_rate_0.5/result.json", "final/model.keras"} <= names
    assert result(address)["top1"] == result(f"{address}/final")["top1"]
    # Another machine trains nothing again.
    run_folder._mirrors.clear()
    before = result(address)
    output_of("sweep", *options)
    assert result(address) == before


@pytest.mark.parametrize("name", ["few_shot", "noisy_student", "vtab"])
def test_each_recipe_leaves_its_run_in_the_store(emulator, name):
    address = emulator.address(f"runs/{name}")
    output_of(name, "--smoke", "true", "--run_dir", address)
    names = Store(f"{address}-smoke").find().keys()
    assert "result.json" in names
    # Of "vtab" those of its tasks, in folders.
    assert any(name.endswith("config.yaml") for name in names)
    assert not any("lock" in name or "partial" in name for name in names)
