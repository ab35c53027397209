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
from tiny_models import tiny_vit

import keras_vit
from keras_vit.checkpoints import load_checkpoint, save_checkpoint
from keras_vit.checkpoints.engine.keras_files import read_class_names
from keras_vit.checkpoints.engine.loading import open_source
from keras_vit.cli import main
from keras_vit.cli.terminal import paths_of
from keras_vit.data import (
    DataConfig,
    Examples,
    PreprocessingConfig,
    open_dataset,
)
from keras_vit.data.image_reader import is_coloured, say_colour_changes
from keras_vit.explanation import file_names
from keras_vit.io.atomic_files import as_cell, of_cell, printable, write_csv
from keras_vit.io.checks import MAX_YAML_BYTES, check_yaml
from keras_vit.io.run_folder import MANIFEST
from keras_vit.prediction.images import images_of, read_pixels
from keras_vit.prediction.networks import load_prepared
from keras_vit.runtime import machine
from keras_vit.training import checkpointing
from keras_vit.training.run import files as run_folder


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
    return DataConfig(csv=str(path), split_by="position")


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
        names_in(archive(tmp_path, names))


def test_class_names_of_any_letters_are_read(tmp_path):
    names = ["caf\u00e9", "\N{PILE OF POO}", "\x1b[31m"]
    assert names_in(archive(tmp_path, json.dumps(names))) == tuple(names)


def names_in(path):
    with zipfile.ZipFile(path) as content:
        return read_class_names(path, content)


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
    assert names == ["a.png"]


def test_pictures_of_different_images_have_different_names():
    titles = ["a.png", "a_2.png", "a.jpg", "a_2.jpg", "a.gif"]
    names = file_names(titles)
    assert len(set(names)) == len(titles)
    assert names[:2] == ["a", "a_2"]


def test_names_of_pictures_are_short_enough_and_can_be_written(tmp_path):
    titles = ["x" * 250, "\u00e9" * 250, "\udcff", "\udcfe", "", "/"]
    for name in file_names(titles):
        (tmp_path / f"{name}_rollout.png").touch()
    assert len(list(tmp_path.iterdir())) == 6


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
    assert checkpointing.checkpoint_steps(tmp_path) == [3]


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
        found = checkpointing.read_newest(tmp_path)
    assert found == ({}, RECORD)


def test_images_are_resized_to_a_limit():
    with pytest.raises(ValueError, match="1 to 16,384 pixels"):
        PreprocessingConfig(resize_size=100_000)


@pytest.mark.parametrize("size", [(11, 11), (8, 11), (16, 16), (4, 16)])
@pytest.mark.parametrize("call", ["predict", "predict_on_batch", "__call__"])
def test_images_of_another_size_are_refused_and_not_cropped(size, call):
    model = tiny_vit()
    images = np.zeros((2, *size, 3), "float32")
    with pytest.raises(Exception, match="8x8|incompatible|shape"):
        getattr(model, call)(images)
    images = np.zeros((2, 8, 8, 3), "float32")
    assert model.predict(images, verbose=0).shape == (2, 3)


@pytest.mark.parametrize("input_shape", [224, "224", (224,), (8, 8, 0), 2.5])
def test_an_input_shape_is_three_sizes(tmp_path, input_shape):
    path = saved(tmp_path)
    for call in (
        lambda: keras_vit.ViT_Ti16(weights=None, input_shape=input_shape),
        lambda: keras_vit.ViT_Ti16(weights=path, input_shape=input_shape),
        lambda: load_checkpoint(path, input_shape=input_shape),
    ):
        with pytest.raises(ValueError, match=r"\(height, width, channels\)"):
            call()


def saved(tmp_path):
    path = tmp_path / "model.keras"
    tiny_vit(num_classes=0).save(path)
    return str(path)


@pytest.mark.parametrize("image_size", [0, -8, (0, 8)])
def test_an_image_size_is_above_zero(tmp_path, image_size):
    with pytest.raises(ValueError, match="image_size must be a positive"):
        load_prepared(saved(tmp_path), image_size)


def test_a_model_without_room_is_not_made(tmp_path, monkeypatch):
    path = saved(tmp_path)
    monkeypatch.setattr(machine, "available_memory", lambda: 10**6)
    assert load_prepared(path, 8).model.input_shape == (None, 8, 8, 3)
    # 62,500 tokens of queries, keys and values of 8 numbers are 8 MB.
    with pytest.raises(ValueError, match="no room.*1000x1000.*0.0 GB are free"):
        load_prepared(path, 1000)
    monkeypatch.setattr(machine, "available_memory", lambda: None)
    assert load_prepared(path, 16).model.input_shape == (None, 16, 16, 3)


def test_a_shortage_is_in_gigabytes(monkeypatch):
    monkeypatch.setattr(machine, "available_memory", lambda: 12_345_000_000)
    both = "1,000,000.0 GB, and 12.3 GB are free"
    assert machine.shortage(10**15) == both
    assert not machine.shortage(12_345_000_000)


