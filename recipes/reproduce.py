"""Reproduces a table or figure of the paper, cell by cell.

    python recipes/reproduce.py --list
    python recipes/reproduce.py 5 --dry_run true
    python recipes/reproduce.py 6 --only [exaFLOPs]
    python recipes/reproduce.py 2 --only ["ViT-L/16 I21k",CIFAR-10] \
        --download true

"An Image Is Worth 16x16 Words" (arXiv:2010.11929). Each cell is the commands
of recipes/ that it takes: pre-training, the sweep of the learning rates,
fine-tuning with three seeds where the paper did three runs, evaluation. What
can be run with the data, the weights and the hardware at hand is run; of every
other cell it is said what is missing. The commands have run folders of their
own, so that the same command again goes on where it was stopped, and tables
share runs.

Below the folder of the runs a folder of the table then holds reproduce.csv,
reproduce.md and reproduce.png: paper against measured.
"""

import dataclasses
import os
import pathlib
import sys
from collections.abc import Callable

from paper import (
    CONTENTS,
    Place,
    Reproduction,
    Runner,
    cells_of,
    commands_of,
    devices_of,
    execute,
    markdown,
    rows_of,
    write_results,
)

from keras_vit.runs.script import fail, parse
from keras_vit.runs.smoke import SUFFIX

INTERRUPTED = 130  # The exit code of a program that Ctrl-C ended.
FLAGS = ("--list", "--dry_run")


def run(
    asked: Reproduction, execute: Callable[[list[str]], int] = execute
) -> list[dict]:
    """Runs what can be run of a table, and writes paper against measured.

    Args:
        asked: a `Reproduction`.
        execute: function of a script and its command line, the exit code.

    Returns:
        A row a cell.

    Raises:
        ValueError: when no cell is asked for.
        KeyboardInterrupt: after what was measured is written.
    """
    asked, place = complete(asked)
    cells = cells_of(asked.name, asked.only)
    runner = Runner(place, asked, execute)
    folder = pathlib.Path(place.root, asked.name)
    reasons = ["not run"] * len(cells)
    try:
        for index, cell in enumerate(cells):
            reasons[index] = runner.run(cell)
    finally:
        rows = rows_of(cells, reasons, place)
        write_results(folder, asked.name, rows)
    print(f"\n{markdown(rows)}\n")
    print(f"paper against measured: {folder}")
    return rows


def complete(asked: Reproduction) -> tuple[Reproduction, Place]:
    """Fills in what the machine has, and where things are.

    Args:
        asked: a `Reproduction`.

    Returns:
        A `Reproduction` whose hardware is not "auto", and the `Place`.
    """
    if asked.smoke:
        asked = dataclasses.replace(asked, hardware="cluster")
    elif asked.hardware == "auto":
        asked = dataclasses.replace(asked, hardware=devices_of())
    recipes = os.path.relpath(pathlib.Path(__file__).parent)
    root = asked.run_dir
    if asked.smoke:
        root = root.removesuffix(SUFFIX) + SUFFIX
    return asked, Place(recipes, root, asked.smoke)


def show(asked: Reproduction) -> None:
    """Prints the commands of each cell, and what it lacks.

    Args:
        asked: a `Reproduction`.
    """
    asked, place = complete(asked)
    cells = cells_of(asked.name, asked.only)
    reasons = Runner(place, asked).look(cells)
    for cell, reason in zip(cells, reasons, strict=True):
        paper = "no number in print" if cell.paper is None else cell.paper
        print(f"# {cell.row}, {cell.column}: {paper} {cell.unit}".rstrip())
        for text in filter(None, (cell.note, reason)):
            print(f"# {text}")
        print("\n".join(command.text(place) for command in cell.commands))


def listing(table: str | None) -> str:
    """The tables and figures, or all commands of one.

    Args:
        table: its name, or None.

    Returns:
        str.
    """
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


def given(arguments: list[str]) -> list[str]:
    """The words of the command line, with the table as an option.

    Args:
        arguments: "5 --list" as well as "--table 5 --list true".

    Returns:
        The latter.
    """
    words = list(arguments)
    if words and not words[0].startswith("-"):
        words.insert(0, "--table")
    for flag in FLAGS:
        if flag in words:
            after = words.index(flag) + 1
            if words[after : after + 1] not in (["true"], ["false"]):
                words.insert(after, "true")
    return words


def main(
    arguments: list[str] | None = None,
    execute: Callable[[list[str]], int] = execute,
) -> int:
    words = given(sys.argv[1:] if arguments is None else arguments)
    asked = parse(Reproduction, words, (__doc__ or "").splitlines()[0])
    try:
        if asked.list or asked.table is None:
            print(listing(asked.table))
        elif asked.dry_run:
            show(asked)
        else:
            run(asked, execute)
    except (OSError, ValueError) as error:
        fail(str(error))
    except KeyboardInterrupt:
        print("\nInterrupted; the same command continues.", file=sys.stderr)
        return INTERRUPTED
    return 0


if __name__ == "__main__":
    sys.exit(main())
