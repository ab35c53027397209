"""Reproduces a table or figure of the paper, cell by cell.

    python recipes/reproduce.py --list
    python recipes/reproduce.py 5 --dry_run true
    python recipes/reproduce.py 6 --only [exaFLOPs]
    python recipes/reproduce.py 2 --only ["ViT-L/16 I21k",CIFAR-10] \
        --download true

"An Image Is Worth 16x16 Words" (arXiv:2010.11929). Each cell takes commands of
recipes/: pre-training, the sweep of the learning rates, fine-tuning with three
seeds where the paper did three runs, evaluation. Those that the data, the
weights and the hardware at hand allow are run; of every other cell it reports
what is missing. The commands have run folders of their own, so the same command
continues where it was stopped, and tables share runs.

Below the folder of the runs a folder of the table then holds reproduce.csv,
reproduce.md and reproduce.png: paper against measured.
"""

import dataclasses
import os
import pathlib
import sys
from collections.abc import Callable, Sequence

from paper.cells import Cell, Place
from paper.reproduction import (
    CONTENTS,
    Reproduction,
    Runner,
    cells_of,
    devices_of,
    execute,
)

from keras_vit.analysis.plots import new_figure
from keras_vit.io.atomic_files import replacing, write_csv
from keras_vit.io.checks import EXTRAS, check_installed
from keras_vit.io.stores import check_local
from keras_vit.io.tables import markdown_table
from keras_vit.runs.reporting import save_figure
from keras_vit.runs.script import exit_code, parse
from keras_vit.runs.smoke import smoke_dir

NUMBERS = ("paper", "paper spread", "measured", "spread", "runs")
COLUMNS = ("row", "column", *NUMBERS, "unit", "state")
TWO_VERSIONS = (
    "# Numbers of {} of the paper. Its authors revised Table 2 between the "
    "first version (v1, October 2020) and the second (v2, ICLR 2021); "
    "--version v1 compares with the first."
)
MAX_REASON = 160
ROW_INCHES = 0.19
BLUE = "#0072B2"


def run(
    asked: Reproduction, execute: Callable[[list[str]], int] = execute
) -> list[dict]:
    """Run what can be run of a table, and write paper against measured.

    Args:
        asked: the options.
        execute: function of a script and its arguments, the exit code.

    Returns:
        A row per cell.

    Raises:
        ValueError: when no cell is asked for.
        KeyboardInterrupt: after the measured numbers are written.
    """
    asked, place = complete(asked)
    cells = asked.cells
    runner = Runner(place, asked, execute)
    name = f"{asked.name}_v1" if asked.version == "v1" else asked.name
    folder = pathlib.Path(place.root, name)
    reasons = ["not run"] * len(cells)
    try:
        for index, cell in enumerate(cells):
            reasons[index] = runner.run(cell)
    finally:
        rows = rows_of(cells, reasons, place)
        write_results(folder, name, rows)
    print(f"\n{markdown(rows)}\n")
    print(f"paper against measured: {folder}")
    return rows


def complete(asked: Reproduction) -> tuple[Reproduction, Place]:
    """Fill in the hardware of the machine, and where things are."""
    check_local("--run_dir", asked.run_dir)
    if asked.smoke:
        asked = dataclasses.replace(asked, hardware="cluster")
    elif asked.hardware == "auto":
        asked = dataclasses.replace(asked, hardware=devices_of())
    recipes = os.path.relpath(pathlib.Path(__file__).parent)
    root = smoke_dir(asked.run_dir) if asked.smoke else asked.run_dir
    return asked, Place(recipes, root, asked.smoke)


def show(asked: Reproduction) -> None:
    """Print the commands of each cell, and what it lacks."""
    asked, place = complete(asked)
    runner = Runner(place, asked)
    for cell in asked.cells:
        paper = "no number in print" if cell.paper is None else cell.paper
        print(f"# {cell.row}, {cell.column}: {paper} {cell.unit}".rstrip())
        for text in filter(None, (cell.note, runner.look(cell))):
            print(f"# {text}")
        print("\n".join(command.text(place) for command in cell.commands))


