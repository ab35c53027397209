"""Makes the pictures of the documents from a run of the quick start.

    make quickstart
    python tools/make_pictures.py runs/quickstart

writes docs/images: the report of the run and the page of `keras-vit explain`
as Chromium shows them, in the light and in the dark, on a wide screen and on a
phone, and some of the pictures that `explain` writes.
"""

import argparse
import io
import pathlib
import shutil
import sys
import tempfile

from check_site import SCHEMES, WIDTHS
from PIL import Image

from keras_vit.cli import main as keras_vit_command

ROOT = pathlib.Path(__file__).parents[1]
sys.path.append(str(ROOT / "tests" / "support"))

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


def screens(browser, page, script):
    """What each reader sees of a page first: its kind, and the WebP."""
    for scheme in SCHEMES:
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        browser.send("Emulation.setEmulatedMedia", features=features)
        for width in WIDTHS:
            address = page.resolve().as_uri()
            browser.open("about:blank")
            browser.open(address, width, 900, phone=width < 600)
            browser.wait("document.querySelector('.live') !== null")
            browser.run(script)
            stream = io.BytesIO()
            shot = Image.open(io.BytesIO(browser.screenshot()))
            shot.save(stream, "WEBP", quality=80, method=6)
            yield f"{scheme}_{width}", stream.getvalue()


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
            page = out / "index.html"
            shot = photograph(browser, page, HEAD, "#inside")
            pictures = {"explain.png": shot}
            for name, shown, script in (
                ("report", run / "report.html", "scrollTo(0, 0)"),
                ("explain", page, HEAD),
            ):
                for kind, content in screens(browser, shown, script):
                    pictures[f"pages/{name}_{kind}.webp"] = content
        finally:
            browser.close()
    (IMAGES / "pages").mkdir(exist_ok=True)
    for name, content in pictures.items():
        (IMAGES / name).write_bytes(content)
    return 0


if __name__ == "__main__":
    sys.exit(main())
