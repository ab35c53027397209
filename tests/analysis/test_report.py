"""The report is one file, complete, readable by all, and never trusts names."""

import base64
import hashlib
import io
import json
import re
import xml.etree.ElementTree

import numpy as np
import pytest
import report_folder
from html_page import Page, decoded
from PIL import Image
from report_folder import NAMES, PICTURES

from keras_vit.analysis import report


@pytest.fixture
def folder(tmp_path):
    return report_folder.fill(tmp_path)


@pytest.fixture
def page(folder):
    return Page(report.render_report(folder))


def test_written_file_is_the_page(folder):
    path = report.write_report(folder)
    assert path == folder / "report.html"
    assert path.read_text(encoding="utf-8") == report.render_report(folder)
    assert not list(folder.glob(".partial*"))


def test_nothing_is_loaded_and_nothing_is_run(page, folder):
    for element in page.elements:
        for attribute in ("src", "href"):
            assert re.match("data:|#", element.get(attribute, "#"))
        assert not any(name.startswith("on") for name in element)
    (script,) = page.all("script")
    assert "src" not in script
    text = report.render_report(folder)
    # In figures they lead to other parts of the figure.
    assert set(re.findall(r"url\(.", text)) <= {"url(#"}
    assert "@import" not in text
    (policy,) = page.all("meta", **{"http-equiv": "Content-Security-Policy"})
    digest = hashlib.sha256(script["text"].strip(" ").encode()).digest()
    assert policy["content"] == (
        "default-src 'none'; img-src data:; style-src 'unsafe-inline'; "
        f"script-src 'sha256-{base64.b64encode(digest).decode()}'"
    )


def test_names_and_config_are_text(page):
    assert not page.all("b")
    assert not page.all("i")
    assert "<b>pets</b>" in page.part("config")
    for name in NAMES:
        for part in ("confusion", "per_class", "mistakes", "attention"):
            assert name in page.part(part)


def test_readable_without_pictures(page):
    images = page.all("img")
    assert len(images) == 4 + 3 + 2 * 3 + 2
    assert all(image["alt"].strip(" .") for image in images)
    drawings = page.all("svg", role="img")
    assert len(drawings) == 4 + 2
    assert all(drawing["aria-label"] for drawing in drawings)
    (root,) = page.all("html")
    assert root["lang"] == "en"
    for cell in page.all("th"):
        assert cell["scope"] in ("row", "col")


def test_links_lead_to_the_parts(page):
    ids = [element["id"] for element in page.elements if "id" in element]
    assert len(ids) == len(set(ids))
    links = [link["href"][1:] for link in page.all("a")]
    assert set(links) <= set(ids)
    outside = [link["href"][1:] for link in page.all("a", part=None)]
    assert outside == [section["id"] for section in page.all("section")]
    for element in page.elements:
        for name in ("aria-labelledby", "aria-describedby"):
            assert element.get(name, ids[0]) in ids


def test_phone_is_told_its_width(page):
    (viewport,) = page.all("meta", name="viewport")
    assert viewport["content"].startswith("width=device-width")


def test_result_is_on_top(page):
    assert [tile["text"] for tile in page.all("dt")] == [
        "Top-1 accuracy",
        "Images",
    ]
    assert [tile["text"] for tile in page.all("dd")] == [
        "66.67\u202f%",
        "12\u202f345",
    ]
    assert "split test" in page.part("summary")


def test_confusion_matrix_is_counted(page):
    cells = [
        (cell["text"].strip(), cell.get("class"))
        for cell in page.all("td", part="confusion")
    ][:9]
    empty = ("", None)
    assert cells == [
        *(("2", None), empty, empty),
        *(("1", "wrong"), ("1", None), empty),
        *(empty, ("1", "wrong"), ("1", None)),
    ]
    assert "4 of 6 images right" in page.part("confusion")
    assert f"{NAMES[1]} {NAMES[0]} 1" in page.part("confusion")


def test_hardest_class_comes_first_and_unmet_ones_are_left_out(page):
    text = page.part("per_class")
    places = [text.index(NAMES[k]) for k in (1, 2, 0)]
    assert places == sorted(places)
    assert "never met" not in text
    assert f"{NAMES[2]} 2 1 100.0 % 50.0 % 66.7 %" in text


def test_gallery_shows_the_pictures_with_their_answers(page):
    answers = {
        part: [
            " ".join(figure["text"].split())
            for figure in page.all("li", part=part)
        ]
        for part in ("mistakes", "unsure")
    }
    assert answers == {
        "mistakes": [
            f"cat 90 % wrong, is {NAMES[1]}",
            f"{NAMES[1]} 60 % wrong, is {NAMES[2]}",
        ],
        "unsure": [f"{NAMES[2]} 60 % right"],
    }
    pictures = [
        decoded(image)
        for part in answers
        for image in page.all("img", part=part)
    ]
    for (kind, content), expected in zip(pictures, PICTURES, strict=True):
        assert kind == "data:image/png"
        pixels = np.asarray(Image.open(io.BytesIO(content)))
        np.testing.assert_array_equal(pixels, expected[..., 0])
    assert "2 of 6 images are misclassified" in page.part("mistakes")


def test_mixed_inputs_name_their_shares(page):
    captions = [image["alt"] for image in page.all("img", part="augmented")]
    assert captions == [
        "Training input: cat.",
        f"Training input: {NAMES[1]} 70\u202f%, {NAMES[2]} 28\u202f%.",
    ]