def listing(table: str | None) -> str:
    """List the tables and figures, or all commands of one."""
    place = Place(
        os.path.relpath(pathlib.Path(__file__).parent), "runs/reproduce"
    )
    if table is not None:
        return "\n".join(commands_of(cells_of(table), place))
    lines = []
    for name in CONTENTS:
        cells = cells_of(name)
        runnable = sum(bool(cell.commands or cell.compute) for cell in cells)
        commands = len(commands_of(cells, place))
        lines.append(
            f"{name:10} {len(cells):4} cells, {runnable:4} of them can be "
            f"computed or run, by {commands:4} commands"
        )
    return "\n".join(lines)


def commands_of(cells: Sequence[Cell], place: Place) -> list[str]:
    """All commands of cells, each once, in their order."""
    found = (command.text(place) for cell in cells for command in cell.commands)
    return list(dict.fromkeys(found))


def rows_of(
    cells: Sequence[Cell], reasons: Sequence[str], place: Place
) -> list[dict]:
    """Return a dictionary of `COLUMNS` and "commands" for each cell.

    Args:
        cells: the cells.
        reasons: why each has no result, "" where it has.
        place: the folders.
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
                "commands": "\n".join(commands_of([cell], place)),
            }
        )
    return rows


def write_results(folder: pathlib.Path, name: str, rows: list[dict]) -> None:
    """Write reproduce.csv, reproduce.md and reproduce.png of a table."""
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
    save_figure(plot(name, rows), folder / "reproduce.png")


def markdown(rows: list[dict]) -> str:
    """Return the table for people, without the commands."""
    cells = [[_text(row[name]) for name in COLUMNS] for row in rows]
    return "\n".join(markdown_table(COLUMNS, cells, NUMBERS))


def _text(value):
    if isinstance(value, float):
        return f"{value:.10g}" if value < 0.1 else f"{value:.2f}"
    text = "" if value is None else str(value)
    return text if len(text) <= MAX_REASON else f"{text[:MAX_REASON]}..."


def plot(name: str, rows: list[dict]):
    """Draw each number of the paper as a ring, each measured one as a dot."""
    shown = [
        row
        for row in rows
        if any(_is_number(row[column]) for column in ("paper", "measured"))
    ]
    units = dict.fromkeys(row["unit"] for row in shown) or {"": None}
    height = 1.6 + ROW_INCHES * max(len(shown), 3)
    figure = new_figure(7 * len(units), height)
    panels = figure.subplots(1, len(units), squeeze=False)[0]
    for axis, unit in zip(panels, units, strict=True):
        _panel(axis, [row for row in shown if row["unit"] == unit], unit)
    count = sum(row["measured"] is not None for row in rows)
    figure.suptitle(f"{name}: {count} of {len(rows)} cells measured")
    return figure


def _is_number(value):
    return isinstance(value, (int, float))


def _panel(axis, rows, unit):
    places = range(len(rows))
    for column, spread, style in (
        ("paper", "paper spread", {"fillstyle": "none", "color": "black"}),
        ("measured", "spread", {"markersize": 4, "color": BLUE}),
    ):
        values = [row[column] for row in rows]
        axis.errorbar(
            [x if _is_number(x) else float("nan") for x in values],
            places,
            xerr=[row[spread] or 0.0 for row in rows],
            linestyle="none",
            marker="o",
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


def given(arguments: list[str]) -> list[str]:
    """Rewrite "5 --list" as "--table 5 --list"."""
    named = arguments and not arguments[0].startswith("-")
    return ["--table", *arguments] if named else arguments


def main(
    arguments: list[str] | None = None,
    execute: Callable[[list[str]], int] = execute,
) -> int:
    words = given(sys.argv[1:] if arguments is None else arguments)
    asked = parse(Reproduction, words, __doc__)

    def work():
        if asked.list or asked.table is None:
            print(listing(asked.table))
            return
        check_installed("Reproducing the paper", *EXTRAS["recipes"])
        if asked.name == "table2":
            print(TWO_VERSIONS.format(asked.version))
        if asked.dry_run:
            show(asked)
        else:
            run(asked, execute)

    return exit_code(work, "the same command continues.")


if __name__ == "__main__":
    sys.exit(main())
