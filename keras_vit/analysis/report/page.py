"""The sections of a report, and HTML pages made of sections.

A new section is a row of `SECTIONS`, a function from the files of the run to
the contents of its template, and that template in templates/sections.

A page works from a file and offline: style and pictures are in it. It runs
report.js alone, which its policy names by hash; without scripts it shows the
same but for the maps of single heads. Class names are escaped wherever they
stand.

Axes: N images, K classes, P classes that are true or predicted anywhere.
"""

import base64
import calendar
import datetime
import hashlib
import json
import os
import pathlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from keras_vit.analysis.features import same_colours
from keras_vit.analysis.plots import grouped
from keras_vit.analysis.report import pictures
from keras_vit.analysis.report.attention_section import (
    attention_contents,
    model_figures,
)
from keras_vit.analysis.report.run_files import (
    MISSING,
    OVER_TIME,
    FilesInMemory,
    RunFiles,
    charts,
    class_names_in,
    image_titles,
)
from keras_vit.io.atomic_files import printable, replacing
from keras_vit.io.checks import check_installed, read_yaml

__all__ = [
    "EXPLANATION",
    "SECTIONS",
    "Section",
    "date_of",
    "headline",
    "render_page",
    "render_report",
    "write_report",
    "write_rows",
]

MAX_TABLE = 20  # classes; a larger table fits no screen.
MAX_PAIRS = 15
MAX_AUGMENTED = 32
TOP = 5  # Of so many classes all answers are among the top 5.
# Images of predictions.npz and which they are; files of older runs have fewer.
PICTURES = (("pictures", "picture_rows"), ("cell_pictures", "cell_rows"))
LEAST_SHARE = 0.05  # What label smoothing gives a class is no part of a mix.


class Section(NamedTuple):
    """A section of a page.

    Args:
        name: its anchor, and templates/sections/<name>.html its template.
        title: its heading.
        contents: function from the files to what the template fills in, None
            where they do not have it.
        files: the files that it is made from.
        always: whether it says so where the files are not there.
    """

    name: str
    title: str
    contents: Callable[[RunFiles | FilesInMemory], dict | None]
    files: tuple[str, ...]
    always: bool = True


def _summary(run):
    result = run.read("result.json")
    if result is None:
        return None
    headline = [
        (name, form(result[key]))
        for key, (name, form) in HEADLINE.items()
        if isinstance(result.get(key), int | float)
    ]
    if len(run.read("class_names.json") or range(TOP + 1)) <= TOP:
        left_out = HEADLINE["top5"][0]
        headline = [line for line in headline if line[0] != left_out]
    apart = {*HEADLINE, "skipped", "evaluations"}
    remaining = {k: v for k, v in result.items() if k not in apart}
    return {
        "headline": headline,
        "evaluations": _evaluations(result.get("evaluations")),
        "skipped": _skipped(result.get("skipped", {})),
        "remaining": _flatten(remaining),
    }


def _evaluations(found):
    """Return the best and the last evaluation as a table; None without any.

    Returns:
        "names" of the columns after the first two, and "rows" (which of both,
        epoch, values, whether the model is of it).
    """
    if found is None:
        return None
    names = [x for x in EVALUATED if x in found["best"]]
    return {
        "names": [EVALUATED[name][0] for name in names],
        "rows": [
            (
                which,
                f"{found[which]['epoch']:.4g}",
                [EVALUATED[name][1](found[which][name]) for name in names],
                found["kept"] == which,
            )
            for which in ("best", "last")
        ],
    }


def _skipped(kinds):
    """Count what was left out: (how much, names, how many more)."""
    return [
        (
            SKIPPED.get(kind, "{}").format(grouped(found["count"])),
            found["files"],
            found["count"] - len(found["files"]),
        )
        for kind, found in kinds.items()
    ]


def _share(value):
    return f"{100 * value:.2f}\N{NARROW NO-BREAK SPACE}%"


def _number(value):
    return f"{value:.4g}"


def _four(value):
    return f"{value:.4f}"


def _duration(value):
    minutes, seconds = divmod(round(value), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes:02} min"
    return f"{minutes} min {seconds:02} s" if minutes else f"{seconds} s"


def _rate(value):
    return f"{grouped(round(value, 1))} / s"


