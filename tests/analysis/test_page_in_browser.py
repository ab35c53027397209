"""The page in a headless Chromium, used by keyboard, mouse and finger."""

import numpy as np
import pytest
import report_folder
from browser import find_chromium
from report_folder import MAPS, NAMES, ROLLOUT

from keras_vit.analysis import report

pytestmark = pytest.mark.skipif(
    find_chromium() is None, reason="no Chromium on this machine"
)
MAP = ".example:not([hidden]) .stage canvas"
CAPTION = ".example:not([hidden]) [data-caption]"
READY = "document.querySelector('.live') !== null"


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    folder = report_folder.fill(tmp_path_factory.mktemp("run"))
    return report.write_report(folder).as_uri()


@pytest.fixture
def opened(browser, page):
    browser.problems.clear()
    browser.open(page)
    browser.wait(READY)
    yield browser
    assert browser.problems == []


def shown(browser):
    """The map over the image, in bytes."""
    pixels = browser.run(
        f"""(() => {{
        const map = document.querySelector("{MAP}");
        const {{ width, height }} = map;
        const copy = new OffscreenCanvas(width, height).getContext("2d");
        copy.drawImage(map, 0, 0);
        const {{ data }} = copy.getImageData(0, 0, width, height);
        return {{ shape: [height, width, 4], values: [...data] }};
        }})()"""
    )
    return np.reshape(pixels["values"], pixels["shape"])


def darkened(browser):
    """The map over the image, of an overlay that darkens it."""
    browser.run(
        """(() => {
        const paint = document.querySelector("[data-paint]");
        paint.value = "dark";
        paint.dispatchEvent(new Event("change", { bubbles: true }));
        })()"""
    )
    pixels = shown(browser)
    assert (pixels[..., :3] == 0).all()
    return 255 - pixels[..., 3]


def text(browser, selector):
    script = f"document.querySelector({selector!r}).textContent"
    return " ".join(browser.run(script).split())


def test_page_opens_with_the_rollout_and_the_keys_switch_layer_and_head(opened):
    assert text(opened, CAPTION) == (
        "Attention rollout: strongest in row 0, column 0 of 2x3 patches"
    )
    np.testing.assert_array_equal(darkened(opened), ROLLOUT[0])
    opened.run("document.querySelector('.stage').focus()")
    # It begins with the last layer and the mean of the heads.
    for key, layer, head in (
        ("ArrowRight", 1, 1),
        ("ArrowRight", 1, 2),
        ("ArrowRight", 1, 2),
        ("ArrowUp", 0, 2),
        ("ArrowLeft", 0, 1),
        ("ArrowDown", 1, 1),
    ):
        opened.press(key)
        np.testing.assert_array_equal(darkened(opened), MAPS[layer, 0, head])
    assert text(opened, CAPTION).startswith("Layer 1, head 0: strongest in")
    opened.press("r")
    np.testing.assert_array_equal(darkened(opened), ROLLOUT[0])


def test_sliders_are_enabled_where_they_do_something(opened):
    disabled = (
        "['layer', 'head'].map((name) =>"
        " document.querySelector(`[data-${name}]`).disabled)"
    )
    assert opened.run(disabled) == [True, True]
    opened.click("[name=map][value=head]")
    assert opened.run(disabled) == [False, False]
    opened.click("[name=map][value=rollout]")
    assert opened.run(disabled) == [True, True]


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_page_and_its_figures_follow_the_theme(browser, page, theme):
    feature = {"name": "prefers-color-scheme", "value": theme}
    browser.send("Emulation.setEmulatedMedia", features=[feature])
    try:
        browser.open(page)
        colours = browser.run(
            """(() => {
            const of = (place, name) =>
                getComputedStyle(document.querySelector(place))[name];
            return [of("body", "backgroundColor"), of(".charts text", "fill")]
                .map((colour) => colour.match(/\\d+/g).map(Number));
            })()"""
        )
    finally:
        browser.send("Emulation.setEmulatedMedia", features=[])
    background, ink = (sum(colour) / 3 for colour in colours)
    assert (background < 40, ink > 200) == (theme == "dark",) * 2


