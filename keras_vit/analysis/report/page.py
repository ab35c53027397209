"""HTML pages made of sections.

A page works from a file and offline: style and pictures are in it. It runs
report.js alone, which its policy names by hash; without scripts it shows the
same but for the maps of single heads. Class names are escaped wherever they
stand.
"""

import base64
import hashlib
import os
import pathlib
from collections.abc import Sequence

from keras_vit.analysis.plots import grouped
from keras_vit.analysis.report.run_files import FilesInMemory, RunFiles
from keras_vit.analysis.report.sections import SECTIONS, Section, headline
from keras_vit.io.atomic_files import replacing
from keras_vit.io.checks import check_installed

__all__ = ["render_page", "render_report", "write_report"]


def write_report(
    folder: str | os.PathLike, result: dict | None = None
) -> pathlib.Path:
    """Write the report of a run into its folder.

    Where files are missing, the report says which.

    Args:
        folder: the run folder.
        result: what result.json will hold; None reads it.

    Returns:
        The path of report.html in the folder.

    Raises:
        ValueError: when there is no such folder.

    Example:
        >>> write_report("runs/quickstart")
        PosixPath('runs/quickstart/report.html')
    """
    page = render_report(folder, result)
    path = pathlib.Path(folder) / "report.html"
    with replacing(path) as temporary:
        temporary.write_text(page, encoding="utf-8")
    return path


def render_report(folder: str | os.PathLike, result: dict | None = None) -> str:
    """Return the HTML of the report of a run, see `write_report`."""
    run = RunFiles(folder, {} if result is None else {"result.json": result})
    return render_page(
        run.folder.resolve().name,
        SECTIONS,
        run,
        kind="report",
        facts=headline(run),
    )


def render_page(
    title: str,
    sections: Sequence[Section],
    contents: RunFiles | FilesInMemory,
    *,
    kind: str,
    facts: Sequence[str] = (),
) -> str:
    """Return the HTML of a page.

    Args:
        title: its heading.
        sections: its sections, in their order.
        contents: the files that they are made from.
        kind: what the page is, for the title of the window.
        facts: what stands under the heading and in the title of the window,
            such as model, data and date.
    """
    check_installed("A page", "jinja2")
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
    templates.filters["grouped"] = grouped
    script, _, _ = loader.get_source(templates, "report.js")
    digest = hashlib.sha256(script.encode()).digest()
    return templates.get_template("report.html").render(
        title=title,
        kind=kind,
        facts=facts,
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
