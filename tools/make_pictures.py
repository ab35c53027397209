"""Makes the pictures of the documents from a run of the quick start.

    make quickstart
    python tools/make_pictures.py runs/quickstart

writes docs/images: the report of the run and the page of `keras-vit explain`
as Chromium shows them, and some of the pictures that `explain` writes.
"""

import argparse
import pathlib
import shutil
import sys
import tempfile

from keras_vit.cli import main as keras_vit_command

ROOT = pathlib.Path(__file__).parents[1]
sys.path.append(str(ROOT / "tests"))

from browser import Browser  # noqa: E402

IMAGES = ROOT / "docs" / "images"
WIDTH = 1000
EXAMPLES = ("0_0.png", "3_1.png", "7_1.png", "9_0.png")
COPIED = {
    "3_1_layers.png": "attention_layers.png",
    "3_1_heads.png": "attention_heads.png",
    "position_similarity.png": "position_similarity.png",
}
# Chosen in the page before it is photographed.
CELL = "location.hash = document.querySelector('.matrix .wrong a').hash"
HEAD = """(() => {
document.querySelector('[data-choose="1"]').click();
const maps = document.querySelector('.example:not([hidden]) .overview');
const box = maps.getBoundingClientRect();
maps.dispatchEvent(new MouseEvent('click', {
  clientX: box.x + 0.5 * box.width, clientY: box.y + 0.85 * box.height,
}));
})()"""


def photograph(browser, page, script, end):
    """PNG of a page from its top to the part that ends it."""
    browser.open(page.resolve().as_uri(), WIDTH, 900)
    browser.wait("document.querySelector('.live') !== null")
    browser.run(script)
    bottom = f"document.querySelector('{end}').getBoundingClientRect().bottom"
    height = browser.run(f"scrollTo(0, 0), Math.ceil({bottom} + 12)")
    browser.send(
        "Emulation.setDeviceMetricsOverride",
        width=WIDTH,
        height=height,
        deviceScaleFactor=1,
        mobile=False,
    )
    browser.wait(f"innerHeight === {height}")
    return browser.screenshot()


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("run", type=pathlib.Path, help="a run folder")
    run = parser.parse_args().run
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder, "explained")
        examples = [str(run / "examples" / name) for name in EXAMPLES]
        failed = keras_vit_command(
            ["explain", str(run), *examples, "-o", str(out)]
        )
        if failed:
            return failed
        for name, copy in COPIED.items():
            shutil.copyfile(out / name, IMAGES / copy)
        browser = Browser(pathlib.Path(folder, "profile"))
        try:
            pictures = {
                "report.png": photograph(
                    browser, run / "report.html", CELL, ".behind:target"
                ),
                "explain.png": photograph(
                    browser, out / "index.html", HEAD, "#inside"
                ),
            }
        finally:
            browser.close()
    for name, content in pictures.items():
        (IMAGES / name).write_bytes(content)
    return 0


if __name__ == "__main__":
    sys.exit(main())
