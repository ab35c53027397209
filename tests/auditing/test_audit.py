"""`keras-vit audit`: what it writes, and what it refuses in a line."""

import csv
import signal
import subprocess
import sys

import html_page
import numpy as np
import planted
import pytest
from PIL import Image

import keras_vit
from keras_vit.auditing import Finding
from keras_vit.cli import main

NAME = "<b>&amp;.png"  # what a page must not take for its own


@pytest.fixture(scope="module")
def flipped(tmp_path_factory):
    """An audit of the digits with wrong labels, and which they are."""
    folder = tmp_path_factory.mktemp("digits")
    wrong = planted.write_flipped_digits(folder / "data", seed=0, count=600)
    return keras_vit.audit(folder / "data", out=folder / "out"), wrong


@pytest.fixture
def small(tmp_path):
    """Two classes of random images in two parts."""
    draw = np.random.default_rng(0)
    for part, count in (("train", 6), ("val", 3)):
        for name, level in (("dark", 20), ("light", 160)):
            place = tmp_path / "data" / part / name
            place.mkdir(parents=True)
            for i in range(count):
                noise = draw.integers(0, 60, (12, 12, 3), "uint8") + level
                image = Image.fromarray(noise.astype("uint8"))
                image.resize((48, 48)).save(place / f"{i}.png")
    return tmp_path / "data"


def images_of(found, kind):
    return [x.image for x in found.findings if x.finding == kind]


def test_wrong_labels_are_found(flipped):
    found, wrong = flipped
    hits = set(images_of(found, "label")) & wrong.keys()
    assert len(hits) >= 0.9 * len(wrong)
    assert len(hits) >= 0.8 * len(images_of(found, "label"))
    (note,) = [x for x in found.notes if "similar images agree" in x]
    share = float(note.partition("agree with ")[2].partition("%")[0]) / 100
    assert share == pytest.approx(1 - len(wrong) / 600, abs=0.03)


def test_true_classes_are_suggested(flipped):
    found, wrong = flipped
    suggested = {x.image: x.suggested for x in found.findings}
    right = [suggested[x] == wrong[x] for x in wrong.keys() & suggested.keys()]
    assert np.mean(right) > 0.95


def test_table_has_what_is_returned(flipped):
    found, _ = flipped
    with found.table.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [*rows[0]] == [*Finding._fields]
    assert [x["image"] for x in rows] == [x.image for x in found.findings]


def test_copies_in_another_part_come_first(small):
    path = small / "train" / "light" / "0.png"
    Image.open(path).save(small / "val" / "light" / "copy.jpg", quality=85)
    one = small / "train" / "dark" / "1.png"
    (small / "train" / "dark" / "equal.png").write_bytes(one.read_bytes())
    found = keras_vit.audit(small, out=small.parent / "out")
    duplicates = [x for x in found.findings if x.finding == "duplicate"]
    assert [(x.image, x.part, x.group) for x in duplicates] == [
        ("train/light/0.png", "train", 1),
        ("val/light/copy.jpg", "validation", 1),
        ("train/dark/1.png", "train", 2),
        ("train/dark/equal.png", "train", 2),
    ]
    assert "in several parts" in duplicates[0].detail
    assert duplicates[2].detail == "equal file"
    assert duplicates[2].score == 0


def test_copies_of_another_class_come_before_equal_ones(small):
    dark, light = (small / "train" / name for name in ("dark", "light"))
    (dark / "equal.png").write_bytes((dark / "1.png").read_bytes())
    (light / "copy.png").write_bytes((dark / "3.png").read_bytes())
    found = keras_vit.audit(small, out=small.parent / "out")
    assert images_of(found, "duplicate") == [
        *("train/dark/3.png", "train/light/copy.png"),
        *("train/dark/1.png", "train/dark/equal.png"),
    ]


def test_page_has_findings_and_escapes_names(small):
    odd = small / "train" / "dark" / NAME
    odd.write_bytes((small / "train" / "light" / "0.png").read_bytes())
    (small / "train" / "dark" / "empty.png").write_bytes(b"")
    found = keras_vit.audit(small, out=small.parent / "out")
    page = html_page.Page(found.page.read_text(encoding="utf-8"))
    assert NAME in page.part("duplicates")
    assert "of several classes" in page.part("duplicates")
    assert "it is empty" in page.part("odd")
    assert not page.all("b")
    assert {x["src"].partition(":")[0] for x in page.all("img")} == {"data"}


def test_model_is_what_labels_are_judged_by(small, tmp_path):
    model = keras_vit.ViT_Ti16(weights=None, input_shape=(16, 16, 3), classes=2)
    swapped = small / "train" / "light" / "0.png"
    swapped.rename(small / "train" / "dark" / "wrong.png")
    found = keras_vit.audit(small, model, tmp_path / "out", batch_size=4)
    assert images_of(found, "label") == ["train/dark/wrong.png"]
    page = html_page.Page(found.page.read_text(encoding="utf-8"))
    shown = page.part("labels")
    assert "is labelled dark" in shown and "looks like light" in shown
    model.save(tmp_path / "judge.keras")
    by_file = keras_vit.audit(
        small, tmp_path / "judge.keras", tmp_path / "by_file", batch_size=4
    )
    text = by_file.page.read_text(encoding="utf-8")
    assert "labels by judge.keras" in text