def test_mouse_switches_layer_and_head(opened):
    # Of 2 rows and 3 columns the upper right, then the lower left.
    opened.click(".example:not([hidden]) .overview", 0.9, 0.2)
    np.testing.assert_array_equal(darkened(opened), MAPS[0, 0, 2])
    assert text(opened, "[data-layer-name]") == "0"
    assert text(opened, "[data-head-name]") == "1"
    opened.click(".example:not([hidden]) .overview", 0.1, 0.8)
    np.testing.assert_array_equal(darkened(opened), MAPS[1, 0, 0])
    assert text(opened, "[data-head-name]") == "mean"
    opened.click("[data-head]", 0.5)  # the middle of a slider from 0 to 2
    np.testing.assert_array_equal(darkened(opened), MAPS[1, 0, 1])
    opened.press("ArrowRight")  # a slider has keys of its own
    np.testing.assert_array_equal(darkened(opened), MAPS[1, 0, 2])
    opened.click("[name=map][value=rollout]")
    np.testing.assert_array_equal(darkened(opened), ROLLOUT[0])


# As in sections/attention.html, for another number of layers and heads.
RESHAPE = """((layers, heads) => {
    const viewer = document.querySelector(".viewer");
    viewer.style.setProperty("--layers", layers);
    viewer.style.setProperty("--heads", heads + 1);
    viewer.style.setProperty("--grid-ratio", `${heads + 1} / ${layers}`);
    viewer.style.setProperty(
        "--maps-width", `${30 * (heads + 1) / layers}rem`);
    const names = (count) => Array.from({ length: count }, (_, i) => {
        const name = document.createElement("span");
        name.textContent = i;
        return name;
    });
    const shown = document.querySelector(".example:not([hidden])");
    shown.querySelector(".heads").replaceChildren(
        shown.querySelector(".heads > span"), ...names(heads));
    shown.querySelector(".layers").replaceChildren(...names(layers));
    const box = shown.querySelector(".overview").getBoundingClientRect();
    const centres = (place, begin, size) =>
        [...shown.querySelectorAll(`${place} > span`)].map((name) => {
            const at = name.getBoundingClientRect();
            return (at[begin] + at[size] / 2 - box[begin]) / box[size];
        });
    return {
        heads: centres(".heads", "left", "width"),
        layers: centres(".layers", "top", "height"),
        inside: box.right <= document.documentElement.clientWidth,
    };
})(%d, %d)"""


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize(
    ("layers", "heads"), [(12, 3), (12, 12), (24, 16), (12, 6), (2, 2)]
)
def test_labels_stand_at_their_maps(opened, layers, heads, width):
    metrics = {"width": width, "height": 900, "deviceScaleFactor": 1}
    opened.send("Emulation.setDeviceMetricsOverride", mobile=False, **metrics)
    try:
        found = opened.run(RESHAPE % (layers, heads))
    finally:
        opened.send("Emulation.clearDeviceMetricsOverride")
    columns = (np.arange(heads + 1) + 0.5) / (heads + 1)
    rows = (np.arange(layers) + 0.5) / layers
    share = 0.1  # of a cell
    np.testing.assert_allclose(found["heads"], columns, atol=share / heads)
    np.testing.assert_allclose(found["layers"], rows, atol=share / layers)
    assert found["inside"]


def test_another_image_keeps_layer_and_head(opened):
    opened.click(".example:not([hidden]) .overview", 0.9, 0.2)
    opened.click("[data-choose='1']")
    assert text(opened, ".example:not([hidden]) h3").startswith(
        "<i>Image</i> 5:"
    )
    np.testing.assert_array_equal(darkened(opened), MAPS[0, 1, 2])
    pressed = opened.run(
        "[...document.querySelectorAll('[data-choose]')]"
        ".map(button => button.getAttribute('aria-pressed'))"
    )
    assert pressed == ["false", "true"]


