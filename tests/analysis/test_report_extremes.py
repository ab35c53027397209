"""The report copes with what is missing, broken, long, large or many."""

import io
import shutil
import subprocess

import numpy as np
import pytest
import report_folder
from html_page import Page, decoded
from PIL import Image

from keras_vit.analysis import report
from keras_vit.analysis.report.run_files import FILES, OVER_TIME, _thin


@pytest.fixture
def folder(tmp_path):
    return report_folder.fill(tmp_path)


NEEDS = {
    "attention.npz": ["attention", "inside"],
    "augmented.npz": ["augmented"],
    "config.yaml": ["config"],
    "environment.json": ["environment"],
    "per_class.csv": ["per_class"],
    "predictions.npz": ["confusion", "mistakes", "unsure"],
    "result.json": ["summary"],
    # The other log, and numbers for names, serve in their place.
    "class_names.json": [],
    "history.csv": [],
    "metrics.jsonl": [],
}


def test_every_file_is_taken_away_below():
    assert NEEDS.keys() == FILES.keys() - {OVER_TIME}


@pytest.mark.parametrize("name", NEEDS)
def test_without_a_file_its_parts_say_so(folder, name):
    (folder / name).unlink()
    page = Page(report.render_report(folder))
    missing = [
        part["id"]
        for part in page.all("section")
        if f"Not shown: {name} is not in this folder." in page.part(part["id"])
    ]
    assert missing == NEEDS[name]
    assert page.part("config").count("Not shown") == (name == "config.yaml")


@pytest.mark.parametrize(
    "name",
    [name for name, parts in NEEDS.items() if parts and "yaml" not in name],
)
def test_with_a_broken_file_its_parts_say_so(folder, name):
    content = b"\xff\x00broken" if name.endswith(".csv") else b'PK\x03\x04{"a'
    (folder / name).write_bytes(content)
    page = Page(report.render_report(folder))
    for part in NEEDS[name]:
        assert f"Not shown: {name} cannot be read" in page.part(part)


def test_a_part_of_some_runs_alone_is_left_out_of_others(folder):
    assert "Features over" not in report.render_report(folder)
    (folder / OVER_TIME).write_bytes(b"PK\x03\x04broken")
    page = Page(report.render_report(folder))
    said = f"Not shown: {OVER_TIME} cannot be read"
    assert said in page.part("over_time")


def test_a_reason_stands_in_the_place_of_what_is_not_there(folder):
    report.write_attention(
        folder / "attention.npz", "a Mixer has no attention."
    )
    page = Page(report.render_report(folder))
    for part in ("attention", "inside"):
        assert "Not shown: a Mixer has no attention." in page.part(part)


def test_json_of_another_kind_is_not_shown(folder):
    (folder / "result.json").write_text("[1, 2]")
    assert "holds no dict" in Page(report.render_report(folder)).part("summary")


def test_arrays_are_read_without_pickle(folder):
    harmful = np.array([{"a": 1}], dtype=object)
    np.savez(folder / "augmented.npz", images=harmful, labels=harmful)
    page = Page(report.render_report(folder))
    assert "augmented.npz cannot be read" in page.part("augmented")


def test_empty_folder_has_a_report(tmp_path):
    page = Page(report.render_report(tmp_path))
    assert len(page.all("section")) == 11
    assert len(page.all("p", **{"class": "missing"})) == 11


def test_missing_folder_is_named(tmp_path):
    with pytest.raises(ValueError, match="no folder '.*nowhere'"):
        report.write_report(tmp_path / "nowhere")


def test_values_that_are_not_finite_are_left_out(folder):
    (folder / "metrics.jsonl").write_text(
        '{"step": 1, "loss": NaN}\n{"step": 2, "loss": 7.5}\n'
    )
    page = Page(report.render_report(folder))
    assert (
        "Training: from 7.5 at step 2 to 7.5"
        in page.all("svg")[0]["aria-label"]
    )


def test_logs_by_epoch(folder):
    (folder / "metrics.jsonl").write_text('{"epoch": 0, "loss": 7.5}\n')
    (folder / "history.csv").write_text("epoch,loss,val_loss\n0,7.5,8.5\n")
    page = Page(report.render_report(folder))
    assert page.all("svg")[0]["aria-label"].startswith("Loss over the epochs.")


def test_long_curves_are_thinned_by_means(folder):
    values = np.random.default_rng(0).random(10_000)
    (folder / "metrics.jsonl").write_text(
        "".join(
            f'{{"step": {step}, "learning_rate": {value}}}\n'
            for step, value in enumerate(values)
        )
    )
    text = report.render_report(folder)
    drawing = text[text.index('<svg role="img" aria-label="Learning rate') :]
    assert drawing.index("</svg>") < 40_000
    x, y = _thin(range(10_000), values)
    assert len(x) == 400
    np.testing.assert_allclose(y, values.reshape(400, 25).mean(axis=1))
    np.testing.assert_allclose(x[:2], [12, 37])


def test_many_classes_are_a_picture(folder):
    generator = np.random.default_rng(0)
    labels = np.arange(100).repeat(2)
    classes = labels[:, np.newaxis].copy()
    classes[6] = 70  # Half of class 3 is taken for class 70.
    report_folder.write_predictions(
        folder, labels, classes, generator.random(classes.shape), 100
    )
    page = Page(report.render_report(folder))
    (picture,) = page.all("img", **{"class": "heat"})
    image = Image.open(io.BytesIO(decoded(picture)[1]))
    depth = np.asarray(image)[3::6, 3::6, 3].astype(int)
    assert depth.shape == (100, 100)
    assert depth[3, 3] == depth[3, 70] > 0
    assert depth[4, 4] > depth[3, 3]
    assert np.count_nonzero(depth) == 101
    assert "3 70 1" in page.part("confusion")


def test_colour_photographs_are_scaled_down(folder):
    pixels = np.random.default_rng(0).integers(0, 256, (2, 400, 300, 3))
    report.write_augmented(folder / "augmented.npz", pixels, np.eye(3)[:2])
    page = Page(report.render_report(folder))
    kind, content = decoded(page.all("img")[-1])
    assert kind == "data:image/jpeg"
    assert Image.open(io.BytesIO(content)).size == (120, 160)


def test_augmented_inputs_are_kept_as_pixels(folder):
    images = np.array([-1, 99.6, 300], "float32").reshape(3, 1, 1, 1)
    report.write_augmented(folder / "augmented.npz", images, np.eye(3))
    with np.load(folder / "augmented.npz") as arrays:
        assert arrays["images"].ravel().tolist() == [0, 100, 255]
        assert arrays["images"].dtype == np.uint8
    with pytest.raises(ValueError, match="Received: shapes"):
        report.write_augmented(folder / "a.npz", images, np.eye(2))


@pytest.mark.skipif(not shutil.which("chromium"), reason="no Chromium")
@pytest.mark.slow
def test_browser_has_nothing_to_complain_about(folder, tmp_path):
    path = report.write_report(folder)
    ended = subprocess.run(
        [
            *("chromium", "--headless=new", "--no-sandbox", "--disable-gpu"),
            *("--enable-logging=stderr", f"--user-data-dir={tmp_path}/profile"),
            *("--virtual-time-budget=2000", "--dump-dom", path.as_uri()),
        ],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert "CONSOLE" not in ended.stderr
    assert len(Page(ended.stdout).all("section")) == 11
