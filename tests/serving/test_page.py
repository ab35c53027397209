"""The page of the server in a headless Chromium."""

import json

import pytest
import served
from browser import find_chromium

import keras_vit
from keras_vit.prediction import load_classifier

pytestmark = pytest.mark.skipif(
    find_chromium() is None, reason="no Chromium on this machine"
)
PICTURES = [served.picture(seed, (60, 80, 3)) for seed in range(2)]
CLASSIFIED = (
    "document.querySelector('[data-status]').textContent.includes('classified')"
)
# A model without a Keras model behind it, as an exported one.
EXPORTED = """
import sys
from keras_vit.prediction import load_classifier
from keras_vit.serving import serve

class Exported:
    def __init__(self, classifier):
        self.name = "run"
        self.read = classifier.read
        self.probabilities = classifier.probabilities
        self.class_names = classifier.class_names
        self.problem = classifier.problem
        self.geometry = classifier.geometry

serve(Exported(load_classifier(sys.argv[1])), port=0)
"""
PROBLEM = "document.querySelector('[data-problem]').textContent"


@pytest.fixture
def opened(browser, server):
    browser.problems.clear()
    browser.open(server.url)
    wait_for_model(browser)
    yield browser
    assert browser.problems == []


def wait_for_model(browser):
    about = "document.querySelector('[data-about]').textContent"
    browser.wait(f"{about} === 'run: 4 classes, pictures of 8x8 pixels.'")


def text(browser, selector):
    script = f"document.querySelector({json.dumps(selector)}).textContent"
    return " ".join(browser.run(script).split())


def drop(browser, name, content, kind="image/png", target="[data-drop]"):
    """Drops a file as a user does with the mouse."""
    browser.drop(target, name, content, kind)


def shown(browser):
    """Names, percentages and widths of the bars."""
    return browser.run(
        """[...document.querySelectorAll("[data-guesses] li")].map((item) => [
        ...[...item.children].map((x) => x.textContent),
        item.style.getPropertyValue("--share")])"""
    )


def check_classes(browser, run_folder, image):
    (found,) = keras_vit.predict(run_folder, PICTURES[image])
    rows = shown(browser)
    assert [row[0] for row in rows] == [name for name, _ in found.classes]
    for (_, told, width), (_, share) in zip(rows, found.classes, strict=True):
        assert float(told.rstrip("%")) == pytest.approx(100 * share, abs=0.06)
        assert float(width.rstrip("%")) == pytest.approx(100 * share, abs=1e-2)


def test_a_dropped_picture_gets_its_classes_and_its_attention(
    opened, run_folder, server
):
    content = served.encoded(PICTURES[0])
    drop(opened, "a <b>photo</b>.png", content)
    opened.wait(CLASSIFIED)
    check_classes(opened, run_folder, 0)
    # Names are text, not tags.
    assert text(opened, "[data-name]") == "a <b>photo</b>.png"
    assert opened.run("document.querySelector('main b')") is None
    explained = server.post(content, path="/explain")[2]
    source = "document.querySelector('[data-map]').src"
    assert opened.run(source) == explained["overlay"]["source"]
    assert text(opened, "[data-caption]").startswith("Attention rollout: ")
    loaded = "document.querySelector('[data-map]').naturalWidth"
    size = load_classifier(run_folder).geometry.image_size[1]
    opened.wait(f"{loaded} === {size}")


def test_the_attention_of_each_layer_is_chosen_by_keyboard(opened, server):
    content = served.encoded(PICTURES[1])
    drop(opened, "b.png", content)
    opened.wait(CLASSIFIED)
    explained = server.post(content, path="/explain")[2]
    options = "[...document.querySelector('[data-view]').options]"
    assert opened.run(f"{options}.map((x) => x.text)") == [
        "Attention rollout",
        "Attention of layer 0",
        "Attention of layer 1",
        "As the model sees it",
    ]
    # From the top of the page: the field for files, then the view.
    focused = "document.activeElement.dataset"
    opened.run("document.activeElement.blur()")
    opened.press("Tab")
    assert opened.run(f"'file' in {focused}")
    opened.press("Tab")
    assert opened.run(f"'view' in {focused}")
    pictures = [
        explained["overlay"],
        *explained["layers"],
        explained["picture"],
    ]
    source = "document.querySelector('[data-map]').src"
    for picture in pictures[1:]:
        opened.press("ArrowDown")
        assert opened.run(source) == picture["source"]
    assert text(opened, "[data-caption]") == "As the model sees it"


