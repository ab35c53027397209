"""The tables and figures of the ViT paper: their cells, and what each takes."""

from keras_vit.experiments.paper.cell import Cell
from keras_vit.experiments.paper.command import Command, Place
from keras_vit.experiments.paper.config import Reproduction
from keras_vit.experiments.paper.contents import CONTENTS, cells_of
from keras_vit.experiments.paper.needs import devices_of
from keras_vit.experiments.paper.results import (
    commands_of,
    markdown,
    rows_of,
    write_results,
)
from keras_vit.experiments.paper.running import Runner, execute

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
