"""What of the paper is reproduced, and with what, as a typed record.

A field's docstring is its text in `python recipes/reproduce.py --help`.
"""

import dataclasses
import re

from keras_vit.checks import DISTRIBUTIONS, check_at_least, check_choice
from paper.cells import Cell
from paper.figures import FIGURES
from paper.tables import (
    section_4_6,
    table_1,
    table_2,
    table_3,
    table_4,
    table_5,
    table_6,
    table_7,
    table_8,
    table_9,
)

__all__ = [
    "CONTENTS",
    "HARDWARE",
    "Reproduction",
    "cells_of",
    "table_name",
]

HARDWARE = ("cpu", "accelerator", "cluster")  # Each does what the former do.


@dataclasses.dataclass(frozen=True)
class Reproduction:
    """One table, figure or section of the paper.

    Raises:
        ValueError: for an unknown table.

    Example:
        >>> Reproduction(table="Figure 4").name
        'figure4'
    """

    table: str | None = None
    """Table, figure or section, as 5, figure4 or 4.6; none lists them."""

    run_dir: str = "runs/reproduce"
    """Folder that the results are written to; the runs of all tables are in
    it, since tables share them."""

    smoke: bool = False
    """Whether to try every command out: two steps of tiny models on the
    digits, in folders with "-smoke" behind their names. Nothing is missing
    then, and no number means anything."""

    distribution: str = "auto"
    """Where the recipes compute; passed on to them."""

    list: bool = False
    """Whether to list the tables and figures, or all commands of one."""

    dry_run: bool = False
    """Whether to print the commands of each cell and run none."""

    only: tuple[str, ...] = ()
    """Names of rows and columns, as ["ViT-L/16 I21k",CIFAR-10]; cells of all
    of them are left."""

    hardware: str = "auto"
    """What may be run: "cpu" only evaluations, "accelerator" fine-tuning as
    well, "cluster" pre-training as well; "auto" looks at this machine and
    never takes it for a cluster."""

    download: bool = False
    """Whether public data and weights that are not there are downloaded."""

    data_dir: str | None = None
    """Where tensorflow-datasets keeps its data."""

    accumulation_steps: int | None = None
    """Parts of each batch of a training, where memory is short; null is as
    the configs have it."""

    def __post_init__(self):
        if self.table is not None:
            table_name(self.table)
        check_choice("hardware", self.hardware, ("auto", *HARDWARE))
        check_choice("distribution", self.distribution, DISTRIBUTIONS)
        check_at_least(self, 1, "accumulation_steps")

    @property
    def name(self) -> str:
        """The table's name in `CONTENTS`; the first where none was given."""
        return table_name(self.table or next(iter(CONTENTS)))


# Name to what it is called and the function of its cells.
CONTENTS = {
    "table1": table_1,
    "table2": table_2,
    "table3": table_3,
    "table4": table_4,
    "table5": table_5,
    "table6": table_6,
    "table7": table_7,
    "table8": table_8,
    "table9": table_9,
    **FIGURES,
    "section4.6": section_4_6,
}
SECTION = re.compile("section|sec[.]?|§|appendix")
# What section 4.6 is called, without spaces and hyphens.
SECTION_4_6 = ("4.6", "b.1.2", "selfsupervision", "maskedpatches")


def table_name(text: str) -> str:
    """The name of a table in one of the ways to write it.

    Args:
        text: "5", "table 5", "Table5", "figure4", "4.6", "section 4.6" or
            "self-supervision".

    Returns:
        A key of `CONTENTS`.

    Raises:
        ValueError: when there is none.

    Example:
        >>> table_name("Figure 4")
        'figure4'
    """
    words = re.sub(r"[\s_-]+", "", text.lower())
    if SECTION.sub("", words, count=1) in SECTION_4_6:
        return "section4.6"
    name = words.replace(".", "").replace("fig", "figure")
    name = name.replace("figureure", "figure")
    name = f"table{name}" if name.isdecimal() else name
    if name not in CONTENTS:
        raise ValueError(
            f"Unknown table, figure or section: {text!r}. Expected one of "
            f"{', '.join(CONTENTS)}."
        )
    return name


def cells_of(text: str, only: tuple[str, ...] = ()) -> list[Cell]:
    """The cells of a table or figure.

    Args:
        text: see `table_name`.
        only: names of rows and columns; a cell has to be of each of them.

    Returns:
        A list of `Cell`.

    Raises:
        ValueError: for an unknown table, or when no cell is left.

    Example:
        >>> [cell] = cells_of("2", only=("ViT-L/16 I21k", "CIFAR-10"))
        >>> cell.paper, cell.spread
        (99.15, 0.03)
    """
    cells = CONTENTS[table_name(text)]()
    left = [x for x in cells if {*only} <= {x.row, x.column}]
    if not left:
        names = dict.fromkeys(
            name for cell in cells for name in (cell.row, cell.column)
        )
        raise ValueError(
            f"No cell of {table_name(text)} is of all of "
            f"{', '.join(map(repr, only))}. Its rows and columns are "
            f"{', '.join(map(repr, names))}."
        )
    return left