def test_curves_are_drawn_and_told(page):
    curves = page.all("svg", part="curves")
    titles = [title["text"] for title in page.all("h3", part="curves")]
    assert titles == ["Loss", "Accuracy", "Learning rate", "Peak memory"]
    assert curves[0]["aria-label"] == (
        "Loss over the steps. Training: from 2.5 at step 50 to 1.5 at step "
        "150; lowest 1.5 at step 150, highest 2.5 at step 50. Validation: "
        "from 1.25 at step 150 to 1.25 at step 150; lowest 1.25 at step 150, "
        "highest 1.25 at step 150."
    )
    assert "lowest 25.00%" in curves[1]["aria-label"]
    assert "in GiB. Peak memory: from 1 at step 50" in curves[3]["aria-label"]
    for curve in curves:
        assert "step" in curve["text"].split()


def test_figures_have_the_colours_of_the_page(folder):
    text = report.render_report(folder)
    drawings = re.findall("<svg .*?</svg>", text, re.DOTALL)
    assert len(drawings) == 6
    found = set()
    for drawing in drawings:
        xml.etree.ElementTree.fromstring(drawing)
        found |= set(re.findall("#[0-9a-f]{6}", drawing))
    # What is drawn as black, white or a first colour is not so in the dark.
    assert not found & {"#000000", "#ffffff", "#0072b2", "#d55e00"}
    names = set(re.findall(r"var\((--\w+)\)", text))
    light, dark = re.findall(r":root \{(.*?)\}", text)
    for name in names - {"--share", "--depth", "--ratio"}:
        if name not in ("--layers", "--heads"):
            assert f"{name}: " in light
            assert f"{name}: " in dark


def test_title_says_model_data_and_date(folder):
    (folder / "config.yaml").write_text(
        "model: {name: ViT_B16, weights: imagenet}\n"
        "data: {name: null, folder: my/flowers}\n"
    )
    (folder / "environment.json").write_text(
        '{"time": "2026-11-03T23:10:00+00:00"}'
    )
    page = Page(report.render_report(folder))
    (facts,) = page.all("p", **{"class": "facts"})
    assert facts["text"] == (
        "ViT_B16 imagenet \N{MIDDLE DOT} my/flowers \N{MIDDLE DOT} "
        "3 November 2026"
    )
    (title,) = page.all("title")
    assert "ViT_B16 imagenet, my/flowers, 3 November 2026" in title["text"]


def test_of_five_classes_no_answer_is_outside_of_the_top_five(folder):
    shown = {}
    for names in (["a"] * 5, ["a"] * 6):
        (folder / "class_names.json").write_text(json.dumps(names))
        (folder / "result.json").write_text('{"top1": 0.5, "top5": 1.0}')
        page = Page(report.render_report(folder))
        shown[len(names)] = [tile["text"] for tile in page.all("dt")]
    assert shown == {
        5: ["Top-1 accuracy"],
        6: ["Top-1 accuracy", "Top-5 accuracy"],
    }


def test_long_galleries_are_folded(folder):
    rows, count = np.arange(20) % 2 + 3, 20
    report_folder.write_predictions(
        folder,
        report_folder.LABELS,
        report_folder.CLASSES[:, :1] * 0,
        report_folder.PROBABILITIES[:, :1],
        len(NAMES),
        pictures=np.zeros((count, 8, 8, 1), np.uint8),
        picture_rows=rows,
    )
    page = Page(report.render_report(folder))
    assert len(page.all("li", part="mistakes")) == count
    (summary,) = page.all("summary", part="mistakes")
    assert summary["text"] == "8 more"


def test_environment_is_flat(page):
    assert page.part("environment").endswith("backend jax versions.keras 3.15")


def test_cells_lead_to_their_images(page):
    cells = page.all("a", part="confusion")
    behind = {
        group["id"]: " ".join(group["text"].split())
        for group in page.all("div", **{"class": "behind"})
    }
    shown = {
        link["aria-label"]: behind[link["href"][1:]]
        for link in cells
        if "aria-label" in link
    }
    dog, cow = NAMES[1:]
    close = "Close"
    assert shown == {
        "2: cat taken for cat": f"cat , classified correctly: 1 of 2. {close} "
        "cat 80 % right",
        f"1: {dog} taken for cat": f"{dog} taken for cat : 1 of 1. {close} "
        f"cat 90 % wrong, is {dog}",
        f"1: {cow} taken for {dog}": f"{cow} taken for {dog} : 1 of 1. {close} "
        f"{dog} 60 % wrong, is {cow}",
        f"1: {cow} taken for {cow}": f"{cow} , classified correctly: 1 of 1. "
        f"{close} {cow} 60 % right",
    }
    ((kind, content),) = [
        decoded(image)
        for image in page.all("img", part="confusion")
        if "Image 0" in image["alt"]
    ]
    assert (np.asarray(Image.open(io.BytesIO(content))) == 200).all()


def test_older_runs_have_fewer_images_behind_the_cells(folder):
    report_folder.write_predictions(
        folder,
        report_folder.LABELS,
        report_folder.CLASSES,
        report_folder.PROBABILITIES,
        len(NAMES),
    )
    page = Page(report.render_report(folder))
    assert len(page.all("div", **{"class": "behind"})) == 3
