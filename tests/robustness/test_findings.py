"""What was found, where a function shows it: no process of its own needed."""

import io
import json
import os
import pathlib
import zipfile
from typing import Any

import numpy as np
import pytest
from PIL import Image

from keras_vit.checkpoints.keras_files import class_names_of
from keras_vit.checkpoints.loading import open_source
from keras_vit.cli import main
from keras_vit.cli.terminal import paths_of
from keras_vit.data import DataConfig, PreprocessingConfig, open_dataset
from keras_vit.explanation.attention_page import _file_names
from keras_vit.files import printable
from keras_vit.models import VisionTransformer, ViTConfig
from keras_vit.prediction.images import images_of, read_pixels
from keras_vit.prediction.networks import _run_config
from keras_vit.training import resume


def test_an_unset_variable_is_no_choice_of_the_digits():
    for name in ("name", "folder", "csv"):
        empty: dict[str, Any] = {name: ""}
        with pytest.raises(ValueError, match=f"unset variable.*{name}=''"):
            DataConfig(**empty)


def table(tmp_path, *labels):
    Image.new("L", (4, 4)).save(tmp_path / "a.png")
    lines = ["image,label", *(f"a.png,{label}" for label in labels)]
    path = tmp_path / "data.csv"
    path.write_text("\n".join(lines) + "\n")
    return DataConfig(csv=str(path))


@pytest.mark.parametrize(
    "label", ["1000000", "1000000000000", "9" * 400, "9" * 5000]
)
def test_a_label_that_is_no_class_takes_no_memory(tmp_path, label):
    config = table(tmp_path, *["0", "1"] * 10, label)
    with pytest.raises(ValueError, match="in line 22.*1,000,000 at most"):
        open_dataset(config)


def test_a_label_with_zeros_in_front_is_a_number(tmp_path):
    dataset = open_dataset(table(tmp_path, *["0", "0000002"] * 10))
    assert len(dataset.class_names) == 3


def archive(tmp_path, names):
    path = tmp_path / "odd.keras"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("class_names.json", names)
    return str(path)


@pytest.mark.parametrize(
    ("names", "reason"),
    [
        (" " * 2**25 + '["a"]', "33,554,437 bytes"),
        ('"abc"', "not a list of texts"),
        ('{"a": 1}', "not a list of texts"),
        ("[1, 2]", "not a list of texts"),
        (r'["\ud800"]', "not a list of texts"),
        ("[" * 200_000, "class names"),
        ("[", "class names"),
        (b"\xff", "class names"),
    ],
)
def test_class_names_that_are_none(tmp_path, names, reason):
    with pytest.raises(ValueError, match=reason):
        class_names_of(archive(tmp_path, names))


def test_class_names_of_any_letters_are_read(tmp_path):
    names = ["caf\u00e9", "\N{PILE OF POO}", "\x1b[31m"]
    assert class_names_of(archive(tmp_path, json.dumps(names))) == tuple(names)


@pytest.mark.parametrize("open_it", [open_source, lambda x: read_pixels(x, 3)])
def test_a_fifo_is_refused_and_not_waited_for(tmp_path, open_it):
    path = tmp_path / "weights.npz"
    os.mkfifo(path)
    with pytest.raises(ValueError, match="no regular file"):
        open_it(str(path))


def test_files_of_macos_are_no_photos(tmp_path):
    for name in ("a.png", "._a.png", ".b.png"):
        (tmp_path / name).touch()
    names = [pathlib.Path(x).name for x in images_of(str(tmp_path))]
    assert names == [".b.png", "a.png"]


def test_pictures_of_different_images_have_different_names():
    titles = ["a.png", "a_2.png", "a.jpg", "a_2.jpg", "a.gif"]
    names = _file_names(titles)
    assert len(set(names)) == len(titles)
    assert names[:2] == ["a", "a_2"]


