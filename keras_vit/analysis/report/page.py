"""The sections of a report, and HTML pages made of sections.

A new section is a row of `SECTIONS`, a function from the files of the run to
the contents of its template, and that template in templates/sections.

A page works from a file and offline: style and pictures are in it. It runs
report.js alone, which its policy names by hash; without scripts it shows the
same but for the maps of single heads. Class names are escaped wherever they
stand.

Attention is computed when a run ends and drawn from what was stored. A map is
divided by its maximum and stored in bytes. All maps of an image are one grey
picture, a row of maps per layer and a column per head, out of which the page
cuts the one that is asked for.

Axes: N images, K classes, P classes that are true or predicted anywhere; of
attention M images, H and W height and width, C channels, L layers (blocks), N
heads, R and Q rows and columns of the grid of patches, T the most probable
classes.
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

import keras
import numpy as np

from keras_vit.analysis.attention_weights import (
    NO_POSITIONS,
    AttentionOverview,
    attention_overview,
    check_model,
    grid_window,
    has_positions,
    position_similarity,
)
from keras_vit.analysis.features import same_colours
from keras_vit.analysis.plots import (
    grouped,
    plot_attention_distance,
    plot_position_similarity,
)
from keras_vit.analysis.report import pictures
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
from keras_vit.models import VisionTransformer
from keras_vit.preprocessing import preprocess_input
from keras_vit.variants import VariantTransformer

__all__ = [
    "EXPLANATION",
    "SECTIONS",
    "Section",
    "attention_arrays",
    "attention_contents",
    "date_of",
    "explain_run",
    "headline",
    "model_figures",
    "render_page",
    "render_report",
    "write_attention",
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


# --- Attention ---

NUM_IMAGES = 8  # in the report of a run
PHOTO_SIDE = 448  # pixels; photographs are not drawn larger.
MAX_TILES = 16  # maps in a row of the figure of position similarity


def explain_run(folder: str | os.PathLike, model: keras.Model) -> None:
    """Store what a model attends to in some images of its evaluation.

    Writes attention.npz for the report of the run: of mistakes and of right
    answers in predictions.npz, or the reason why there is nothing to show.

    Args:
        folder: the run folder.
        model: the model that was evaluated, on images in [0, 255].

    Example:
        >>> explain_run("runs/quickstart", model)
    """
    folder = pathlib.Path(folder)
    with replacing(folder / "attention.npz") as path:
        write_attention(path, _of_run(folder, model))


def write_attention(
    path: str | os.PathLike, arrays: dict[str, np.ndarray] | str
) -> None:
    """Write attention.npz: `attention_arrays`, or why there are none."""
    contents: dict = (
        {"reason": np.array(arrays)} if isinstance(arrays, str) else arrays
    )
    with open(path, "wb") as file:
        np.savez_compressed(file, **contents)


def _of_run(folder, model) -> dict | str:
    """Arrays for attention.npz, or the reason why there are none."""
    if not isinstance(model, (VisionTransformer, VariantTransformer)):
        return f"a {type(model).__name__} has no attention."
    try:
        check_model(model)
    except ValueError as error:
        return str(error)
    if not (folder / "predictions.npz").is_file():
        return "no images were evaluated."
    with np.load(folder / "predictions.npz", allow_pickle=False) as arrays:
        found = dict(arrays)
    images, rows, single = _selected(found)
    titles = image_titles(found)
    inputs = images.astype("float32")
    if not model.config.include_preprocessing:
        inputs = preprocess_input(images)
    try:
        overview = attention_overview(model, inputs)
    except Exception as error:
        # The run is finished; pictures that a device has no memory for, say,
        # are no reason to lose it.
        return f"it could not be computed ({' '.join(str(error).split())})."
    return attention_arrays(
        model,
        overview,
        images,
        titles=[titles[row] for row in rows],
        classes=found["classes"][rows],
        probabilities=found["probabilities"][rows],
        labels=found["labels"][rows] if single else None,
    )


def _selected(found):
    """Images of mistakes, then of right answers of different classes."""
    images = np.concatenate([found["cell_pictures"], found["pictures"]])
    rows = np.concatenate([found["cell_rows"], found["picture_rows"]])
    labels = found["labels"]
    if labels.ndim > 1:
        return images[:NUM_IMAGES], rows[:NUM_IMAGES], False
    right = labels[rows] == found["classes"][rows, 0]
    order = np.argsort(-found["probabilities"][rows, 0], kind="stable")
    wrong = order[~right[order]][: NUM_IMAGES // 2]
    others = np.flatnonzero(right)
    _, first = np.unique(labels[rows[others]], return_index=True)
    selected = [*wrong, *others[np.sort(first)]]
    # As many as there can be: eight images divide evenly among devices.
    selected += [*np.setdiff1d(np.arange(len(rows)), selected)]
    selected = selected[:NUM_IMAGES]
    return images[selected], rows[selected], True


def attention_arrays(
    model: VisionTransformer,
    overview: AttentionOverview,
    images: np.ndarray,
    *,
    titles: Sequence[str],
    classes: Any,
    probabilities: Any,
    labels: Any = None,
) -> dict[str, np.ndarray]:
    """Return what a page draws of the attention, small enough for a run folder.

    Args:
        model: the `VisionTransformer` of K classes.
        overview: `attention_overview` of the model and the M images.
        images: array (M, H, W, C) in [0, 255].
        titles: M names of the images.
        classes: integer array (M, T), the most probable first.
        probabilities: float array (M, T).
        labels: integer array (M,), the true classes; None if unknown.

    Returns:
        Dictionary of arrays: pictures (M, H, W, C), maps (L, M, 1 + N, R, Q)
        and rollout (M, R, Q), all uint8, of maps the first being the mean of
        the heads; distances (L, N); similarity, float16 (tiles, tiles, R, Q)
        of every similarity_step-th patch, of none where the model has no
        position embeddings; window, where the grid lies on the
        image (top, left, height, width); titles, classes, probabilities,
        num_classes; and labels where there are any.
    """
    grids = np.moveaxis(overview.grids, 2, 0)  # (N, L, M, R, Q)
    with_mean = np.concatenate([grids.mean(axis=0, keepdims=True), grids])
    step = -(-max(model.config.grid) // MAX_TILES)
    similarity = np.zeros((0, 0, *model.config.grid))
    if has_positions(model):
        similarity = position_similarity(model)[::step, ::step]
    arrays = {
        "pictures": np.clip(np.rint(images), 0, 255).astype("uint8"),
        "maps": np.moveaxis(_bytes(with_mean), 0, 2),  # (L, M, 1 + N, R, Q)
        "rollout": _bytes(overview.rollout),
        "distances": overview.distances,
        "similarity": similarity.astype("float16"),
        "similarity_step": np.array(step),
        "window": np.array(grid_window(model.config)),
        "titles": np.array(titles, str),
        "classes": np.asarray(classes),
        "probabilities": np.asarray(probabilities, "float32"),
        "num_classes": np.array(model.config.num_classes),
    }
    return arrays if labels is None else arrays | {"labels": np.array(labels)}


def _bytes(maps):
    """Maps (..., R, Q) as shares of their maximum, 255 for all of it."""
    peaks = maps.max(axis=(-2, -1), keepdims=True)
    shares = maps / np.maximum(peaks, np.finfo("float32").tiny)
    return np.rint(255 * shares).astype("uint8")


def attention_contents(
    arrays: dict[str, np.ndarray], names: Sequence[str]
) -> dict:
    """Return what the template of the attention fills in.

    Args:
        arrays: of `attention_arrays`.
        names: K names of the classes.

    Returns:
        Dict of "layers", "heads", "rows" and "columns", their numbers;
        "window" and "ratio" for CSS; and "images", each with its photograph,
        maps, rollout, truth and guesses.
    """
    layers, _, heads, rows, columns = arrays["maps"].shape
    height, width = arrays["pictures"].shape[1:3]
    top, left, tall, wide = arrays["window"].tolist()
    return {
        "layers": layers,
        "heads": heads - 1,
        "rows": rows,
        "columns": columns,
        "ratio": f"{width} / {height}",
        "window": (
            f"top: {top / height:.4%}; left: {left / width:.4%}; "
            f"height: {tall / height:.4%}; width: {wide / width:.4%}"
        ),
        "images": [
            _image(arrays, i, names) for i in range(len(arrays["pictures"]))
        ],
    }


def _image(arrays, i, names):
    maps = np.moveaxis(arrays["maps"][:, i], 1, 2)  # (L, R, 1 + N, Q)
    layers, rows, heads, columns = maps.shape
    shares = arrays["probabilities"][i].tolist()
    guesses = zip(arrays["classes"][i], shares, strict=True)
    truth = names[arrays["labels"][i]] if "labels" in arrays else None
    rollout = arrays["rollout"][i]
    row, column = np.unravel_index(rollout.argmax(), rollout.shape)
    return {
        "title": str(arrays["titles"][i]),
        "photo": pictures.photograph(arrays["pictures"][i], side=PHOTO_SIDE),
        "sprite": pictures.grey(maps.reshape(layers * rows, heads * columns)),
        "rollout": pictures.grey(rollout),
        "strongest": (int(row), int(column)),
        "truth": truth,
        "guesses": [(names[k], share) for k, share in guesses],
    }


def model_figures(arrays: dict[str, np.ndarray]) -> dict:
    """Return the figures of the attention distance and the position similarity.

    Args:
        arrays: of `attention_arrays`.

    Returns:
        Dict of "figures", each with "title", "drawing" (an SVG element) and
        "text"; "notes", what is left out and why; "distances", per layer the
        distances of its heads; "images", their number.
    """
    distances, similarity = arrays["distances"], arrays["similarity"]
    similarity = similarity.astype("float32")
    drawn = (
        (
            "Attention distance",
            plot_attention_distance(distances),
            _distances_in_words(distances),
        ),
    )
    if similarity.size:
        step = int(arrays["similarity_step"])
        words = _similarity_in_words(similarity, step)
        figure = plot_position_similarity(similarity)
        drawn = (*drawn, ("Position similarity", figure, words))
    return {
        "notes": [] if similarity.size else [f"The model {NO_POSITIONS}"],
        "figures": [
            {
                "title": title,
                "drawing": pictures.vector_graphic(
                    figure, title.lower().replace(" ", "-"), text
                ),
                "text": text,
            }
            for title, figure, text in drawn
        ],
        "distances": distances.tolist(),
        "images": len(arrays["pictures"]),
    }


def _distances_in_words(distances):
    first, last = distances[0], distances[-1]
    return (
        "Mean distance between a patch and what it attends to, a dot per "
        f"head. First layer: {first.min():.1f} to {first.max():.1f} pixels, "
        f"mean {first.mean():.1f}; last layer: {last.min():.1f} to "
        f"{last.max():.1f}, mean {last.mean():.1f}."
    )


def _similarity_in_words(similarity, step):
    rows, columns = similarity.shape[2:]
    every = (
        f"one patch in {step} rows and columns" if step > 1 else "each patch"
    )
    places = np.indices((rows, columns))  # (2, R, Q)
    drawn = places[:, ::step, ::step].reshape(2, -1, 1)
    steps = np.abs(drawn - places.reshape(2, 1, -1)).sum(axis=0)
    values = similarity.reshape(steps.shape)
    means = "; ".join(
        f"{name} {part.mean():.2f}"
        for name, part in (
            ("neighbours", values[steps == 1]),
            ("all others", values[steps > 1]),
        )
        if part.size
    )
    return (
        f"Cosine similarity of the position embedding of {every} with those "
        f"of all {rows}x{columns} patches, a map for each. Means: {means}."
    )