@pytest.mark.parametrize("text", ["a", b"a"])
def test_a_yaml_text_has_a_largest_length(text):
    longest = text * MAX_YAML_BYTES
    check_yaml(longest)
    with pytest.raises(ValueError, match="262,144 characters.*: 262,145"):
        check_yaml(longest + text)


def test_a_line_of_the_system_in_kilobytes_is_read_in_bytes(tmp_path):
    path = tmp_path / "meminfo"
    path.write_text("MemTotal: 9000 kB\nMemAvailable:    1234 kB\n")
    assert machine._kilobytes(path, "MemAvailable") == 1234 * 1024
    assert machine._kilobytes(path, "MemFree") is None


def test_memory_is_what_a_limit_leaves():
    resource = pytest.importorskip("resource")
    before = resource.getrlimit(resource.RLIMIT_AS)
    used = machine._kilobytes("/proc/self/status", "VmSize")
    if used is None:
        pytest.skip("This system has no /proc.")
    resource.setrlimit(resource.RLIMIT_AS, (used + 10**9, before[1]))
    try:
        left = machine.available_memory()
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)
    assert left is not None and 0 < left <= 10**9


class OtherTensor:
    """A tensor of a framework that is not Keras's backend: torch's here."""

    def __init__(self, array):
        self.array = array

    def detach(self):
        return self

    def cpu(self):
        return self

    def __array__(self, dtype=None, copy=None):
        return self.array

    def __iter__(self):
        return map(OtherTensor, self.array)


def test_tensors_of_other_frameworks_are_arrays():
    pixels = np.arange(2 * 4 * 4 * 3, dtype="uint8").reshape(2, 4, 4, 3)
    for given in (OtherTensor(pixels), [OtherTensor(x) for x in pixels]):
        found = list(images_of(given))
        np.testing.assert_array_equal(found, pixels)


@pytest.mark.parametrize(
    ("value", "cell"),
    [
        ("=1+1", "'=1+1"),
        ("+1", "'+1"),
        ("-1", "'-1"),
        ("@a", "'@a"),
        ("\t=1", "'\t=1"),
        ("'=1", "''=1"),
        ("a=1", "a=1"),
        ("", ""),
    ],
)
def test_a_cell_is_no_formula_and_can_be_read_back(value, cell):
    assert as_cell(value) == cell
    assert of_cell(cell) == value


def test_numbers_of_a_csv_file_stay_numbers(tmp_path):
    write_csv(tmp_path / "a.csv", [{"class": "-a", "loss": -1.5, "none": None}])
    assert (tmp_path / "a.csv").read_text() == "class,loss,none\n'-a,-1.5,\n"


def colour_of(value, count=2):
    return np.full((count, 4, 4, 3), value, "uint8")


def test_grey_images_of_three_channels_have_no_colours(tmp_path):
    labels = np.zeros(2, "int32")
    grey, red = colour_of([90, 95, 90]), colour_of([200, 0, 0])
    assert not is_coloured(Examples(grey, labels))
    assert is_coloured(Examples(red, labels))
    assert not is_coloured(Examples(red[..., :1], labels))
    paths = []
    for name, pixels in (("a.jpg", grey), ("b.jpg", red), ("c.jpg", None)):
        path = tmp_path / name
        if pixels is None:
            path.write_bytes(b"broken")
        else:
            Image.fromarray(pixels[0]).save(path)
        paths.append(str(path))
    found = [
        is_coloured(Examples(np.array([x], object), labels[:1], kind="path"))
        for x in paths
    ]
    assert found == [False, True, False]


def test_colours_of_training_images_are_said_where_they_change(caplog):
    labels = np.zeros(3, "int32")
    mixed = [colour_of(90), colour_of([200, 0, 0]), colour_of([0, 0, 200])]
    examples = Examples(np.concatenate([x[:1] for x in mixed]), labels)
    say_colour_changes(examples, 3)
    assert not caplog.messages
    say_colour_changes(examples, 1)
    say_colour_changes(Examples(mixed[0][..., :1], labels[:2]), 3)
    say_colour_changes(object(), 3)  # Whose contents are not at hand.
    assert [x.partition(". The")[0] for x in caplog.messages] == [
        "In colour: 2 image(s) of 3 that were looked at",
        "Without colours: 2 image(s) of 2 that were looked at",
    ]


def test_examples_of_a_run_that_goes_on_are_listed_once(tmp_path):
    run_folder.begin(tmp_path, {}, {})
    for _ in range(2):
        run_folder.write_examples(tmp_path, colour_of(0), [0, 0], ["a"])
    content = json.loads((tmp_path / MANIFEST).read_text())
    assert len(content["files"]) == len(set(content["files"]))


def test_weights_are_as_readable_as_other_files(tmp_path):
    model = tiny_vit(num_classes=0)
    before = os.umask(0o027)
    try:
        targets = {"a.keras": "keras", "a.weights.h5": "keras"}
        targets |= {"a.safetensors": "timm", "a.npz": "google"}
        for name, format_ in targets.items():
            save_checkpoint(model, tmp_path / name, format=format_)
            mode = (tmp_path / name).stat().st_mode & 0o777
            assert oct(mode) == oct(0o640), name
    finally:
        os.umask(before)