def test_names_of_pictures_are_short_enough_and_can_be_written(tmp_path):
    for name in _file_names(["x" * 250, "\u00e9" * 250, "\udcff", "\udcfe"]):
        (tmp_path / f"{name}_rollout.png").touch()
    assert len(list(tmp_path.iterdir())) == 4


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31mred", r"\x1b[31mred"),
        ("a\nb", r"a\nb"),
        ("\udcff", r"\udcff"),
        ("\u202egnp", r"\u202egnp"),
        ("caf\u00e9 [b] \N{PILE OF POO}", "caf\u00e9 [b] \N{PILE OF POO}"),
    ],
)
def test_what_moves_a_cursor_is_shown_and_not_done(text, shown):
    assert printable(text) == shown


def test_an_error_of_the_command_moves_no_cursor(capsys):
    assert main(["predict", "\x1b[31mgone.npz", "a.png"]) == 2
    error = capsys.readouterr().err
    assert "\x1b" not in error and r"\x1b[31mgone.npz" in error


def test_a_terminal_of_ascii_gets_every_character(monkeypatch):
    out = io.TextIOWrapper(io.BytesIO(), "ascii")
    monkeypatch.setattr("sys.stdout", out)
    with pytest.raises(SystemExit):
        main(["--help"])
    main(["weights", "list", "--model", "gone"])
    print("caf\u00e9")
    out.flush()
    assert out.buffer.getvalue().endswith(b"caf\\xe9\n")


def test_closed_input_is_said(monkeypatch):
    monkeypatch.setattr("sys.stdin", None)
    with pytest.raises(ValueError, match="standard input is closed"):
        list(paths_of(["-"]))


@pytest.mark.parametrize(
    "name",
    [
        "step-000000005 (copy).npz",
        "step-000000005.npz.npz",
        "step-x.npz",
        "step--00000005.npz",
        "step-000000005 .npz",
    ],
)
def test_a_stray_file_is_no_checkpoint(tmp_path, name):
    (tmp_path / name).touch()
    (tmp_path / "step-000000003.npz").touch()
    assert resume.checkpoint_steps(tmp_path) == [3]


RECORD = {
    "step": 3,
    "interval": 1,
    "ended": False,
    "seconds": 0.5,
    "callbacks": [],
}


@pytest.mark.parametrize(
    "record",
    [
        *({**RECORD, name: None} for name in RECORD),
        *({x: y for x, y in RECORD.items() if x != name} for name in RECORD),
        {**RECORD, "step": "3"},
        {**RECORD, "step": -3},
        {**RECORD, "interval": 1.5},
        [],
        3,
        "step",
    ],
)
def test_a_checkpoint_with_an_odd_record_is_broken(tmp_path, record):
    def write(step, content):
        text = np.frombuffer(json.dumps(content).encode(), np.uint8)
        np.savez(tmp_path / f"step-{step:09d}.npz", record=text)

    write(2, RECORD)
    write(3, record)
    with pytest.warns(UserWarning, match="step-000000003.npz' is broken"):
        found = resume.read_newest(tmp_path)
    assert found == ({}, RECORD)


@pytest.mark.parametrize("content", [b"a: [", b"\xff\0", b"- 1", b"", b"3"])
def test_a_damaged_config_beside_a_model_is_said(tmp_path, content):
    (tmp_path / "config.yaml").write_bytes(content)
    with pytest.raises(ValueError, match="config.yaml' is damaged"):
        _run_config(tmp_path / "model.keras")


def test_images_are_resized_to_a_limit():
    with pytest.raises(ValueError, match="resize_size is at most 16,384"):
        PreprocessingConfig(resize_size=100_000)


@pytest.mark.parametrize("size", [(11, 11), (8, 11), (16, 16), (4, 16)])
@pytest.mark.parametrize("call", ["predict", "predict_on_batch", "__call__"])
def test_images_of_another_size_are_refused_and_not_cropped(size, call):
    config = ViTConfig(
        image_size=(8, 8),
        patch_size=(4, 4),
        hidden_dim=8,
        num_layers=1,
        mlp_dim=8,
        num_heads=2,
        num_classes=3,
    )
    model = VisionTransformer(config)
    images = np.zeros((2, *size, 3), "float32")
    with pytest.raises(Exception, match="8x8|incompatible|shape"):
        getattr(model, call)(images)
    images = np.zeros((2, 8, 8, 3), "float32")
    assert model.predict(images, verbose=0).shape == (2, 3)