def test_a_chosen_file_is_classified_and_may_be_chosen_again(
    opened, run_folder, tmp_path
):
    for image in (0, 1, 1):
        path = tmp_path / f"{image}.png"
        path.write_bytes(served.encoded(PICTURES[image]))
        opened.run("document.querySelector('[data-guesses]').replaceChildren()")
        opened.run("document.querySelector('[data-status]').textContent = ''")
        root = opened.send("DOM.getDocument")["root"]["nodeId"]
        node = opened.send(
            "DOM.querySelector", nodeId=root, selector="[data-file]"
        )["nodeId"]
        opened.send("DOM.setFileInputFiles", nodeId=node, files=[str(path)])
        opened.wait(CLASSIFIED)
        check_classes(opened, run_folder, image)
        assert text(opened, "[data-name]") == f"{image}.png"


def test_what_cannot_be_read_is_told_and_the_next_picture_works(
    opened, run_folder
):
    drop(opened, "notes.txt", b"no picture", "text/plain")
    opened.wait(f"{PROBLEM} !== ''")
    assert "is no image that is read here" in text(opened, "[data-problem]")
    hidden = "document.querySelector('[data-classes]').hidden"
    assert opened.run(hidden) is True
    # Chromium's console tells of every answer that is no 200.
    (entry,) = opened.problems
    assert "status of 400" in entry["text"]
    opened.problems.clear()
    drop(opened, "a.png", served.encoded(PICTURES[0]), target="body")
    opened.wait(CLASSIFIED)
    assert opened.run(PROBLEM) == ""
    check_classes(opened, run_folder, 0)


def test_a_model_without_attention_has_its_classes_alone(browser, run_folder):
    server = served.Server(run_folder, program=EXPORTED)
    try:
        browser.problems.clear()
        browser.open(server.url)
        wait_for_model(browser)
        drop(browser, "a.png", served.encoded(PICTURES[0]))
        browser.wait(CLASSIFIED)
        check_classes(browser, run_folder, 0)
        hidden = "document.querySelector('[data-attention]').hidden"
        assert browser.run(hidden) is True
        assert browser.problems == []
        assert 'keras_vit_requests_total{path="/explain"' not in str(
            server.values()
        )
    finally:
        server.process.kill()
        server.process.communicate()


def test_a_server_that_is_gone_is_told(browser, run_folder):
    server = served.Server(run_folder)
    try:
        browser.open(server.url)
        wait_for_model(browser)
    finally:
        server.process.kill()
        server.process.communicate()
    drop(browser, "a.png", served.encoded(PICTURES[0]))
    browser.wait(
        f"{PROBLEM} === 'The server does not answer. Is it still ' + 'running?'"
    )
    browser.problems.clear()


@pytest.mark.parametrize("width", [320, 390])
def test_the_page_fits_a_phone(opened, server, width):
    opened.open(server.url, width, 700, phone=True)
    wait_for_model(opened)
    drop(opened, f"{'long' * 40}.png", served.encoded(PICTURES[0]))
    opened.wait(CLASSIFIED)
    wide = "document.documentElement.scrollWidth"
    assert opened.run(wide) <= width
    sizes = opened.run(
        """["[data-drop]", "[data-view]"].map((x) =>
        document.querySelector(x).getBoundingClientRect().height)"""
    )
    assert min(sizes) >= 24


def test_the_page_asks_nobody_else_and_runs_its_own_script_alone(server):
    status, headers, page = server.ask("GET", "/")
    assert status == 200
    assert headers["Content-Type"] == "text/html; charset=utf-8"
    assert "default-src 'none'; connect-src 'self';" in page
    assert "{{" not in page
    assert "http://" not in page and "https://" not in page
    assert page.count("<script") == 1
