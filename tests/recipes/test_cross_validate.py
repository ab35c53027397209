"""All folds of a data set by one command."""

import csv
import json
import statistics

import cross_validate
import pytest
from PIL import Image

READER = ("--data.reader", "pillow")
SMALL = (
    *("--model.image_size", "8", "--model.patch_size", "4"),
    *("--model.hidden_dim", "8", "--model.num_layers", "1"),
    *("--model.mlp_dim", "8", "--model.num_heads", "1"),
    *("--training.epochs", "2", "--training.batch_size", "4"),
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root = tmp_path_factory.mktemp("folds")
    for number in range(24):
        path = root / "images" / "ab"[number % 2] / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("L", (8, 8), 120 * (number % 2) + number).save(path)
    assert not cross_validate.main(command(root))
    return root


def command(root):
    data = ("--data.folder", str(root / "images"), "--data.folds", "3")
    return [*data, *READER, *SMALL, "--run_dir", str(root / "run")]


def read(path):
    return json.loads((path / "result.json").read_text())


def test_the_mean_and_the_deviation_are_those_of_the_folds(folder):
    result = read(folder / "run")
    folds = [read(folder / "run" / f"fold_{i}") for i in range(3)]
    assert sum(x["num_examples"] for x in folds) == 24
    assert result["num_examples"] == 24 and result["folds"] == 3
    for name in ("top1", "macro_f1", "auc"):
        values = [x[name] for x in folds]
        mean = sum(values) / 3
        assert result["mean"][name] == pytest.approx(mean)
        squares = sum((x - mean) ** 2 for x in values)
        assert result["deviation"][name] == pytest.approx((squares / 2) ** 0.5)
        assert statistics.stdev(values) == result["deviation"][name]
    with (folder / "run" / "folds.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [float(row["top1"]) for row in rows] == [x["top1"] for x in folds]


def test_what_is_finished_is_not_repeated(folder, capsys):
    before = (folder / "run" / "fold_1" / "result.json").stat().st_mtime_ns
    assert not cross_validate.main(command(folder))
    after = (folder / "run" / "fold_1" / "result.json").stat().st_mtime_ns
    assert before == after
    line = f"top1: {read(folder / 'run')['mean']['top1']:.4f} ± "
    assert line in capsys.readouterr().out


def test_without_folds_it_says_what_to_give(capsys, tmp_path):
    with pytest.raises(SystemExit):
        cross_validate.main(["--run_dir", str(tmp_path / "run")])
    assert "Give --data.folds 5" in capsys.readouterr().err


def test_a_trial_has_two_folds(tmp_path):
    words = ["--smoke", "true", "--run_dir", str(tmp_path / "run")]
    assert not cross_validate.main([*words, *READER])
    assert read(tmp_path / "run-smoke")["folds"] == 2
