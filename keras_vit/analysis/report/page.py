"""Putting the parts of a report together.

The page works from a file, without a network: style and pictures are in it.
Of all scripts it runs the one in report.js, which its policy names by hash, and
without scripts it shows the same but for the maps of single heads. What people
called their classes is text wherever it stands, whatever it contains.
"""

import base64
import hashlib
import os
import pathlib
from collections.abc import Sequence

from keras_vit.analysis.report.run_files import Kept, RunFiles
from keras_vit.analysis.report.sections import SECTIONS, Section
from keras_vit.files import replacing

__all__ = ["render_page", "render_report", "write_report"]

NAME = "report.html"


def write_report(folder: str | os.PathLike) -> pathlib.Path:
    """Writes the report of a run into its folder.

    What the folder does not have, the report says in the place of that part.

    Args:
        folder: the run folder, with any of the files of
            `keras_vit.analysis.report.files.FILES`.

    Returns:
        The path of the file, report.html in the folder.

    Raises:
        ValueError: there is no such folder.

    Example:
        >>> write_report("runs/quickstart")
        PosixPath('runs/quickstart/report.html')
    """
    page = render_report(folder)
    path = pathlib.Path(folder) / NAME
    with replacing(path) as temporary:
        temporary.write_text(page, encoding="utf-8")
    return path


def render_report(folder: str | os.PathLike) -> str:
    """Makes the report of a run.

    Args:
        folder: the run folder, see `write_report`.

    Returns:
        str, an HTML page.

    Raises:
        ValueError: there is no such folder.

    Example:
        >>> render_report("runs/quickstart")[:15]
        '<!doctype html>'
    """
    run = RunFiles(folder)
    return render_page(run.folder.resolve().name, SECTIONS, run, kind="report")


def render_page(
    title: str,
    sections: Sequence[Section],
    contents: RunFiles | Kept,
    *,
    kind: str,
) -> str:
    """Makes a page of parts.

    Args:
        title: its heading.
        sections: the parts, in their order.
        contents: what they are made from.
        kind: what the page is, for the title of its window.

    Returns:
        str, an HTML page.

    Example:
        >>> render_page("digits", SECTIONS, RunFiles("runs/a"), kind="report")
    """
    import jinja2
    import markupsafe

    loader = jinja2.PackageLoader("keras_vit.analysis.report")
    templates = jinja2.Environment(
        loader=loader,
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.filters["percent"] = _percent
    script, _, _ = loader.get_source(templates, "report.js")
    digest = hashlib.sha256(script.encode()).digest()
    return templates.get_template("report.html").render(
        title=title,
        kind=kind,
        parts=[_part(section, contents) for section in sections],
        script=markupsafe.Markup(script),
        script_hash=base64.b64encode(digest).decode(),
    )


def _part(section, run):
    contents = section.contents(run)
    problems = {
        name: run.problems[name]
        for name in section.files
        if name in run.problems
    }
    return {"section": section, "contents": contents, "problems": problems}


def _percent(share, digits=1):
    if share is None:
        return "\N{EN DASH}"
    return f"{100 * share:.{digits}f}\N{NARROW NO-BREAK SPACE}%"
