"""The page on which a picture is dropped: one file, without anything else."""

import base64
import hashlib
import html
import importlib.resources

__all__ = ["picture_page", "shipped_text"]

SCRIPT = '"use strict";\n(() => {{\n{}\n{}}})();\n'


def picture_page(
    script: str,
    *,
    sources: str,
    promise: str,
    title: str = "Classify a picture",
    about: str = "",
    **parts: str,
) -> str:
    """Return the HTML of a page that classifies pictures.

    It has the style of the report. It runs its own script alone, which its
    policy names by hash.

    Args:
        script: what begins behind `picture_page.js` and calls its
            `takePictures`.
        sources: where the page may fetch from, as its policy has it.
        promise: the line of text that says where a picture goes.
        title: of the page.
        about: the line of text that says what the model is.
        parts: HTML: "more", below the classes; "data", before the script;
            "without_script", for browsers without; and "script_sources", what
            else the policy allows to run.
    """
    code = SCRIPT.format(shipped_text("prediction/picture_page.js"), script)
    digest = base64.b64encode(hashlib.sha256(code.encode()).digest())
    values = {
        **dict.fromkeys(("more", "data", "without_script"), ""),
        "script_sources": "",
        **parts,
        "sources": sources,
        "promise": html.escape(promise),
        "title": html.escape(title),
        "about": html.escape(about),
        "script": code,
        "script_hash": digest.decode(),
        "style": shipped_text("analysis/report/templates/report.css"),
    }
    # Of the template alone: what is put in may look like a part of it.
    pieces = shipped_text("prediction/picture_page.html").split("{{ ")
    filled = [pieces[0]]
    for piece in pieces[1:]:
        name, _, rest = piece.partition(" }}")
        filled += [values[name], rest]
    return "".join(filled)


def shipped_text(path: str) -> str:
    """Return the text of a file of this package."""
    file = importlib.resources.files("keras_vit").joinpath(path)
    return file.read_text(encoding="utf-8")
