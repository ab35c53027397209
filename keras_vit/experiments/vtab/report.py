"""The table of VTAB-1k as vtab.csv, vtab.md and vtab.png."""

import csv
import pathlib

from keras_vit.data.vtab_table import GROUPS, PAPER
from keras_vit.files import replacing

__all__ = ["markdown", "write_report"]

DOTS_PER_INCH = 150
COLOURS = {
    "natural": "#D55E00",
    "specialized": "#009E73",
    "structured": "#0072B2",
    "all": "#444444",
}
MARKERS = dict(zip(PAPER, ("^", "s", "D"), strict=True))
SLICES = (
    "The slices are those of google-research/task_adaptation (d7630d3); where "
    "the data of tensorflow-datasets is of another version than it asks for, "
    "the note says so. The columns of ViT-H/14 and ViT-L/16 are Table 9 of "
    "arXiv:2010.11929, their means those of the same tasks."
)


def write_report(folder: pathlib.Path, rows: list[dict], title: str) -> None:
    """Writes the three files.

    Args:
        folder: where to.
        rows: what `table` returns.
        title: what was measured, one line.

    Example:
        >>> write_report(folder, table(results, missing), "ViT_L16")
    """
    with (
        replacing(folder / "vtab.csv") as path,
        path.open("w", newline="", encoding="utf-8") as file,
    ):
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    with replacing(folder / "vtab.md") as path:
        path.write_text(markdown(rows, title), encoding="utf-8")
    with replacing(folder / "vtab.png") as path:
        plot(rows, title).savefig(path, dpi=DOTS_PER_INCH)


def markdown(rows: list[dict], title: str) -> str:
    """The table for people.

    Args:
        rows: what `table` returns.
        title: what was measured, one line.

    Returns:
        str.

    Example:
        >>> markdown(table({}, {}), "ViT_L16").splitlines()[0]
        '# VTAB-1k: ViT_L16'
    """
    columns = list(rows[0])
    rule = ["--:" if _is_number(name) else "---" for name in columns]
    lines = [columns, rule, *(map(_cell, row.values()) for row in rows)]
    body = "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
    return f"# VTAB-1k: {title}\n\n{body}\n\n{SLICES}\n"


def _is_number(column):
    return column in ("images", "accuracy", "difference", *PAPER)


def _cell(value):
    if isinstance(value, float):
        return f"{value:.1f}"
    return "" if value is None else str(value).replace("|", "\\|")


def plot(rows: list[dict], title: str):
    """Each task and mean: a bar for what was measured, the paper's as marks.

    Args:
        rows: what `table` returns.
        title: what was measured, one line.

    Returns:
        matplotlib Figure.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 4.6), layout="constrained")
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
