"""Reproduction of a table or figure: its options, and running its commands.

A field's docstring is its text in `python recipes/reproduce.py --help`.
"""

import dataclasses
import pathlib
import re
import subprocess
import sys
from collections.abc import Callable, Sequence

from pretrain import PretrainRecipe
from sweep import SweepRecipe
from vtab.config import Vtab
from vtab.tasks import TASKS

from keras_vit.checkpoints.public import catalog
from keras_vit.checkpoints.public.fetch import cached_path
from keras_vit.data.tfds import PRESETS, Preset, named_builder
from keras_vit.evaluation.config import Evaluation
from keras_vit.evaluation.few_shot import FewShot
from keras_vit.io.checks import DISTRIBUTIONS, check_at_least, check_choice
from keras_vit.runs.script import parse
from keras_vit.runtime.interrupts import INTERRUPTED, TERMINATED
from keras_vit.training import Recipe
from paper.cells import REFERENCE, Cell, Command, Place
from paper.figures import FIGURES
from paper.tables import TABLES, section_4_6
from paper.values_table import TABLE_2_V1

__all__ = [
    "CONTENTS",
    "RECORDS",
    "Reproduction",
    "Runner",
    "cells_of",
    "devices_of",
    "execute",
    "lacking",
    "parsed",
    "table_name",
]

# Name to the function of its cells.
CONTENTS = {**TABLES, **FIGURES, "section4.6": section_4_6}
SECTION = re.compile("section|sec[.]?|§|appendix")
# Names of section 4.6, without spaces and hyphens.
SECTION_4_6 = ("4.6", "b.1.2", "selfsupervision", "maskedpatches")
HARDWARE = ("cpu", "accelerator", "cluster")  # Each does what the former do.
# The record that each recipe reads its command line into.
RECORDS: dict[str, type] = {
    "pretrain": PretrainRecipe,
    "finetune": Recipe,
    "sweep": SweepRecipe,
    "evaluate": Evaluation,
    "few_shot": FewShot,
    "vtab": Vtab,
}
VERSIONS = ("v1", "v2")  # of the paper
WITHOUT_DOWNLOAD = ("digits",)
NOT_PUBLIC = {
    "data/jft300m": "JFT-300M is Google's own; put folders of images in its "
    "place",
    "imagenet21k": "ImageNet-21k needs a registration at image-net.org",
}
DEVICES = "from keras_vit.runtime.machine import devices as d; print(d())"


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
    """Folder for the results and for the runs of all tables, which share
    them."""

    smoke: bool = False
    """Whether to try every command out: two steps of tiny models on the
    digits, in folders with "-smoke" behind their names. Nothing is missing
    then, and no number means anything."""

    distribution: str = "auto"
    """Devices to use; passed on to the recipes."""

    list: bool = False
    """Whether to list the tables and figures, or all commands of one."""

    dry_run: bool = False
    """Whether to print the commands of each cell and run none."""

    only: tuple[str, ...] = ()
    """Names of rows and columns, as ["ViT-L/16 I21k",CIFAR-10]: only the cells
    that belong to all of them."""

    hardware: str = "auto"
    """What may be run: "cpu" only evaluations, "accelerator" fine-tuning as
    well, "cluster" pre-training as well; "auto" looks at this machine and
    never takes it for a cluster."""

    download: bool = False
    """Whether missing public data and weights are downloaded."""

    data_dir: str | None = None
    """Folder of the data of tensorflow-datasets."""

    version: str = "v2"
    """Version of the paper whose numbers stand beside the measured ones: the
    first, v1, has other accuracies in Table 2, which talks of 2020 show."""

    accumulation_steps: int | None = None
    """Parts of each batch of a training, where memory is short; null keeps
    the value of the configs."""

    def __post_init__(self):
        if self.table is not None:
            table_name(self.table)
        check_choice("version", self.version, VERSIONS)
        if self.version == "v1" and self.name != "table2":
            raise ValueError(
                "version v1 is known of table 2 alone. Received: "
                f"{self.name}. Leave --version out."
            )
        check_choice("hardware", self.hardware, ("auto", *HARDWARE))
        check_choice("distribution", self.distribution, DISTRIBUTIONS)
        check_at_least(self, 1, "accumulation_steps")

    @property
    def name(self) -> str:
        """The table's name in `CONTENTS`; the first where none was given."""
        return table_name(self.table or next(iter(CONTENTS)))

    @property
    def cells(self) -> Sequence[Cell]:
        """The cells that are asked for, with the numbers of the version."""
        found = cells_of(self.name, self.only)
        if self.version == "v1":
            found = [x for x in map(_as_in_v1, found) if x]
        if not found:
            raise ValueError(
                "None of these cells of Table 2 is known of v1. Received: "
                f"{', '.join(map(repr, self.only))}. Its rows are "
                f"{' and '.join(map(repr, TABLE_2_V1))}, its columns "
                "ImageNet, ImageNet ReaL and VTAB."
            )
        return found


def _as_in_v1(cell: Cell) -> Cell | None:
    """Return a cell with the first version's number; None where none is known.

    It prints no spread that is known here.
    """
    paper = TABLE_2_V1.get(cell.row, {}).get(cell.column)
    if paper is None:
        return None
    return dataclasses.replace(cell, paper=paper, spread=None)


def table_name(text: str) -> str:
    """Find the key of `CONTENTS` for a table in one of its spellings.

    Args:
        text: "5", "table 5", "Table5", "figure4", "4.6", "section 4.6" or
            "self-supervision".

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
    """Return the cells of a table or figure.

    Args:
        text: see `table_name`.
        only: names of rows and columns; a cell must belong to each of them.

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


