"""The page on which a picture is dropped: one file, without anything else."""

import base64
import functools
import hashlib
import importlib.resources

__all__ = ["PAGE_HEADERS", "page"]

# Of the page itself; its policy stands in it, as in the other pages.
PAGE_HEADERS = {
    "Content-Security-Policy": "frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
}


@functools.cache
def page() -> str:
    """The HTML of the page, in the style of the report of a run.

    It runs its own script alone, which its policy names by hash.
    """
    here = importlib.resources.files("keras_vit.serving")
    report = importlib.resources.files("keras_vit.analysis.report")
    template = here.joinpath("page.html").read_text(encoding="utf-8")
    style = report.joinpath("templates", "report.css")
    script = here.joinpath("page.js").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest())
    return (
        template.replace("{{ style }}", style.read_text(encoding="utf-8"))
        .replace("{{ script_hash }}", digest.decode())
        .replace("{{ script }}", script)
    )
