"""What of the paper can be asked for, in the paper's order."""

import re

from keras_vit.experiments.paper.ablations import table_7, table_8
from keras_vit.experiments.paper.cell import Cell
from keras_vit.experiments.paper.figures import FIGURES
from keras_vit.experiments.paper.self_supervision import section_4_6
from keras_vit.experiments.paper.settings import table_1, table_3, table_4
from keras_vit.experiments.paper.tables import (
    table_2,
    table_5,
    table_6,
    table_9,
)

__all__ = ["CONTENTS", "cells_of", "table_name"]

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