def test_folder_without_classes_is_said_to_have_no_labels(tmp_path):
    folder = tmp_path / "data"
    folder.mkdir()
    for i, image in enumerate(planted.digits()[0][:12]):
        image.save(folder / f"{i}.png")
    found = keras_vit.audit(folder, out=tmp_path / "out")
    assert found.notes == (
        "Labels are not checked: the images are in no folders of classes.",
    )


def test_folder_without_a_readable_image_is_reported(tmp_path):
    (tmp_path / "data").mkdir()
    for name in ("a.png", "b.png"):
        (tmp_path / "data" / name).write_bytes(b"no image")
    found = keras_vit.audit(tmp_path / "data", out=tmp_path / "out")
    assert [(x.finding, x.image) for x in found.findings] == [
        ("unreadable", "a.png"),
        ("unreadable", "b.png"),
    ]


@pytest.mark.skipif(sys.platform != "linux", reason="names are of any bytes")
def test_names_may_be_of_any_bytes(tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "\udcff.png").write_bytes(b"")
    found = keras_vit.audit(tmp_path / "data", out=tmp_path / "out")
    assert images_of(found, "unreadable") == ["\\udcff.png"]
    assert "udcff" in found.page.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("classes", "note"),
    [
        ({"a": 6}, "that needs two classes with two different images each"),
        ({"a": 6, "b": 6, "c": 1}, "less than two different images: 'c'"),
        ({"a": 1}, "less than two different images: 'a'"),
    ],
)
def test_classes_that_are_too_small_are_said(tmp_path, classes, note):
    images = iter(planted.digits()[0])
    for name, count in classes.items():
        (tmp_path / "data" / name).mkdir(parents=True)
        for i in range(count):
            next(images).save(tmp_path / "data" / name / f"{i}.png")
    found = keras_vit.audit(tmp_path / "data", out=tmp_path / "out")
    assert note in " ".join(found.notes)


def test_several_labels_are_left_out(small):
    names = [f"train/{x}/{i}.png" for x in ("dark", "light") for i in range(6)]
    lines = [f"{x},{i % 2},{i % 3 // 2}" for i, x in enumerate(names)]
    path = small / "labels.csv"
    path.write_text("\n".join(["image,scab,rust", *lines]))
    found = keras_vit.audit(path, out=small.parent / "out")
    assert "Labels are not checked: an image may have several." in found.notes


def test_lines_without_an_image_are_left_out(small):
    names = [f"train/{x}/{i}.png" for x in ("dark", "light") for i in range(6)]
    lines = [f"{x},{x.split('/')[1]}" for x in (*names, "train/dark/gone.png")]
    path = small / "labels.csv"
    path.write_text("\n".join(["image,label", *lines]))
    found = keras_vit.audit(path, out=small.parent / "out")
    assert any("no such files" in x and "gone.png" in x for x in found.notes), (
        found.notes
    )


def test_numbers_are_left_out(small):
    names = [f"train/{x}/{i}.png" for x in ("dark", "light") for i in range(6)]
    lines = [f"{x},{i / 3}" for i, x in enumerate(names)]
    path = small / "numbers.csv"
    path.write_text("\n".join(["image,label", *lines]))
    found = keras_vit.audit(path, out=small.parent / "out")
    assert "Labels are not checked: they are numbers." in found.notes


def test_labels_that_pixels_do_not_tell_are_left_out(small):
    draw = np.random.default_rng(1)
    for i, path in enumerate(sorted(small.rglob("*.png"))):
        image = draw.integers(0, 256, (48, 48, 3)).astype("uint8")
        Image.fromarray(image).save(path)
        if i > 30:
            break
    found = keras_vit.audit(small, out=small.parent / "out")
    assert images_of(found, "label") == []
    assert any("most that differ are right" in x for x in found.notes)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere"], "There is no folder or CSV file 'nowhere'"),
        (["empty"], "There are no images in the folder 'empty'"),
        (["file.txt"], "of a folder of images or of a CSV file"),
        (["data", "no_such_model"], "no_such_model"),
        (["data", "-o", "data/page"], "would be in the data"),
        (["data", "-o", "file.txt"], "must be a folder"),
        (["data", "--batch", "0"], "batch_size must be an int above 0"),
    ],
)
def test_wrong_input_is_refused_in_a_line(
    small, monkeypatch, capsys, arguments, message
):
    monkeypatch.chdir(small.parent)
    (small.parent / "empty").mkdir()
    (small.parent / "file.txt").write_text("")
    before = sorted(small.parent.rglob("*"))
    assert main(["audit", *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert len(error.strip().splitlines()) == 1
    assert sorted(small.parent.rglob("*")) == before


def test_command_writes_beside_the_folder_by_default(
    small, monkeypatch, capsys
):
    monkeypatch.chdir(small.parent)
    assert main(["audit", "data"]) == 0
    assert "data_audit" in capsys.readouterr().out
    written = sorted(x.name for x in (small.parent / "data_audit").iterdir())
    assert written == ["findings.csv", "index.html"]


@pytest.mark.skipif(sys.platform == "win32", reason="sends a signal")
def test_interrupt_leaves_no_half_files(tmp_path):
    planted.write_flipped_digits(tmp_path / "data", seed=0)
    program = (
        "import sys, keras_vit.auditing as near\n"
        "from keras_vit.cli import main\n"
        "before = near._left\n"
        "def left(*pictures):\n"
        "    print('comparing', flush=True)\n"
        "    return before(*pictures)\n"
        "near._left = left\n"
        "sys.exit(main(['audit', 'data', '-o', 'out']))\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline().strip() == "comparing"
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in error
    assert [x.name for x in tmp_path.iterdir()] == ["data"]
