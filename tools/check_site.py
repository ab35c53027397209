"""Looks at the site in a headless Chromium: errors, accessibility, pictures.

    make docs
    npm pack axe-core && tar xzf axe-core-*.tgz
    python tools/check_site.py package/axe.min.js --pictures docs/images/site

opens the home page, a guide and others at 1280 and 390 pixels, light and dark.
What the console says, what is wider than the screen and what axe-core finds is
printed, and the exit code is 1. The pictures are of the home page.
"""

import argparse
import functools
import http.server
import io
import json
import pathlib
import sys
import tempfile
import threading

from PIL import Image

ROOT = pathlib.Path(__file__).parents[1]
sys.path.append(str(ROOT / "tests" / "support"))

from browser import Browser  # noqa: E402

PAGES = ("", "training/", "from-timm/", "models/vit/", "tutorials/first_steps/")
WIDTHS = (1280, 390)
SCHEMES = ("light", "dark")
WIDER = (
    "document.documentElement.scrollWidth > innerWidth"
    " ? [`${document.documentElement.scrollWidth} pixels wide`] : []"
)
# One line for each kind of violation, with the first element that has it.
AXE = """axe.run().then(({ violations }) => violations.map(
  ({ id, impact, nodes }) =>
    `${id} (${impact}, ${nodes.length}): ${nodes[0].html.slice(0, 200)}`
))"""


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format, *args):
        pass


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("axe", type=pathlib.Path, help="axe.min.js")
    parser.add_argument("--site", type=pathlib.Path, default=ROOT / "site")
    parser.add_argument("--pictures", type=pathlib.Path, help="folder for them")
    arguments = parser.parse_args()
    serve = functools.partial(Quiet, directory=str(arguments.site))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), serve)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        browser = Browser(profile)
        try:
            found = list(looked_at(browser, server.server_port, arguments))
        finally:
            browser.close()
            server.shutdown()
    print(*found, sep="\n")
    return bool(found)


def looked_at(browser, port, arguments):
    """What is wrong, a line each."""
    script = arguments.axe.read_text(encoding="utf-8")
    for page in PAGES:
        for scheme in SCHEMES:
            for width in WIDTHS:
                where = f"{page or 'home'} {scheme} {width}"
                show(browser, f"http://127.0.0.1:{port}/{page}", scheme, width)
                browser.run(f"{script}; 0")
                wrong = browser.run(WIDER) + browser.run(AXE)
                wrong += map(json.dumps, browser.problems)
                yield from (f"{where}: {x}" for x in wrong)
                if arguments.pictures and not page:
                    name = where.replace(" ", "_")
                    picture = arguments.pictures / f"{name}.webp"
                    picture.parent.mkdir(parents=True, exist_ok=True)
                    shot = Image.open(io.BytesIO(browser.screenshot()))
                    shot.save(picture, quality=80, method=6)


def show(browser, address, scheme, width):
    """Opens a page for a reader who prefers one of SCHEMES."""
    browser.problems.clear()
    features = [
        {"name": "prefers-color-scheme", "value": scheme},
        {"name": "prefers-reduced-motion", "value": "reduce"},
    ]
    browser.send("Emulation.setEmulatedMedia", features=features)
    # Or the page remembers the scheme of the last one.
    browser.open("about:blank")
    origin = "/".join(address.split("/")[:3])
    browser.send(
        "Storage.clearDataForOrigin", origin=origin, storageTypes="all"
    )
    browser.open(address, width, 900, phone=width < 600)


if __name__ == "__main__":
    sys.exit(main())
