"""recipes/reproduce.py: what is run, what is not and why, and what it makes."""

import csv
import json
import pathlib
import statistics

import pytest
from paper.cells import Place
from paper.reproduction import Reproduction, Runner, cells_of, table_name
from PIL import Image
from recipe_scripts import RECIPES, script

PETS = ("ViT-L/16 I21k", "Pets")
BEST = 0.003


def option(words, name):
    return words[words.index(f"--{name}") + 1]


class Recorder:
    """Takes the place of the processes: writes results, notes commands."""

    def __init__(self, top1=(0.9467,), fails=()):
        self.calls, self.top1, self.fails = [], list(top1), fails

    def __call__(self, words):
        name = pathlib.Path(words[0]).stem
        self.calls.append((name, words))
        if name in self.fails:
            return 2
        folder = pathlib.Path(option(words, "run_dir"))
        folder.mkdir(parents=True)
        top1 = self.top1[(len(self.calls) - 1) % len(self.top1)]
        result = {"top1": top1, "learning_rate": BEST}
        (folder / "result.json").write_text(json.dumps(result))
        return 0


@pytest.fixture
def runner(tmp_path, monkeypatch):
    """Of a machine that lacks nothing."""
    monkeypatch.setattr("paper.reproduction.lacking", lambda *_: [])
    asked = Reproduction(hardware="cluster", accumulation_steps=8)
    place = Place(str(RECIPES), str(tmp_path / "runs"))
    return Runner(place, asked, Recorder((0.94, 0.95, 0.97)))


def test_three_seeds_are_a_mean_and_a_spread(runner):
    [cell] = cells_of("2", PETS)
    assert runner.run(cell) == ""
    names = [name for name, _ in runner.execute.calls]
    assert names == ["sweep", "finetune", "finetune"]
    words = [words for _, words in runner.execute.calls]
    assert [option(x, "seed") for x in words] == ["0", "1", "2"]
    assert all(option(x, "training.accumulation_steps") == "8" for x in words)
    # The sweep has the rates of the paper, the others what it chose.
    assert "--optimizer.learning_rate" not in words[0]
    for later in words[1:]:
        assert option(later, "optimizer.learning_rate") == str(BEST)
    mean, spread, count = cell.measured(runner.place)
    assert (mean, count) == (pytest.approx(286 / 3), 3)
    assert spread == pytest.approx(statistics.stdev([94, 95, 97]))


def test_finished_runs_are_not_repeated(runner):
    [cell] = cells_of("2", PETS)
    runner.run(cell)
    again = Runner(runner.place, runner.asked, Recorder())
    assert again.run(cell) == "" and again.execute.calls == []
    # Those of Table 5 on the same model and data are the first of them.
    [same] = cells_of("5", ("ImageNet-21k, Pets", "ViT-L/16"))
    assert again.run(same) == "" and again.execute.calls == []
    assert same.measured(again.place)[0] == pytest.approx(94.0)


def test_what_fails_is_said_and_what_needs_it_is_not_run(runner):
    runner.execute.fails = ("pretrain",)
    [cell] = cells_of("5", ("JFT-300M, Pets", "ViT-B/16"))
    reason = "failed: pretrain ended with exit code 2"
    assert runner.run(cell) == reason
    assert [name for name, _ in runner.execute.calls] == ["pretrain"]
    # Nor is it tried again for the next cell.
    [other] = cells_of("5", ("JFT-300M, Flowers", "ViT-B/16"))
    assert runner.run(other) == reason
    assert len(runner.execute.calls) == 1
    assert cell.measured(runner.place) == (None, None, 0)


def looked_at(tmp_path, table, only, hardware="cpu"):
    asked = Reproduction(hardware=hardware, data_dir=str(tmp_path))
    place = Place(str(RECIPES), str(tmp_path))
    [reason] = map(Runner(place, asked).look, cells_of(table, only))
    return reason


def test_missing_data_weights_and_hardware_are_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    reason = looked_at(tmp_path, "2", PETS)
    assert "data: oxford_iiit_pet is not prepared" in reason
    assert "weights: ViT_L16/imagenet21k is not here" in reason
    assert "hardware: sweep needs an accelerator" in reason
    only = ("ViT-L/16 I21k", "ImageNet")
    reason = looked_at(tmp_path, "2", only, "accelerator")
    assert "data: imagenet2012 is not prepared; it is downloaded" in reason
    assert "hardware" not in reason
    only = ("JFT-300M, Pets", "ViT-B/16")
    reason = looked_at(tmp_path, "5", only, "accelerator")
    assert "no folder data/jft300m (JFT-300M is Google's own" in reason
    assert "hardware: pretrain needs a cluster" in reason
    reason = looked_at(tmp_path, "9", ("ViT-L/16 I21k", "dtd"))
    assert "data: no task of VTAB-1k is prepared" in reason


def rows_of(folder):
    with (folder / "reproduce.csv").open() as file:
        return list(csv.DictReader(file))


def refuse(_):
    raise AssertionError("nothing can be run here")


