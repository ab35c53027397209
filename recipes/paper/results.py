"""Paper against measured: the rows of a table, as CSV, Markdown and picture."""

import pathlib
from collections.abc import Sequence

from keras_vit.files import replacing, write_csv
from paper.cells import Cell, Place

__all__ = [
    "commands_of",
    "markdown",
    "rows_of",
    "write_results",
]

DOTS_PER_INCH = 120
COLUMNS = (
    "row",
    "column",
    "paper",
    "paper spread",
    "measured",
    "spread",
    "runs",
    "unit",
    "state",
)
MAX_REASON = 160
ROW_INCHES = 0.19
BLUE = "#0072B2"


def rows_of(
    cells: Sequence[Cell], reasons: Sequence[str], place: Place
) -> list[dict]:
    """What is known of each cell.

    Args:
        cells: `Cell`s.
        reasons: why each has no result, "" where it has.
        place: a `Place`.

    Returns:
        A dictionary of `COLUMNS` and "commands" each.
    """
    rows = []
    for cell, reason in zip(cells, reasons, strict=True):
        measured, spread, count = cell.measured(place)
        state = "measured" if measured is not None else reason
        if measured is None and not cell.commands:
            state = "not reproduced"
        rows.append(
            {
                "row": cell.row,
                "column": cell.column,
                "paper": cell.paper,
                "paper spread": cell.spread,
                "measured": measured,
                "spread": spread,
                "runs": count if cell.results else None,
                "unit": cell.unit,
                "state": "; ".join(filter(None, (state, cell.note))),
                "commands": "\n".join(
                    command.text(place) for command in cell.commands
                ),
            }
        )
    return rows


def commands_of(cells: Sequence[Cell], place: Place) -> list[str]:
    """All commands of cells, each once, in their order.

    Args:
        cells: `Cell`s.
        place: a `Place`.

    Returns:
        A list of str.
    """
    found = (command.text(place) for cell in cells for command in cell.commands)
    return list(dict.fromkeys(found))


def markdown(rows: list[dict]) -> str:
    """The table for people, without the commands.

    Args:
        rows: what `rows_of` returns.

    Returns:
        str.
    """
    rule = [
        "---" if name in ("row", "column", "unit", "state") else "--:"
        for name in COLUMNS
    ]
    lines = [list(COLUMNS), rule]
    lines += [[_cell(row[name]) for name in COLUMNS] for row in rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _cell(value):
    if isinstance(value, float):
        return f"{value:.10g}" if value < 0.1 else f"{value:.2f}"
    text = "" if value is None else str(value).replace("|", "\\|")
    return text if len(text) <= MAX_REASON else f"{text[:MAX_REASON]}..."


def write_results(folder: pathlib.Path, name: str, rows: list[dict]) -> None:
    """Writes reproduce.csv, reproduce.md and reproduce.png.

    Args:
        folder: where to; made where it is missing.
        name: of the table.
        rows: what `rows_of` returns.
    """
    folder.mkdir(parents=True, exist_ok=True)
    write_csv(folder / "reproduce.csv", rows)
    commands = dict.fromkeys(
        line for row in rows for line in row["commands"].splitlines()
    )
    text = f"# {name}: paper against measured\n\n{markdown(rows)}\n"
    if commands:
        lines = "\n".join(commands)
        text += f"\n## Commands\n\n```bash\n{lines}\n```\n"
    with replacing(folder / "reproduce.md") as path:
        path.write_text(text, encoding="utf-8")
    with replacing(folder / "reproduce.png") as path:
        plot(name, rows).savefig(path, dpi=DOTS_PER_INCH)


def plot(name: str, rows: list[dict]):
    """Each number of the paper as a ring, what was measured as a dot.

    Args:
        name: of the table.
        rows: what `rows_of` returns.

    Returns:
        matplotlib Figure.
    """
    from matplotlib.figure import Figure

    shown = [row for row in rows if _is_number(row)]
    units = dict.fromkeys(row["unit"] for row in shown) or {"": None}
    figure = Figure(
        figsize=(7 * len(units), 1.6 + ROW_INCHES * max(len(shown), 3)),
        layout="constrained",
    )
    panels = figure.subplots(1, len(units), squeeze=False)[0]
    for axis, unit in zip(panels, units, strict=True):
        _panel(axis, [row for row in shown if row["unit"] == unit], unit)
    count = sum(row["measured"] is not None for row in rows)
    figure.suptitle(f"{name}: {count} of {len(rows)} cells measured")
    return figure


def _is_number(row):
    values = (row["paper"], row["measured"])
    return any(isinstance(value, (int, float)) for value in values)


def _panel(axis, rows, unit):
    places = range(len(rows))
    for column, style in (
        ("paper", {"fillstyle": "none", "color": "black", "marker": "o"}),
        ("measured", {"color": BLUE, "marker": "o", "markersize": 4}),
    ):
        numbers = [
            row[column] if isinstance(row[column], (int, float)) else None
            for row in rows
        ]
        axis.errorbar(
            [float("nan") if x is None else x for x in numbers],
            places,
            xerr=[
                row["paper spread" if column == "paper" else "spread"] or 0.0
                for row in rows
            ],
            linestyle="none",
            label=column,
            **style,
        )
    names = [f"{row['row']}, {row['column']}" for row in rows]
    axis.set_yticks(places, names, fontsize=7, parse_math=False)
    axis.invert_yaxis()
    axis.set_xlabel(unit or "value")
    if unit not in ("%", ""):
        axis.set_xscale("log")
    axis.grid(axis="x", alpha=0.3)
    axis.spines[["top", "right"]].set_visible(False)
    axis.legend(frameon=False, fontsize=7)
