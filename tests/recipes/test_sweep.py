"""The sweep and pre-training scripts from the command line, in miniature."""

import collections
import csv
import json
import os

import numpy as np
import pytest
import yaml
from PIL import Image
from recipe_scripts import TINY_SWEEP, output_of, script

from keras_vit import data
from keras_vit.data.manifest import read_manifest

NO_SPLITS = [
    option
    for split in ("data.train", "data.validation", "data.test", "sweep.train")
    for option in (f"--{split}_split", "null")
]


def refusal(capsys, name, *arguments):
    with pytest.raises(SystemExit) as ended:
        script(name).main([*map(str, arguments)])
    assert ended.value.code == 2
    return capsys.readouterr().err.splitlines()[-1]


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    path = tmp_path_factory.mktemp("config") / "tiny.yaml"
    path.write_text(TINY_SWEEP)
    return path


@pytest.fixture(scope="module")
def sweep(config):
    """Folder and output of a finished sweep."""
    folder = config.parent / "sweep"
    return folder, output_of("sweep", "--config", config, "--run_dir", folder)


def result(folder):
    return json.loads((folder / "result.json").read_text())


def test_each_learning_rate_is_a_run(sweep):
    folder, _ = sweep
    for rate in ("0.001", "0.5"):
        run = folder / f"learning_rate_{rate}"
        config = yaml.safe_load((run / "config.yaml").read_text())
        assert config["optimizer"]["learning_rate"] == float(rate)
        assert config["data"]["train_split"] == "train[:16]"
        assert result(run)["num_examples"] == 8
        assert (run / "report.html").is_file()


def test_the_best_is_trained_on_the_whole_training_set(sweep):
    folder, output = sweep
    with (folder / "sweep.csv").open() as file:
        rows = list(csv.DictReader(file))
    best = max(rows, key=lambda row: float(row["top1"]))["learning_rate"]
    config = yaml.safe_load((folder / "final" / "config.yaml").read_text())
    assert config["optimizer"]["learning_rate"] == float(best)
    assert config["data"]["train_split"] == "train[:24]"
    assert config["data"]["validation_split"] is None
    assert result(folder)["learning_rate"] == float(best)
    # Every test image is counted, those that fill no batch as well.
    assert result(folder)["num_examples"] == 7
    assert result(folder)["top1"] == result(folder / "final")["top1"]
    assert f"learning rate {float(best):g} on the whole training set" in output


def test_the_plot_has_something_on_it(sweep):
    with Image.open(sweep[0] / "sweep.png") as picture:
        assert min(picture.size) > 400
        assert picture.convert("L").getextrema() == (0, 255)


def test_the_same_command_repeats_no_finished_run(sweep, config):
    folder, first = sweep
    last = folder / "learning_rate_0.5" / "result.json"
    os.remove(last)
    kept = {
        path: path.stat().st_mtime_ns
        for path in folder.glob("*/model.keras")
        if path.parent != last.parent
    }
    again = output_of("sweep", "--config", config, "--run_dir", folder)
    assert again.splitlines()[-4:] == first.splitlines()[-4:]
    assert last.is_file()
    assert kept == {path: path.stat().st_mtime_ns for path in kept}


def test_a_sweep_of_another_config_is_refused(sweep, config, capsys):
    line = refusal(
        capsys,
        "sweep",
        "--config",
        config,
        "--run_dir",
        sweep[0],
        "--training.batch_size",
        8,
    )
    assert "training.batch_size: was 4, now 8" in line


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--sweep.learning_rates", "[]"], "nothing to compare"),
        (["--sweep.learning_ratess", "[1]"], "--sweep.learning_rates"),
        (["--data.validation_split", "null"], "Give all three"),
        (["--data.name", "cifar10", *NO_SPLITS], "Give all three"),
        (["--sweep.train_split", "train[:2"], "Received: 'train[:2'"),
        (
            ["--data.validation_fraction", "0", *NO_SPLITS],
            "--data.validation_fraction",
        ),
    ],
)
def test_wrong_sweeps_are_explained(
    arguments, message, config, tmp_path, capsys
):
    line = refusal(
        capsys,
        "sweep",
        "--config",
        config,
        "--run_dir",
        tmp_path / "run",
        *arguments,
    )
    assert message in line
    assert not (tmp_path / "run").exists()