def execute(words: list[str]) -> int:
    """Run a script with its arguments; return its exit code.

    In a process of its own, which frees the memory of an accelerator.

    Raises:
        KeyboardInterrupt: when Ctrl-C ended it.
    """
    code = subprocess.run([sys.executable, *words]).returncode
    if code in (INTERRUPTED, TERMINATED):
        raise KeyboardInterrupt
    return code


@dataclasses.dataclass
class Runner:
    """Runs commands, each once.

    Args:
        place: the folders.
        asked: a `Reproduction` whose hardware is not "auto".
        execute: function of a script and its arguments, the exit code.

    Attributes:
        reasons: run to why it has no result, "" if it has one.
    """

    place: Place
    asked: Reproduction
    execute: Callable[[list[str]], int] = execute
    reasons: dict[str, str] = dataclasses.field(default_factory=dict)

    def run(self, cell: Cell) -> str:
        """Run the unfinished commands of a cell.

        Returns:
            Why results are missing; "" where none is.
        """
        for command in cell.commands:
            if command.run not in self.reasons or not command.run:
                self.reasons[command.run] = self._run(command)
        return _joined(self.reasons[command.run] for command in cell.commands)

    def look(self, cell: Cell) -> str:
        """Say what a cell would lack, and run nothing."""
        return _joined(map(self._missing, cell.commands))

    def options(self, command: Command) -> list[str]:
        """Return the arguments that this reproduction adds to a command."""
        words = ["--distribution", self.asked.distribution]
        record = RECORDS[command.recipe]
        fields = {field.name for field in dataclasses.fields(record)}
        parts = self.asked.accumulation_steps
        if parts is not None and "training" in fields:
            words += ["--training.accumulation_steps", str(parts)]
        if not self.place.smoke:
            download = str(self.asked.download).lower()
            words += ["--data.download", download]
            if self.asked.data_dir is not None:
                words += ["--data.data_dir", self.asked.data_dir]
        return words

    def _missing(self, command):
        if command.recipe not in RECORDS:
            return "a command to give by hand"
        if command.is_finished(self.place):
            return ""
        return "; ".join(lacking(command, self.place, self.asked))

    def _run(self, command):
        if blocked := _joined(self.reasons.get(x, "") for x in command.after):
            return blocked
        if reason := self._missing(command):
            return reason
        if command.is_finished(self.place):
            return ""
        script = f"{self.place.recipes}/{command.recipe}.py"
        print(f"$ {command.text(self.place)}", flush=True)
        words = [*command.words(self.place), *self.options(command)]
        code = self.execute([script, *words])
        if code:
            return f"failed: {command.recipe} ended with exit code {code}"
        return ""


def _joined(reasons):
    return "; ".join(dict.fromkeys(filter(None, reasons)))


def parsed(command: Command, place: Place):
    """Parse the record, such as a `Recipe`, that a recipe makes of its command.

    Raises:
        SystemExit: when the parser refuses it.
    """
    return parse(RECORDS[command.recipe], command.words(place), "")


def lacking(command: Command, place: Place, asked: Reproduction) -> list[str]:
    """Names missing data, weights and hardware; none are for a trial.

    Args:
        command: a `Command` of a script.
        place: the folders.
        asked: a `Reproduction` whose hardware is not "auto".
    """
    if place.smoke:
        return []
    record = parsed(command, place)
    found = [
        _data(command, record.data, asked),
        _weights(command, record.model, asked),
    ]
    needed = command.hardware
    if HARDWARE.index(needed) > HARDWARE.index(asked.hardware):
        article = "an" if needed == "accelerator" else "a"
        found.append(
            f"hardware: {command.recipe} needs {article} {needed} "
            f"(--hardware {needed} runs it here)"
        )
    return [text for text in found if text]


def _data(command, data, asked):
    if data.folder is not None:
        if pathlib.Path(data.folder).is_dir():
            return ""
        about = NOT_PUBLIC.get(data.folder, "give --data.folder")
        return f"data: there is no folder {data.folder} ({about})"
    if command.recipe == "vtab":
        names = [task.builder for task in TASKS.values()]
        unknown = [_unprepared(name, asked) for name in names]
        # Tasks whose data is there are run without the others.
        return "" if "" in unknown else "data: no task of VTAB-1k is prepared"
    if data.name in WITHOUT_DOWNLOAD:
        return ""
    name = PRESETS.get(data.name, Preset(data.name)).tfds_name
    return _unprepared(name, asked)


def _unprepared(name, asked):
    try:
        builder = named_builder(name, asked.data_dir)
    except ValueError:
        about = NOT_PUBLIC.get(name, "tensorflow-datasets has no such data set")
        return f"data: {name} is not there ({about})"
    if builder.is_prepared():
        return ""
    if builder.MANUAL_DOWNLOAD_INSTRUCTIONS:
        return f"data: {name} is not prepared; it is downloaded by hand"
    if asked.download:
        return ""
    return f"data: {name} is not prepared (--download true gets it)"


def _weights(command, model, asked):
    if model.weights is None or any(
        value.startswith(REFERENCE)
        for option, value in command.options
        if option == "model.weights"
    ):
        return ""  # An earlier command makes them.
    entry = catalog.find(model.name, model.weights)
    if asked.download or cached_path(entry).is_file():
        return ""
    return f"weights: {entry.key} is not here (--download true gets it)"


def devices_of() -> str:
    """Return the hardware of this machine, "accelerator" or "cpu".

    Asked in a process of its own: a backend takes the memory of its devices,
    which the recipes need.
    """
    answer = subprocess.run(
        [sys.executable, "-c", DEVICES], capture_output=True, text=True
    )
    lines = answer.stdout.strip().splitlines()
    known = answer.returncode == 0 and lines
    return "accelerator" if known and "cpu" not in lines[-1] else "cpu"
