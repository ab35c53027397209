"""The tables and figures of the ViT paper: their cells, and what each takes."""

from paper.cells import Cell, Command, Place
from paper.contents import CONTENTS, Reproduction, cells_of
from paper.results import commands_of, markdown, rows_of, write_results
from paper.running import Runner, devices_of, execute

__all__ = [
    "CONTENTS",
    "Cell",
    "Command",
    "Place",
    "Reproduction",
    "Runner",
    "cells_of",
    "commands_of",
    "devices_of",
    "execute",
    "markdown",
    "rows_of",
    "write_results",
]