@pytest.fixture(scope="module")
def pretraining(config):
    folder = config.parent / "pretraining"
    return folder, output_of(
        "pretrain", "--config", config, "--run_dir", folder
    )


def test_pretraining_reports_on_the_validation_images(pretraining):
    folder, output = pretraining
    found = result(folder)
    assert (found["num_examples"], found["split"]) == (8, "validation")
    assert f"{found['top1']:.2%} of 8 validation images" in output
    assert (folder / "report.html").is_file()


def test_a_run_goes_on_at_a_higher_resolution(pretraining, config, tmp_path):
    """One argument; the class names come along."""
    folder, _ = pretraining
    text = yaml.safe_load(config.read_text())
    text["model"] = {"weights": str(folder), "image_size": 32}
    (tmp_path / "larger.yaml").write_text(yaml.safe_dump(text))
    output_of(
        "pretrain",
        "--config",
        tmp_path / "larger.yaml",
        "--run_dir",
        tmp_path / "run",
    )
    from keras_vit.checkpoints.engine.keras_files import load_model

    model, names = load_model(tmp_path / "run" / "model.keras")
    assert model.input_shape == (None, 32, 32, 1)
    assert names == tuple("0123456789")


def test_smoke_shrinks_from_the_command_line(tmp_path):
    output_of("pretrain", "--smoke", "true", "--run_dir", tmp_path / "run")
    found = yaml.safe_load((tmp_path / "run-smoke" / "config.yaml").read_text())
    assert found["model"]["size"] == "tiny"
    assert found["training"]["steps"] == 2


def test_interrupted_pretraining_says_how_to_go_on(
    tmp_path, capsys, monkeypatch
):
    pretrain = script("pretrain")

    def interrupted(recipe):
        raise KeyboardInterrupt

    monkeypatch.setattr(pretrain, "run", interrupted)
    assert pretrain.main(["--run_dir", str(tmp_path / "run")]) == 130
    assert "the same command continues" in capsys.readouterr().err


@pytest.mark.once
def test_validation_images_of_a_folder_are_trained_on_at_last(tmp_path, capsys):
    numbers = {"train": range(12), "val": range(12, 20), "test": range(20, 28)}
    for part, images in numbers.items():
        for number in images:
            path = tmp_path / "photos" / part / "ab"[number % 2]
            path.mkdir(parents=True, exist_ok=True)
            colour = (9 * number,) * 3
            Image.new("RGB", (8, 8), colour).save(path / f"{number}.png")
    text = yaml.safe_load(TINY_SWEEP)
    text["data"] = {"folder": str(tmp_path / "photos"), "reader": "pillow"}
    del text["sweep"]["train_split"]
    (tmp_path / "sweep.yaml").write_text(yaml.safe_dump(text))
    arguments = ["--config", tmp_path / "sweep.yaml"]
    output_of("sweep", *arguments, "--run_dir", tmp_path / "run")
    for name, expected in (
        ("learning_rate_0.5", {"train": 12, "validation": 8, "test": 8}),
        ("final", {"train": 20, "test": 8}),
    ):
        images = read_manifest(tmp_path / "run" / name / "images.csv.gz")
        assert collections.Counter(x.part for x in images) == expected
    again = tmp_path / "run" / "final" / "result.json"
    again.unlink()
    output_of("sweep", *arguments, "--run_dir", tmp_path / "run")
    assert again.is_file()
    Image.new("RGB", (8, 8)).save(tmp_path / "photos/train/a/2.png")
    arguments += ["--run_dir", tmp_path / "run"]
    line = refusal(capsys, "sweep", *arguments)
    assert "not those of today" in line and "2.png" in line
    output_of("sweep", *arguments, "--data.accept_changes", "true")


@pytest.mark.once
def test_parts_that_are_kept_otherwise_are_not_joined():
    images = np.zeros((4, 8, 8, 1), "uint8")
    labels = np.arange(4) % 2
    train = data.Examples(images, labels, source="small")
    validation = data.Examples(images[:, :4], labels, source="flat")
    dataset = data.Dataset(train, validation, train, ("a", "b"), "both")
    with pytest.raises(ValueError, match="kept otherwise: flat, small"):
        script("sweep").with_validation(dataset)