@pytest.fixture
def offline(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return ["--data_dir", str(tmp_path), "--hardware", "cpu"]


def test_what_cannot_be_run_stands_in_the_table(tmp_path, offline, capsys):
    words = ["2", *offline, "--only", "[ViT-L/16 I21k]", "--run_dir", "runs"]
    assert script("reproduce").main(words, refuse) == 0
    rows = {row["column"]: row for row in rows_of(tmp_path / "runs/table2")}
    assert rows["CIFAR-10"]["measured"] == ""
    assert "cifar10 is not prepared" in rows["CIFAR-10"]["state"]
    assert "recipes/sweep.py" in rows["CIFAR-10"]["commands"]
    # The days of the paper follow from the sizes of the model.
    assert float(rows["TPUv3-core-days"]["measured"]) > 100
    output = capsys.readouterr().out
    assert "| ViT-L/16 I21k | CIFAR-10 | 99.15 | 0.03 |" in output
    text = (tmp_path / "runs/table2/reproduce.md").read_text()
    assert text.count("recipes/sweep.py") == 5
    with Image.open(tmp_path / "runs/table2/reproduce.png") as picture:
        assert min(picture.size) > 150
        assert picture.convert("L").getextrema() == (0, 255)


@pytest.mark.parametrize("table", ["1", "6", "figure8"])
def test_pictures_of_all_kinds_of_numbers(table, tmp_path, offline):
    words = [table, *offline, "--run_dir", "runs"]
    assert script("reproduce").main(words, refuse) == 0
    (folder,) = (tmp_path / "runs").iterdir()
    assert len(rows_of(folder)) == len(cells_of(table))
    assert (folder / "reproduce.png").stat().st_size > 5000


def test_a_dry_run_prints_commands_and_runs_none(tmp_path, offline, capsys):
    words = ["2", "--dry_run", *offline, "--only", '["ViT-L/16 I21k",Pets]']
    assert script("reproduce").main(words, refuse) == 0
    lines = capsys.readouterr().out.splitlines()
    commands = [line for line in lines if line.startswith("python")]
    assert len(commands) == 3
    assert "--seed 2" in commands[2]
    assert any("oxford_iiit_pet is not prepared" in line for line in lines)
    assert list(tmp_path.iterdir()) == []


def test_tables_and_commands_are_listed(capsys):
    assert script("reproduce").main(["--list"]) == 0
    listed = capsys.readouterr().out
    assert "table9" in listed and "figure12" in listed
    assert script("reproduce").main(["9", "--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert sum("vtab.py" in line for line in lines) == 9


def test_an_unknown_table_is_refused(capsys):
    with pytest.raises(SystemExit) as ended:
        script("reproduce").main(["17"])
    assert ended.value.code == 2
    assert "table5" in capsys.readouterr().err


def test_ctrl_c_keeps_what_was_measured(tmp_path, monkeypatch, offline):
    monkeypatch.setattr("paper.reproduction.lacking", lambda *_: [])
    recorder = Recorder((0.8,))

    def interrupted(words):
        if len(recorder.calls) == 3:
            raise KeyboardInterrupt
        return recorder(words)

    words = ["2", *offline, "--only", "[ViT-L/16 I21k]", "--run_dir", "runs"]
    assert script("reproduce").main(words, interrupted) == 130
    rows = {row["column"]: row for row in rows_of(tmp_path / "runs/table2")}
    assert float(rows["ImageNet"]["measured"]) == pytest.approx(80.0)
    assert rows["ImageNet ReaL"]["measured"] == ""
    assert rows["Pets"]["state"] == "not run"


def in_process(words):
    """A recipe in this process, which has imported what it needs."""
    return script(pathlib.Path(words[0]).stem).main(words[1:])


def tried(table, only, tmp_path):
    words = [table, "--smoke", "true", "--run_dir", str(tmp_path / "runs")]
    words += ["--only", json.dumps(only)]
    assert script("reproduce").main(words, in_process) == 0
    return rows_of(tmp_path / "runs-smoke" / table_name(table))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("table", "only", "run", "paper"),
    [
        ("8", ["1-D", "stem"], "7ep", "64.206"),
        ("4.6", ["pixels by L2, 50 % hidden"], "masked_pixels", ""),
    ],
)
def test_a_trial_of_a_cell(table, only, run, paper, tmp_path):
    """From pre-training to the number."""
    [row] = tried(table, only, tmp_path)
    folder = tmp_path / f"runs-smoke/jft300m/ViT-B16_{run}"
    result = json.loads(
        (folder / "few_shot_imagenet-smoke/result.json").read_text()
    )
    [five] = [x for x in result["summary"] if x["shots"] == 5]
    assert float(row["measured"]) == pytest.approx(100 * five["mean"])
    assert (folder / "pretraining-smoke/result.json").is_file()
    assert row["paper"] == paper


@pytest.mark.slow
def test_a_trial_of_three_seeds(tmp_path):
    [row] = tried("2", ["ViT-L/16 I21k", "ImageNet ReaL"], tmp_path)
    assert (row["runs"], row["paper"]) == ("3", "88.62")
    assert row["measured"] != "" and row["spread"] != ""
    assert row["state"].startswith("measured")
