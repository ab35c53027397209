"""Putting the parts of a report together.

The page works from a file, without a network: style and pictures are in it,
and it runs no script. What people called their classes is text wherever it
stands, whatever it contains.
"""

import os
import pathlib

from keras_vit.analysis.report.files import RunFiles
from keras_vit.analysis.report.sections import SECTIONS
from keras_vit.files import replacing

__all__ = ["render_report", "write_report"]

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
    import jinja2

    run = RunFiles(folder)
    templates = jinja2.Environment(
        loader=jinja2.PackageLoader("keras_vit.analysis.report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.filters["percent"] = _percent
    parts = [_part(section, run) for section in SECTIONS]
    return templates.get_template("report.html").render(
        title=run.folder.resolve().name, parts=parts
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
