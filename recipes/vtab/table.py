"""The table of VTAB-1k: measured accuracies beside the paper's Table 9.

A row is a dictionary with a key per column. The mean of a group is that of the
tasks that were measured, and the paper's mean beside it is of the same tasks.
"""

import pathlib
from collections.abc import Mapping

import numpy as np

from keras_vit.analysis.plots import new_figure
from keras_vit.io.atomic_files import replacing, write_csv
from keras_vit.io.tables import markdown_table
from keras_vit.runs.reporting import save_figure
from vtab.tasks import GROUPS, PAPER, TASKS

__all__ = [
    "NO_RESULT",
    "PAPER_MODELS",
    "group_means",
    "markdown",
    "plot",
    "table",
    "write_report",
]

NO_RESULT = "not asked for"
ALL = "all"
TRIAL = "a trial and no result of VTAB"
NUMBERS = ("images", "accuracy", "difference", *PAPER)
# The row of the paper for the model and weights that are public.
PAPER_MODELS = {("ViT_L16", "imagenet21k"): "ViT-L/16 I21k"}
COLOURS = {
    "natural": "#D55E00",
    "specialized": "#009E73",
    "structured": "#0072B2",
    "all": "#444444",
}
MARKERS = dict(zip(PAPER, ("^", "s", "D"), strict=True))
SLICES = (
    "The slices are those of google-research/task_adaptation (d7630d3); where "
    "the data of tensorflow-datasets has another version than it asks for, the "
    "note says so. The columns of ViT-H/14 and ViT-L/16 are Table 9 of "
    "arXiv:2010.11929, their means those of the same tasks."
)


def table(
    results: Mapping[str, dict],
    missing: Mapping[str, str],
    *,
    model: str | None = None,
    stand_ins: Mapping[str, str] | None = None,
) -> list[dict]:
    """Return a row for each of the 19 tasks, then one for each mean.

    Args:
        results: task to its result, with top1 and num_examples.
        missing: task to the reason why it has no result.
        model: key of `PAPER` of the model that was measured, or None.
        stand_ins: group to the data that replaces its task in a trial.

    Returns:
        Dictionaries of group, task, data, images, accuracy in per cent, an
        accuracy for each model of the paper, difference from its `model`, and
        note.

    Example:
        >>> rows = table({"dtd": {"top1": 0.5, "num_examples": 1880}}, {})
        >>> rows[2]["accuracy"], rows[2]["ViT-L/16 I21k"]
        (50.0, 74.1)
    """
    stand_ins = stand_ins or {}
    rows = [
        _row(index, task, results, missing, stand_ins)
        for index, task in enumerate(TASKS)
    ]
    note = TRIAL if stand_ins else "of the tasks that were measured"
    rows += [_mean(rows, group, note) for group in (*GROUPS, ALL)]
    for row in rows:
        if model and not stand_ins and row["accuracy"] is not None:
            row["difference"] = row["accuracy"] - row[model]
    return rows


def _row(index, task, results, missing, stand_ins):
    definition, result = TASKS[task], results.get(task)
    data = stand_ins.get(definition.group) or definition.builder
    notes = [definition.drift]
    if result is None:
        notes.insert(0, missing.get(task, NO_RESULT))
    elif stand_ins:
        notes = [f"{data} in its place: {TRIAL}"]
    return {
        "group": definition.group,
        "task": task,
        "data": data,
        "images": result and result["num_examples"],
        "accuracy": result and 100 * result["top1"],
        **{name: PAPER[name][index] for name in PAPER},
        "difference": None,
        "note": "; ".join(filter(None, notes)),
    }


def _mean(rows, group, note):
    """Of the tasks that have a result; of all of the paper's if none has."""
    members = [row for row in rows if group in (row["group"], ALL)]
    known = [row for row in members if row["accuracy"] is not None]
    part = known or members
    count = "" if len(known) == len(members) else f"{len(known)} of "
    return {
        "group": group,
        "task": "mean",
        "data": f"{count}{len(members)} tasks",
        "images": None,
        "accuracy": _average(known, "accuracy") if known else None,
        **{name: _average(part, name) for name in PAPER},
        "difference": None,
        "note": note if count and known else "",
    }


def _average(rows, column):
    return float(np.mean([row[column] for row in rows]))


def group_means(rows: list[dict]) -> dict[str, float | None]:
    """Extract the measured means from the rows of a table.

    Returns:
        Group, or "all", to the mean accuracy in per cent; None for a group
        that is not complete.

    Example:
        >>> group_means(table({}, {}))["all"] is None
        True
    """
    return {
        row["group"]: row["accuracy"] if " of " not in row["data"] else None
        for row in rows
        if row["task"] == "mean"
    }


def write_report(folder: pathlib.Path, rows: list[dict], title: str) -> None:
    """Write vtab.csv, vtab.md and vtab.png.

    Args:
        folder: where to.
        rows: what `table` returns.
        title: what was measured, one line.
    """
    write_csv(folder / "vtab.csv", rows)
    with replacing(folder / "vtab.md") as path:
        path.write_text(markdown(rows, title), encoding="utf-8")
    save_figure(plot(rows, title), folder / "vtab.png")


def markdown(rows: list[dict], title: str) -> str:
    """Format the table for people.

    Example:
        >>> markdown(table({}, {}), "ViT_L16").splitlines()[0]
        '# VTAB-1k: ViT_L16'
    """
    cells = [
        [f"{x:.1f}" if isinstance(x, float) else x for x in row.values()]
        for row in rows
    ]
    body = "\n".join(markdown_table(list(rows[0]), cells, NUMBERS))
    return f"# VTAB-1k: {title}\n\n{body}\n\n{SLICES}\n"


def plot(rows: list[dict], title: str):
    """Draw a bar for each task and mean, and the paper's as marks."""
    figure = new_figure(10, 4.6)
    axis = figure.subplots()
    places = range(len(rows))
    axis.bar(
        places,
        [row["accuracy"] or 0.0 for row in rows],
        color=[COLOURS[row["group"]] for row in rows],
        alpha=0.65,
        label="measured",
    )
    for name, marker in MARKERS.items():
        axis.plot(
            places,
            [row[name] for row in rows],
            marker,
            markersize=4,
            color="black",
            fillstyle="none",
            label=f"paper, {name}",
        )
    names = [
        f"mean {row['group']}" if row["task"] == "mean" else row["task"]
        for row in rows
    ]
    axis.set_xticks(places, names, rotation=60, ha="right", fontsize=8)
    for label, row in zip(axis.get_xticklabels(), rows, strict=True):
        label.set_color(COLOURS[row["group"]])
    axis.set(ylabel="test accuracy, %", ylim=(0, 102))
    axis.set_title(f"VTAB-1k ({', '.join(GROUPS)}): {title}", parse_math=False)
    axis.spines[["top", "right"]].set_visible(False)
    axis.legend(frameon=False, ncols=4, fontsize=8, loc="lower left")
    axis.grid(axis="y", alpha=0.3)
    return figure
