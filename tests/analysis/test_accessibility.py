"""The pages by the rules of axe-core, in the light and in the dark."""

import json
import pathlib

import numpy as np
import pytest
import report_folder
from browser import find_chromium

from keras_vit.analysis import report

ROOT = pathlib.Path(__file__).parents[2]
# Of `npm install --no-save axe-core@4` in the root of the repository.
AXE = ROOT / "node_modules" / "axe-core" / "axe.min.js"
CHECK = """axe.run(document, {resultTypes: ["violations"]}).then((found) =>
    found.violations.map(({id, nodes}) =>
        [id, nodes.map(({target, failureSummary}) =>
            [target.join(" "), failureSummary])]))"""
MANY = 16  # heads and layers: not all labels of the maps have room

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_chromium() is None, reason="no Chromium"),
    pytest.mark.skipif(not AXE.is_file(), reason="npm install axe-core"),
]


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    folder = report_folder.fill(tmp_path_factory.mktemp("run"))
    with np.load(folder / "attention.npz") as arrays:
        arrays = dict(arrays)
    random = np.random.default_rng(0)
    shape = (MANY, 2, 1 + MANY, 14, 14)
    arrays["maps"] = random.integers(0, 256, shape, "uint8")
    arrays["rollout"] = random.integers(0, 256, (2, 14, 14), "uint8")
    arrays["distances"] = random.random((MANY, MANY))
    contents = {
        "attention.npz": arrays,
        "class_names.json": report_folder.NAMES,
        "model.json": {"weights": "ViT_B16", "parameters": 86_567_656},
    }
    explained = folder / "explained.html"
    explained.write_text(
        report.render_page(
            "What ViT_B16 sees",
            report.EXPLANATION,
            report.FilesInMemory(contents),
            kind="explained",
            facts=["2 images", "24 November 2026"],
        )
    )
    return {"report": report.write_report(folder), "explained": explained}


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("page", ["report", "explained"])
def test_axe_finds_nothing(browser, pages, page, width, theme):
    feature = {"name": "prefers-color-scheme", "value": theme}
    browser.send("Emulation.setEmulatedMedia", features=[feature])
    browser.problems.clear()
    try:
        browser.open(pages[page].as_uri(), width, 900, phone=width < 500)
        browser.wait("document.querySelector('.live') !== null")
        browser.run(
            "document.querySelectorAll('details').forEach((x) => x.open = 1)"
        )
        # Of the cells of the matrix one is opened.
        browser.run("document.querySelector('.matrix a')?.click()")
        browser.run(f"{AXE.read_text()}; 0")
        found = browser.run(CHECK)
    finally:
        browser.send("Emulation.setEmulatedMedia", features=[])
    assert found == [], json.dumps(found, indent=2)
    assert browser.problems == []
