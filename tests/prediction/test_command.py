"""`keras-vit predict`, and what no command takes."""

import csv
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import keras
import pytest

import keras_vit
from keras_vit.cli import main
from keras_vit.cli.terminal import waiting

ROOT = Path(__file__).parents[2]


def expected_of(model, source):
    return [
        (found.image, name, probability)
        for found in keras_vit.predict(model, source)
        for name, probability in found.classes
    ]


def test_json_says_what_predict_says(run, run_folder, photos):
    printed = run("predict", run_folder, photos, "--format", "json")
    found = [
        (image["image"], one["class"], one["probability"])
        for image in json.loads(printed)
        for one in image["classes"]
    ]
    assert len(found) == 9
    assert found == expected_of(run_folder, photos)


def test_csv_says_what_predict_says(run, run_folder, photos):
    printed = run("predict", run_folder, photos, "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(printed)))
    assert [row["rank"] for row in rows] == ["1", "2", "3"] * 3
    found = [
        (row["image"], row["class"], float(row["probability"])) for row in rows
    ]
    assert found == expected_of(run_folder, photos)


def test_table_names_each_image_once(run, run_folder, photos):
    printed = run("predict", run_folder, photos, "--top", "2")
    assert printed.count("%") == 6
    for name in ("a.PNG", "b.png", "below/c.webp"):
        assert printed.count(str(photos / name)) == 1


def test_paths_come_from_standard_input(run, run_folder, photos, monkeypatch):
    lines = f"{photos / 'b.png'}\n\n{photos / 'below'}\r\n"
    monkeypatch.setattr(sys, "stdin", io.StringIO(lines))
    options = ("--format", "json", "--batch", "2")
    printed = run("predict", run_folder, photos / "a.PNG", "-", *options)
    found = [Path(image["image"]).name for image in json.loads(printed)]
    assert found == ["a.PNG", "b.png", "c.webp"]


@pytest.mark.parametrize("batch", ["1", "2", "32"])
def test_broken_images_are_passed_and_listed_at_the_end(
    fail, run_folder, photos, batch
):
    paths = (photos / "b.png", "nowhere.png", photos / "a.PNG")
    text = photos / "notes.txt"
    options = ("--format", "json", "--batch", batch)
    printed, lines = fail("predict", run_folder, *paths, text, *options)
    found = [image["image"] for image in json.loads(printed)]
    assert found == [str(photos / "b.png"), str(photos / "a.PNG")]
    assert lines[0] == "There is no file 'nowhere.png'."
    assert lines[1] == f"{str(text)!r} is not an image."
    assert lines[2].endswith("2 images could not be read, see above.")


BAD_IMAGES = {
    "missing.png": (None, "no file"),
    "text.png": (b"hello", "is not an image"),
    "empty.png": (b"", "is not an image"),
    "cut.png": (b"\x89PNG\r\n\x1a\nbroken", "image"),
}


@pytest.mark.parametrize("name", BAD_IMAGES)
def test_bad_image_is_one_line(fail, run_folder, tmp_path, name):
    content, message = BAD_IMAGES[name]
    if content is not None:
        (tmp_path / name).write_bytes(content)
    printed, (line,) = fail("predict", run_folder, tmp_path / name)
    assert printed == ""
    assert name in line
    assert message in line


@pytest.mark.parametrize("command", ["predict", "summary", "benchmark"])
@pytest.mark.parametrize(
    ("model", "message"),
    [
        (__file__, "test_command.py"),
        ("runs/nowhere", "runs/nowhere"),
        ("missing.keras", "missing.keras"),
        ("ViT_B16/nonsense", "nonsense"),
        ("ViT_B17/imagenet", "ViT_B17"),
        (str(ROOT / "docs"), "docs"),
    ],
)
def test_bad_model_is_one_line(fail, command, model, message):
    images = ["a.png"] if command == "predict" else []
    _, (line,) = fail(command, model, *images)
    assert message in line


def test_text_model_is_one_line(fail, tmp_path):
    safetensors = pytest.importorskip("safetensors.numpy")
    import numpy as np

    names = ("embeddings.word_embeddings.weight", "pooler.dense.weight")
    path = tmp_path / "bert.safetensors"
    safetensors.save_file({x: np.ones((4, 4), "f4") for x in names}, path)
    _, (line,) = fail("predict", path, "a.png")
    assert "bert.safetensors" in line


def test_wrong_sizes_are_one_line(fail, run_folder, photos):
    size = ("--image_size", "9")
    _, (line,) = fail("predict", run_folder, photos, *size)
    assert "9" in line and "4" in line
    _, (line,) = fail("summary", "ViT_Ti16", *size)
    assert "9" in line and "16" in line
    _, (line,) = fail("predict", run_folder, photos, "--top", "0")
    assert "top=0" in line
    _, (line,) = fail("benchmark", run_folder, "--batch", "0")
    assert "--batch" in line


def test_random_weights_predict_nothing(fail):
    _, (line,) = fail("predict", "ViT_Ti16", "a.png")
    assert "ViT_Ti16" in line


def test_progress_is_shown_on_a_terminal_alone(
    run_folder, photos, capsys, monkeypatch
):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("FORCE_COLOR", "1")
    arguments = ["predict", str(run_folder), str(photos), "--format", "json"]
    assert main(arguments) == 0
    printed = capsys.readouterr()
    assert "Images" in printed.err
    assert len(json.loads(printed.out)) == 3


def test_work_is_shown_beside_what_is_printed(monkeypatch, capsys):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("FORCE_COLOR", "1")
    with waiting("Writing a.onnx"):
        pass
    printed = capsys.readouterr()
    assert "Writing a.onnx" in printed.err
    assert not printed.out


def test_prediction_needs_no_tensorflow(run_folder, photos):
    if keras.backend.backend() == "tensorflow":
        pytest.skip("the test takes TensorFlow away")
    script = """
import sys
from importlib.machinery import PathFinder

class Finder(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if name.partition(".")[0] != "tensorflow":
            return super().find_spec(name, path, target)

sys.meta_path[sys.meta_path.index(PathFinder)] = Finder
from keras_vit.cli import main
sys.exit(main(sys.argv[1:]))
"""
    arguments = ["predict", run_folder, photos, "--format", "csv"]
    done = subprocess.run(
        [sys.executable, "-c", script, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("\n") == 10