# Metrics on the validation images -> their name and unit.
EVALUATED = {
    "val_accuracy": ("Accuracy", _share),
    "val_mae": ("Mean absolute error", _number),
    "val_r2": ("R2", _number),
    "val_loss": ("Loss", _four),
}
# Of what `keras_vit.data.skipped_files` counts.
SKIPPED = {
    "unreadable": "Left out, not readable as images: {}",
    "no_image_suffix": "Left out, without the suffix of an image: {}",
}
# Keys of result.json at the top of the report -> their name and unit.
HEADLINE = {
    "top1": ("Top-1 accuracy", _share),
    "mae": ("Mean absolute error", _number),
    "r2": ("R\N{SUPERSCRIPT TWO}", _number),
    "test_accuracy": ("Test accuracy", _share),
    "top5": ("Top-5 accuracy", _share),
    "balanced_accuracy": ("Balanced accuracy", _share),
    "macro_f1": ("F1, mean over the classes", _share),
    "auc": ("AUC, mean over the classes", _share),
    "average_precision": ("Average precision, mean over the classes", _share),
    "real_top1": ("Top-1 accuracy, ReaL labels", _share),
    "validation_accuracy": ("Validation accuracy", _share),
    "baseline_accuracy": ("Baseline accuracy", _share),
    "num_examples": ("Images", grouped),
    "num_test_images": ("Test images", grouped),
    "num_parameters": ("Parameters", grouped),
    "seconds": ("Training time", _duration),
    "images_per_second": ("Training images", _rate),
}


def _flatten(values, prefix=""):
    """Nested dictionaries as lines ("key.key", text)."""
    lines = []
    for key, value in values.items():
        if isinstance(value, dict):
            lines += _flatten(value, f"{prefix}{key}.")
        else:
            lines.append((f"{prefix}{key}", _plain(value)))
    return lines


def _plain(value):
    if isinstance(value, list):
        return ", ".join(map(_plain, value))
    if isinstance(value, int) and not isinstance(value, bool):
        return grouped(value)
    if isinstance(value, float):
        return f"{value:.6g}"
    return value if isinstance(value, str) else json.dumps(value)


def _curves(run):
    drawn = charts(
        run.read("metrics.jsonl") or [], run.read("history.csv") or []
    )
    return {"charts": drawn} if drawn else None


def _confusion(run):
    found = run.read("predictions.npz")
    if found is None or found["labels"].ndim != 1:
        return None
    names = class_names_in(run, int(found["num_classes"]))
    titles = image_titles(found)
    answers = {
        int(i): _answer(found, i, image, names, titles)
        for images, rows in PICTURES
        if images in found
        for image, i in zip(found[images], found[rows], strict=True)
    }
    return _confusion_matrix(
        found["labels"], found["classes"][:, 0], names, answers
    )


def _confusion_matrix(labels, predicted, names, answers):
    """Return which class was taken for which.

    Returns:
        Dict of "names", the P classes; "rows", for each of them its cells
        (count, share of the row, anchor), empty where they are many;
        "picture", a data URI then, else None; "pairs", the most frequent
        mistakes (true, predicted, count, anchor); "right" and "total",
        numbers of images; "behind", of each of these cells that has images
        its "anchor", "truth", "guess", "count" and "answers". An anchor is
        None where no image of the cell was stored.
    """
    met, cells = np.unique([labels, predicted], return_inverse=True)
    rows, columns = cells.reshape(2, -1)
    matrix = np.zeros((len(met), len(met)), int)  # (P, P)
    np.add.at(matrix, (rows, columns), 1)
    shares = matrix / np.maximum(matrix.sum(axis=1, keepdims=True), 1)
    small = len(met) <= MAX_TABLE
    kept = [names[k] for k in met]
    behind = _behind(answers, rows, columns)
    pairs = _pairs(matrix)
    every = range(len(kept))
    linked = behind if small else {cell: behind.get(cell) for cell in pairs}
    return {
        "names": kept,
        "rows": [
            (name, [_cell(matrix, shares, behind, i, j) for j in every])
            for i, name in enumerate(kept)
            if small
        ],
        "picture": None if small else pictures.heat_map(shares),
        "pairs": [
            (kept[i], kept[j], int(matrix[i, j]), _anchor(behind, i, j))
            for i, j in pairs
        ],
        "right": int(np.trace(matrix)),
        "total": int(matrix.sum()),
        "behind": [
            {
                "anchor": _anchor(behind, i, j),
                "truth": kept[i],
                "guess": kept[j],
                "count": int(matrix[i, j]),
                "answers": found,
            }
            for (i, j), found in sorted(linked.items())
            if found
        ],
    }


def _cell(matrix, shares, behind, i, j):
    return int(matrix[i, j]), float(shares[i, j]), _anchor(behind, i, j)


def _anchor(behind, i, j):
    return f"cell-{i}-{j}" if (i, j) in behind else None


def _behind(answers, rows, columns):
    """Cell (i, j) of the matrix -> the answers that were counted in it."""
    cells: dict = {}
    for row, answer in answers.items():
        cell = int(rows[row]), int(columns[row])
        cells.setdefault(cell, []).append(answer)
    return cells


