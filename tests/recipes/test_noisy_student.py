"""Whole rounds of Noisy Student, in miniature."""

import csv
import json

import numpy as np
import pytest
import yaml
from PIL import Image
from recipe_scripts import output_of, script

CONFIG = """
data: {name: digits, train_split: "train[:40]",
  validation_split: "train[40:48]", test_split: "train[48:60]"}
model: {patch_size: 8, hidden_dim: 8, num_layers: 1, mlp_dim: 8, num_heads: 2,
  dropout_rate: 0.1}
preprocessing: {train: squash, evaluation: squash, flip: false}
optimizer: {warmup_steps: 1}
training: {epochs: 1, batch_size: 8}
noisy_student:
  networks: [{}, {hidden_dim: 16}]
"""


@pytest.fixture(scope="module")
def rounds(tmp_path_factory):
    folder = tmp_path_factory.mktemp("rounds")
    path = folder / "tiny.yaml"
    path.write_text(CONFIG)
    output = output_of(
        "noisy_student", "--config", path, "--run_dir", folder / "run"
    )
    return path, folder / "run", output


def test_a_student_learns_from_its_teacher(rounds):
    _, folder, output = rounds
    with (folder / "noisy_student.csv").open() as file:
        teacher, student = csv.DictReader(file)
    assert teacher["num_train_images"] == "20"
    assert student["num_train_images"] == "40"
    assert student["num_pseudo_labelled"] == "20"
    assert student["network"] == "model hidden_dim=16"
    assert int(student["num_parameters"]) > int(teacher["num_parameters"])
    with np.load(folder / "iteration_0" / "pseudo_labels.npz") as arrays:
        shares = arrays["probabilities"]
    np.testing.assert_allclose(shares.sum(axis=1), np.ones(20), 1e-5)
    assert 0 <= float(student["pseudo_label_accuracy"]) <= 1
    assert "student 1 (model hidden_dim=16)" in output
    for name in ("iteration_0", "iteration_1"):
        assert (folder / name / "report.html").is_file()
    with Image.open(folder / "noisy_student.png") as picture:
        assert picture.convert("L").getextrema() == (0, 255)
    assert yaml.safe_load((folder / "config.yaml").read_text())


def test_the_same_command_repeats_only_what_is_not_finished(rounds):
    path, folder, first = rounds
    teacher = folder / "iteration_0"
    kept = [teacher / "model.keras", teacher / "pseudo_labels.npz"]
    before = [file.stat().st_mtime_ns for file in kept]
    expected = json.loads((folder / "iteration_1" / "result.json").read_text())
    (folder / "iteration_1" / "result.json").unlink()
    again = output_of("noisy_student", "--config", path, "--run_dir", folder)
    assert [file.stat().st_mtime_ns for file in kept] == before
    found = json.loads((folder / "iteration_1" / "result.json").read_text())
    assert found["top1"] == expected["top1"]
    assert again.splitlines()[-3:] == first.splitlines()[-3:]


def test_rounds_of_another_config_are_refused(rounds, capsys):
    path, folder, _ = rounds
    options = ["--config", str(path), "--run_dir", str(folder)]
    with pytest.raises(SystemExit) as ended:
        script("noisy_student").main([*options, "--training.batch_size", "4"])
    assert ended.value.code == 2
    assert "training.batch_size: was 8, now 4" in capsys.readouterr().err


@pytest.mark.slow
def test_an_efficientnet_teaches_and_learns(tmp_path):
    small = "{name: EfficientNetB0, image_size: 32, channels: 1}"
    path = tmp_path / "tiny.yaml"
    path.write_text(CONFIG)
    output = output_of(
        "noisy_student",
        *("--config", path, "--run_dir", tmp_path / "run"),
        *("--noisy_student.networks", f"[{small}, {small}]"),
        *("--noisy_student.labels", "hard"),
    )
    assert "teacher (EfficientNetB0 image_size=32 channels=1)" in output
    assert (tmp_path / "run" / "iteration_1" / "model.keras").is_file()


@pytest.mark.slow
def test_smoke_tries_the_default(tmp_path):
    output = output_of(
        "noisy_student", "--smoke", "true", "--run_dir", tmp_path / "run"
    )
    assert "student 1" in output
    assert (tmp_path / "run-smoke" / "noisy_student.png").is_file()


@pytest.mark.once
def test_labels_of_images_that_are_others_now_are_refused(tmp_path, capsys):
    photos = tmp_path / "photos"
    photos.mkdir()
    for number in range(9):
        colour = 28 * number
        Image.new("L", (8, 8), colour).save(photos / f"{number}.png")
    path = tmp_path / "tiny.yaml"
    path.write_text(CONFIG)
    options = ["--config", path, "--run_dir", tmp_path / "run"]
    options += ["--noisy_student.unlabelled", photos]
    output_of("noisy_student", *options)
    Image.new("L", (8, 8), 7).save(photos / "3.png")  # As many as before.
    with pytest.raises(SystemExit) as ended:
        script("noisy_student").main([*map(str, options)])
    assert ended.value.code == 2
    assert "9 without labels now are others" in capsys.readouterr().err