def test_overlay_colours_or_is_off(opened):
    # The map of layer 0 and head 0 of the first image goes from 18 to 33.
    opened.click(".example:not([hidden]) .overview", 0.5, 0.2)
    red, green, blue, alpha = np.moveaxis(shown(opened), -1, 0)
    assert np.ptp(alpha) == 0 < alpha.min()
    assert (np.diff(red.ravel()) > 0).all()
    opened.run(
        """(() => {
        const paint = document.querySelector("[data-paint]");
        paint.value = "none";
        paint.dispatchEvent(new Event("change", { bubbles: true }));
        })()"""
    )
    assert (shown(opened) == 0).all()


def test_cell_of_the_confusion_matrix_shows_its_images(opened):
    displayed = (
        "[...document.querySelectorAll('.behind')]"
        ".filter(group => getComputedStyle(group).display !== 'none')"
        ".map(group => group.getAttribute('aria-label'))"
    )
    assert opened.run(displayed) == []
    opened.click(".matrix td a[href='#cell-1-0']")
    opened.wait(f"{displayed}.length === 1")
    assert opened.run(displayed) == [f"Images of {NAMES[1]} taken for cat"]
    assert opened.run(
        "[...document.querySelectorAll('.behind:target img')]"
        ".every(image => image.naturalWidth === 8 && image.offsetWidth > 20)"
    )
    opened.click(".behind:target a")
    opened.wait(f"{displayed}.length === 0")


@pytest.mark.parametrize("width", [390, 320])
def test_phone_needs_no_scrolling_to_the_side(browser, page, width):
    browser.problems.clear()
    browser.open(page, width, 844, phone=True)
    browser.wait(READY)
    assert browser.run("document.documentElement.scrollWidth") <= width
    assert browser.run("document.documentElement.clientWidth") == width
    # A number of the matrix is one line.
    rows = browser.run(
        "[...document.querySelectorAll('.matrix td a')].map((cell) => {"
        " const range = document.createRange();"
        " range.selectNodeContents(cell);"
        " return range.getClientRects().length })"
    )
    assert set(rows) == {1}
    # The labels of the maps stand beside them.
    beside = browser.run(
        """(() => {
        const [maps, layers, heads] = ["overview", "layers", "heads"].map(
            (name) => document.querySelector(`.example .${name}`)
                .getBoundingClientRect());
        return [layers.right <= maps.left, heads.bottom <= maps.top,
            Math.abs(layers.height - maps.height) < 2];
        })()"""
    )
    assert beside == [True, True, True]
    browser.click(".example:not([hidden]) .overview", 0.9, 0.2)
    np.testing.assert_array_equal(darkened(browser), MAPS[0, 0, 2])
    assert browser.problems == []


def test_all_is_reached_by_the_tabulator(opened):
    reached, invisible = set(), set()
    for _ in range(40):
        opened.press("Tab")
        focused = "document.activeElement"
        name = opened.run(f"{focused}.className || {focused}.tagName")
        reached.add(name)
        outline = f"getComputedStyle({focused}).outlineStyle"
        if opened.run(outline) == "none":
            invisible.add(name)
    assert invisible <= {"BODY"}
    assert {"stage", "BUTTON", "INPUT", "SELECT", "A"} <= reached


def test_without_scripts_all_images_are_there(browser, page):
    browser.send("Emulation.setScriptExecutionDisabled", value=True)
    try:
        browser.open(page)
        examples = browser.run(
            "[...document.querySelectorAll('.example')]"
            ".map(example => example.offsetHeight > 100)"
        )
        assert examples == [True, True]
        assert browser.run("document.querySelector('[data-controls]').hidden")
        size = browser.run(
            "[...document.querySelectorAll('.stage img')]"
            ".map(image => image.offsetWidth / image.parentNode.offsetWidth)"
        )
        assert size == [1, 1]
    finally:
        browser.send("Emulation.setScriptExecutionDisabled", value=False)


def test_no_other_script_runs(browser, tmp_path):
    """The policy, tried on a page whose script somebody has changed."""
    folder = report_folder.fill(tmp_path)
    path = report.write_report(folder)
    path.write_text(path.read_text().replace("let shown = 0", "let shown  = 0"))
    browser.problems.clear()
    browser.open(path.as_uri())
    browser.wait("document.readyState === 'complete'")
    assert not browser.run(READY)
    assert "Content Security Policy" in str(browser.problems)