def _pairs(matrix):
    """Return the cells of the most frequent mistakes."""
    mistakes = matrix.copy()
    np.fill_diagonal(mistakes, 0)
    order = np.argsort(-mistakes, axis=None, kind="stable")[:MAX_PAIRS]
    places = zip(*np.unravel_index(order, mistakes.shape), strict=True)
    return [(int(i), int(j)) for i, j in places if mistakes[i, j]]


def _per_class(run):
    rows = run.read("per_class.csv")
    if not rows:
        return None
    # Classes that the data does not have are left out.
    met = [row for row in rows if row["images"] or row["predicted"]]
    hardest = sorted(met, key=lambda row: (row["f1"] is None, row["f1"]))
    return {"rows": hardest}


def _mistakes(run):
    found = run.read("predictions.npz")
    if found is None or "pictures" not in found or found["labels"].ndim != 1:
        return None
    names = class_names_in(run, int(found["num_classes"]))
    wrong = int(np.sum(found["labels"] != found["classes"][:, 0]))
    titles = image_titles(found)
    shown = zip(found["pictures"], found["picture_rows"], strict=True)
    answers = [_answer(found, i, image, names, titles) for image, i in shown]
    return {
        "answers": [answer for answer in answers if not answer["right"]],
        "right": [answer for answer in answers if answer["right"]],
        "num_wrong": wrong,
        "num_images": len(found["labels"]),
    }


def _answer(found, i, image, names, titles):
    guesses = zip(found["classes"][i], found["probabilities"][i], strict=True)
    return {
        "picture": pictures.photograph(image),
        "title": titles[i],
        "in_file": "names" in found,
        "truth": names[found["labels"][i]],
        "right": bool(found["labels"][i] == found["classes"][i, 0]),
        "guesses": [(names[k], float(share)) for k, share in guesses],
    }


def _attention(run):
    found = run.read("attention.npz")
    if found is None or "reason" in found:
        return found
    names = class_names_in(run, int(found["num_classes"]))
    return attention_contents(found, names)


def _inside(run):
    found = run.read("attention.npz")
    if found is None or "reason" in found:
        return found
    return model_figures(found)


def _model(run):
    values = run.read("model.json")
    return None if values is None else {"rows": _flatten(values)}


def _augmented(run):
    found = run.read("augmented.npz")
    if found is None:
        return None
    names = class_names_in(run, found["labels"].shape[1])
    shown = zip(found["images"], found["labels"], strict=True)
    return {
        "inputs": [
            {"picture": pictures.photograph(image), "mix": _mix(shares, names)}
            for image, shares in list(shown)[:MAX_AUGMENTED]
        ]
    }


def _mix(shares, names):
    order = np.argsort(-shares, kind="stable")
    return [
        (names[k], float(shares[k])) for k in order if shares[k] > LEAST_SHARE
    ]


def _over_time(run):
    found = run.read(OVER_TIME)
    if found is None:
        return None
    names = [f"step {grouped(step)}" for step in found["steps"].tolist()]
    strips = {"neighbours": map(_in_squares, found["neighbours"])}
    if "patches" in found:
        size = found["attention"].shape[2:4]
        colours = same_colours(found["patches"] / 255)
        strips = {"patches": _enlarged(colours, size), **strips}
    if "attention" in found:
        strips = {"attention": found["attention"], **strips}
    strips = {what: list(pixels) for what, pixels in strips.items()}
    return {
        "rows": [
            {
                "title": f"Image {i + 1}",
                "strips": [
                    [_cell_of("the image", what, image)]
                    + [
                        _cell_of(name, what, pixels[i])
                        for name, pixels in zip(names, times, strict=True)
                    ]
                    for what, times in strips.items()
                ],
            }
            for i, image in enumerate(found["images"])
        ]
    }


def _cell_of(name, line, pixels):
    picture = pictures.photograph(pixels)
    return {"name": name, "lines": [line], "picture": picture}


