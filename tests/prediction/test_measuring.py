"""`keras-vit summary` and `keras-vit benchmark`."""

import json
import pathlib

import keras
import pytest

from keras_vit.cli import main

PAIR = pathlib.Path(__file__).parents[1] / "reference/text/clip_quick_gelu"


def test_summary_counts_every_weight_and_product(run, run_folder):
    found = json.loads(run("summary", run_folder, "--format", "json"))
    model = keras.saving.load_model(run_folder / "model.keras", compile=False)
    assert found["total"]["parameters"] == model.count_params()
    parts = {part["part"]: part for part in found["parts"]}
    # Tokens N = 5, D = 8, MLP 16: query, key, value and output, the two
    # products of attention, the two layers of the MLP.
    block = 4 * 5 * 8 * 8 + 2 * 5 * 5 * 8 + 2 * 5 * 8 * 16
    assert parts["block_*"]["times"] == 2
    assert parts["block_*"]["multiply_adds"] == block
    assert parts["patch_embed"]["multiply_adds"] == 4 * 4 * 4 * 3 * 8
    assert parts["predictions"]["multiply_adds"] == 8 * 3
    total = 2 * block + 4 * 4 * 4 * 3 * 8 + 8 * 3
    assert found["total"]["multiply_adds"] == total


def test_summary_is_a_table(run, run_folder):
    lines = run("summary", run_folder).splitlines()
    (total,) = [line for line in lines if line.startswith("| total")]
    assert "100.0%" in total


def test_benchmark_times_each_batch(run, run_folder):
    options = ("--batch", "1", "3", "--repeats", "3", "--format", "json")
    found = json.loads(run("benchmark", run_folder, *options))
    assert [row["batch"] for row in found["rows"]] == [1, 3]
    assert found["backend"] == keras.backend.backend()
    for row in found["rows"]:
        assert 0 < row["fastest_seconds"] <= row["median_seconds"]
        rate = row["batch"] / row["median_seconds"]
        assert row["images_per_second"] == pytest.approx(rate)


def test_benchmark_times_both_towers(run):
    options = ("--texts", "--batch", "1", "3", "--repeats", "2")
    found = json.loads(run("benchmark", PAIR, *options, "--format", "json"))
    for rows, each in ((found["rows"], "images"), (found["texts"], "texts")):
        assert [row["batch"] for row in rows] == [1, 3]
        for row in rows:
            rate = row["batch"] / row["median_seconds"]
            assert row[f"{each}_per_second"] == pytest.approx(rate)
    table = run("benchmark", PAIR, *options)
    assert "texts/s" in table and "images/s" in table
    assert "Texts of 16 tokens:" in table


def test_benchmark_of_exports_has_no_texts(capsys):
    arguments = ["benchmark", str(PAIR), "--texts", "--formats", "onnx"]
    assert main(arguments) == 2
    assert "--texts times both towers in Keras" in capsys.readouterr().err


def test_benchmark_is_a_median_without_the_first_call(run, monkeypatch):
    from keras_vit.cli import model_commands

    # Begin and end of the first call, which compiles, and of three others.
    times = iter([0.0, 60.0, 60.0, 61.0, 61.0, 63.0, 63.0, 72.0])
    monkeypatch.setattr(
        model_commands.time, "perf_counter", lambda: next(times)
    )

    class Model:
        input_shape = (None, 4, 4, 3)

        def predict_on_batch(self, images):
            assert images.shape == (8, 4, 4, 3)

    assert model_commands._timed(Model(), 8, 3) == {
        "batch": 8,
        "first_call_seconds": 60.0,
        "median_seconds": 2.0,
        "fastest_seconds": 1.0,
        "images_per_second": 4.0,
    }
