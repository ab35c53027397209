"""recipes/vtab.py on mocked data sets: each task a run that is not repeated."""

import contextlib
import csv
import io
import json
import pathlib

import keras
import pytest
import vtab_builders
import yaml
from PIL import Image
from recipe_scripts import script

from keras_vit.runs import reporting

pytest.importorskip("tensorflow_datasets")

CONFIG = """
model: {patch_size: 8, hidden_dim: 8, num_layers: 1, mlp_dim: 8, num_heads: 2,
  channels: 3}
preprocessing: {train: squash, evaluation: squash, flip: false}
optimizer: {name: sgd, warmup_steps: 1, learning_rate: 0.1}
training: {steps: 4, batch_size: 4, checkpoint_every_steps: 2}
data: {download: false, max_examples: 7, check_images: none}
"""
# Without supervised keys both, and one that must be downloaded by hand.
TASKS = "[dtd,dsprites_location,resisc45]"


@pytest.fixture(scope="module")
def words(tmp_path_factory):
    root = tmp_path_factory.mktemp("vtab")
    vtab_builders.describe(root, ["dtd", "dsprites_location"])
    config = root / "tiny.yaml"
    config.write_text(CONFIG)
    return ["--config", str(config), "--data.data_dir", str(root)]


def run(words, folder, *more):
    """The exit code and what is printed."""
    output = io.StringIO()
    data_dir = pathlib.Path(words[words.index("--data.data_dir") + 1])
    with contextlib.redirect_stdout(output), vtab_builders.mocked(data_dir):
        code = script("vtab").main([*words, "--run_dir", str(folder), *more])
    return code, output.getvalue()


def result(folder):
    return json.loads((folder / "result.json").read_text())


def rows_of(folder):
    with (folder / "vtab.csv").open() as file:
        return {
            (row["group"], row["task"]): row for row in csv.DictReader(file)
        }


@pytest.fixture(scope="module")
def done(words, tmp_path_factory):
    """A run that Ctrl-C ended in its second task, and its continuation."""
    folder = tmp_path_factory.mktemp("runs") / "vtab"
    real = reporting.train

    class Interrupt(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            if epoch == 1:
                raise KeyboardInterrupt

    def interrupted(recipe, **options):
        second = recipe.data.name == "vtab/dsprites_location"
        callbacks = [Interrupt()] if second else []
        return real(recipe, callbacks=callbacks, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reporting, "train", interrupted)
        first = run(words, folder, "--tasks", TASKS)
    table = rows_of(folder)
    begun = (folder / "dtd" / "model.keras").stat().st_mtime_ns
    second = run(words, folder, "--tasks", TASKS)
    return folder, first, table, begun, second


def test_ctrl_c_leaves_the_finished_tasks_in_the_table(done):
    _, (code, _), table, _, _ = done
    assert code == 130
    assert table["natural", "dtd"]["accuracy"] != ""
    assert table["structured", "dsprites_location"]["accuracy"] == ""


def test_the_same_command_continues_and_repeats_nothing(done):
    folder, _, _, begun, (code, _) = done
    assert code == 0
    assert (folder / "dtd" / "model.keras").stat().st_mtime_ns == begun
    environment = folder / "dsprites_location" / "environment.json"
    (continued,) = json.loads(environment.read_text())["continued"]
    assert continued["step"] == 2
    for task in ("dtd", "dsprites_location"):
        config = yaml.safe_load((folder / task / "config.yaml").read_text())
        assert config["data"]["name"] == f"vtab/{task}"
        assert config["data"]["train_split"] == "train800val200"
        assert (folder / task / "report.html").is_file()


def test_the_table_has_what_the_runs_have(done):
    folder, *_, (_, output) = done
    table, found = rows_of(folder), result(folder)
    assert set(found["tasks"]) == {"dtd", "dsprites_location"}
    for group, task in (
        ("natural", "dtd"),
        ("structured", "dsprites_location"),
    ):
        accuracy = 100 * result(folder / task)["top1"]
        assert float(table[group, task]["accuracy"]) == pytest.approx(accuracy)
        assert found["tasks"][task] == pytest.approx(accuracy)
        assert f"{task}: {accuracy:.1f} %" in output
    assert table["all", "mean"]["data"] == "2 of 19 tasks"
    with Image.open(folder / "vtab.png") as picture:
        assert min(picture.size) > 400
        assert picture.convert("L").getextrema() == (0, 255)
    assert "| dtd |" in (folder / "vtab.md").read_text()


def test_data_to_be_got_by_hand_is_said_and_left_out(done):
    folder, *_, (_, output) = done
    why = result(folder)["missing"]["resisc45"]
    assert "downloaded by hand" in why and "manual_dir" in why
    assert rows_of(folder)["specialized", "resisc45"]["note"] == why
    assert "resisc45: left out" in output


def test_runs_of_another_config_are_refused(done, words, capsys):
    with pytest.raises(SystemExit) as ended:
        run(words, done[0], "--tasks", "[dtd]", "--seed", "1")
    assert ended.value.code == 2
    assert "seed: was 0, now 1" in capsys.readouterr().err


def test_without_any_data_nothing_is_trained(words, tmp_path, capsys):
    with pytest.raises(SystemExit) as ended:
        run(words, tmp_path / "run", "--tasks", "[resisc45]")
    assert ended.value.code == 2
    last = capsys.readouterr().err.splitlines()[-1]
    assert "No task of VTAB-1k has data" in last and "manual_dir" in last
    assert (tmp_path / "run" / "vtab.md").is_file()


@pytest.mark.slow
def test_the_best_setting_of_all_tasks_is_trained_with(words, tmp_path):
    code, _ = run(
        words,
        tmp_path / "run",
        *("--tasks", "[dtd,dsprites_location]", "--schedules", "[2,4]"),
        *("--sweep.learning_rates", "[0.001,0.5]"),
    )
    assert code == 0
    with (tmp_path / "run" / "sweep.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 8
    found = result(tmp_path / "run")
    scores = {}
    for row in rows:
        name = f"learning_rate_{row['learning_rate']}_steps_{row['steps']}"
        scores.setdefault(name, []).append(float(row["top1"]))
    means = {name: sum(tops) / 2 for name, tops in scores.items()}
    assert found["validation"] == pytest.approx(means)
    best = max(means, key=lambda name: means[name])
    assert (
        best
        == f"learning_rate_{found['learning_rate']:g}_steps_{found['steps']}"
    )
    config = yaml.safe_load(
        (tmp_path / "run" / "dtd" / "config.yaml").read_text()
    )
    assert config["training"]["steps"] == found["steps"]
    assert config["optimizer"]["learning_rate"] == found["learning_rate"]


@pytest.mark.slow
def test_a_trial_needs_no_data(tmp_path, capsys):
    assert (
        script("vtab").main(
            ["--smoke", "true", "--run_dir", str(tmp_path / "run")]
        )
        == 0
    )
    rows = rows_of(tmp_path / "run-smoke")
    tried = [row for row in rows.values() if row["accuracy"] and row["images"]]
    assert {row["group"] for row in tried} == {
        "natural",
        "specialized",
        "structured",
    }
    assert all("no result of VTAB" in row["note"] for row in tried)
    assert all(row["difference"] == "" for row in rows.values())