def _in_squares(neighbours):
    """Put four neighbours of images (M, 4, H, W, C) in squares, 2 by 2."""
    edge = max(neighbours.shape[2] // 32, 1)  # pixels, white
    edges = [(0, 0), (0, 0), (edge, edge), (edge, edge), (0, 0)]
    x = np.pad(neighbours, edges, constant_values=255)
    count, _, height, width, channels = x.shape
    x = x.reshape(count, 2, 2, height, width, channels)
    x = x.swapaxes(2, 3)  # (M, 2, H, 2, W, C)
    return x.reshape(count, 2 * height, 2 * width, channels)


def _enlarged(colours, size):
    """Repeat colours of patches (S, M, R, C, 3) to pixels (S, M, H, W, 3)."""
    rows, columns = colours.shape[2:4]
    down = np.arange(size[0]) * rows // size[0]
    right = np.arange(size[1]) * columns // size[1]
    pixels = np.rint(255 * colours).astype("uint8")
    return pixels[:, :, down][:, :, :, right]


def _config(run):
    text = run.read("config.yaml")
    return None if text is None else {"text": text}


def _environment(run):
    values = run.read("environment.json")
    return None if values is None else {"rows": _flatten(values)}


def headline(run: RunFiles) -> tuple[str, ...]:
    """Model, data and date of a run, as far as its files have them."""
    try:
        config = read_yaml(run.read("config.yaml") or "")
        model, data = config["model"], config["data"]
        names = [model.get("name"), model.get("weights")]
        sources = (data.get(x) for x in ("folder", "csv", "name"))
        source = next(filter(None, sources), None)
    except (AttributeError, KeyError, TypeError, ValueError):
        names, source = [], None
    time = (run.read("environment.json") or {}).get("time")
    facts = [" ".join(str(x) for x in names if x), source, _day(time)]
    return tuple(str(fact) for fact in facts if fact)


def _day(time) -> str | None:
    """Return a time of ISO 8601 as a date for readers."""
    try:
        return date_of(datetime.datetime.fromisoformat(time))
    except (TypeError, ValueError):
        return None


def date_of(time: datetime.datetime) -> str:
    """Return a date for readers, in English on all machines.

    Example:
        >>> date_of(datetime.datetime(2026, 11, 24))
        '24 November 2026'
    """
    return f"{time.day} {calendar.month_name[time.month]} {time.year}"


ATTENTION = Section(
    "attention", "What the model sees", _attention, ("attention.npz",)
)
INSIDE = Section(
    "inside", "Distances and positions", _inside, ("attention.npz",)
)
EXPLANATION = (
    ATTENTION,
    INSIDE,
    Section("model", "Model", _model, ("model.json",)),
)
SECTIONS = (
    Section("summary", "Result", _summary, ("result.json",)),
    Section(
        "curves", "Learning curves", _curves, ("metrics.jsonl", "history.csv")
    ),
    Section("confusion", "Confusion matrix", _confusion, ("predictions.npz",)),
    Section("per_class", "Class by class", _per_class, ("per_class.csv",)),
    Section("mistakes", "Mistakes", _mistakes, ("predictions.npz",)),
    Section("unsure", "Right but unsure", _mistakes, ("predictions.npz",)),
    Section(
        "over_time",
        "Features over the training",
        _over_time,
        (OVER_TIME,),
        always=False,
    ),
    ATTENTION,
    INSIDE,
    Section("augmented", "Training inputs", _augmented, ("augmented.npz",)),
    Section("config", "Config", _config, ("config.yaml",)),
    Section("environment", "Environment", _environment, ("environment.json",)),
)


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
        parts=list(filter(None, (_part(x, contents) for x in sections))),
        script=markupsafe.Markup(script),
        script_hash=base64.b64encode(digest).decode(),
    )


def write_rows(
    path: str | os.PathLike,
    title: str,
    heading: str,
    rows: Sequence[tuple[str, Sequence[tuple[str, str, Any]]]],
    *,
    kind: str,
    facts: Sequence[str],
) -> None:
    """Write a page of one section with rows of pictures.

    Args:
        path: the file.
        title: see `render_page`.
        heading: of the section.
        rows: pairs of a heading and its pictures: triples of a name, a line
            of text and uint8 pixels (H, W, C), or None for no picture.
        kind: see `render_page`.
        facts: see `render_page`.
    """

    def cell(name, line, pixels):
        picture = None if pixels is None else pictures.photograph(pixels)
        return {"name": printable(name), "lines": [line], "picture": picture}

    contents = [
        {"title": printable(row), "cells": [cell(*x) for x in cells]}
        for row, cells in rows
    ]
    section = Section("rows", heading, lambda _: {"rows": contents}, ())
    page = render_page(
        title, [section], FilesInMemory({}), kind=kind, facts=facts
    )
    with replacing(pathlib.Path(path)) as temporary:
        temporary.write_text(page, encoding="utf-8")


def _part(section, run):
    contents = section.contents(run)
    problems = {
        name: run.problems[name]
        for name in section.files
        if name in run.problems
    }
    if contents is None and not section.always:
        problems = {k: x for k, x in problems.items() if x != MISSING}
        if not problems:
            return None
    return {"section": section, "contents": contents, "problems": problems}


def _percent(share, digits=1):
    if share is None:
        return "\N{EN DASH}"
    return f"{100 * share:.{digits}f}\N{NARROW NO-BREAK SPACE}%"
