"""What a command needs and this machine does not have, in words."""

import dataclasses
import pathlib
import subprocess
import sys
from collections.abc import Callable, Iterable

from masked_patch.config import MaskedPatchRecipe
from sweep import SweepRecipe
from vtab.config import Vtab

from keras_vit.checkpoints.public import catalog
from keras_vit.checkpoints.public.fetch import cached_path
from keras_vit.data.tfds import PRESETS, Preset, named_builder
from keras_vit.data.vtab_table import TASKS
from keras_vit.evaluation.config import Evaluation
from keras_vit.evaluation.few_shot import FewShot
from keras_vit.runs.script import parse
from keras_vit.training import Recipe
from paper.cells import REFERENCE, Cell, Command, Place
from paper.contents import HARDWARE, Reproduction

__all__ = [
    "BY_HAND",
    "RECORDS",
    "Runner",
    "devices_of",
    "execute",
    "lacking",
    "parsed",
]

# What each recipe reads its command line into.
RECORDS: dict[str, type] = {
    "pretrain": Recipe,
    "masked_patch": MaskedPatchRecipe,
    "finetune": Recipe,
    "sweep": SweepRecipe,
    "evaluate": Evaluation,
    "few_shot": FewShot,
    "vtab": Vtab,
}
WITHOUT_DOWNLOAD = ("digits",)
NOT_PUBLIC = {
    "data/jft300m": "JFT-300M is Google's own; put folders of images in its "
    "place",
    "imagenet21k": "ImageNet-21k needs a registration at image-net.org",
}
DEVICES = "from keras_vit.training.distribution import devices as d; print(d())"


def parsed(command: Command, place: Place):
    """The command line of a recipe, read by the recipe's own parser.

    Args:
        command: a `Command` of a script.
        place: a `Place`.

    Returns:
        The record, such as a `Recipe`.

    Raises:
        SystemExit: when the parser refuses it.
    """
    return parse(RECORDS[command.recipe], command.words(place), "")


def lacking(command: Command, place: Place, asked: Reproduction) -> list[str]:
    """Names the data, the weights and the hardware that are missing.

    Args:
        command: a `Command` of a script.
        place: a `Place`.
        asked: a `Reproduction` whose hardware is not "auto".

    Returns:
        A text each; none in a trial.
    """
    if place.smoke:
        return []
    record = parsed(command, place)
    found = [
        _data(command, record.data, asked),
        _weights(command, record.model, asked),
    ]
    if HARDWARE.index(command.hardware) > HARDWARE.index(asked.hardware):
        found.append(
            f"hardware: {command.recipe} needs "
            f"{'an' if command.hardware[0] == 'a' else 'a'} "
            f"{command.hardware} (--hardware {command.hardware} runs it here)"
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
        return ""  # What an earlier command makes.
    entry = catalog.find(model.name, model.weights)
    if asked.download or cached_path(entry).is_file():
        return ""
    return f"weights: {entry.key} is not here (--download true gets it)"


def devices_of() -> str:
    """What this machine has, asked in a process of its own.

    A backend that is asked takes the memory of its devices, which the recipes
    are to have.

    Returns:
        "accelerator" or "cpu".
    """
    answer = subprocess.run(
        [sys.executable, "-c", DEVICES], capture_output=True, text=True
    )
    lines = answer.stdout.strip().splitlines()
    known = answer.returncode == 0 and lines
    return "accelerator" if known and "cpu" not in lines[-1] else "cpu"


BY_HAND = "a command to give by hand"
INTERRUPTED = 130


def execute(words: list[str]) -> int:
    """Runs a script of recipes in a process of its own.

    Memory of an accelerator that one training took is free for the next.

    Args:
        words: the script and its command line.

    Returns:
        Its exit code.

    Raises:
        KeyboardInterrupt: when Ctrl-C ended it.
    """
    code = subprocess.run([sys.executable, *words]).returncode
    if code == INTERRUPTED:
        raise KeyboardInterrupt
    return code


@dataclasses.dataclass
class Runner:
    """Commands that are run, with what is known of each.

    Args:
        place: a `Place`.
        asked: a `Reproduction` whose hardware is not "auto".
        execute: function of a script and its command line, the exit code.

    Attributes:
        reasons: run to why it has no result, "" of those that have one.
    """

    place: Place
    asked: Reproduction
    execute: Callable[[list[str]], int] = execute
    reasons: dict[str, str] = dataclasses.field(default_factory=dict)

    def run(self, cell: Cell) -> str:
        """Runs what a cell takes and is not there.

        Args:
            cell: a `Cell`.

        Returns:
            Why it has no result of all its runs; "" where it has.
        """
        reasons = [self._reason(command) for command in cell.commands]
        return "; ".join(dict.fromkeys(filter(None, reasons)))

    def look(self, cells: Iterable[Cell]) -> list[str]:
        """Says what each cell would lack, and runs nothing.

        Args:
            cells: `Cell`s.

        Returns:
            A text a cell, "" where nothing is missing.
        """
        found = []
        for cell in cells:
            reasons = [self._missing(command) for command in cell.commands]
            found.append("; ".join(dict.fromkeys(filter(None, reasons))))
        return found

    def options(self, command: Command) -> list[str]:
        """What this reproduction adds to a command line.

        Args:
            command: a `Command`.

        Returns:
            A list of str.
        """
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
            return BY_HAND
        if command.is_finished(self.place):
            return ""
        found = lacking(command, self.place, self.asked)
        return "; ".join(found)

    def _reason(self, command):
        if command.run not in self.reasons or not command.run:
            self.reasons[command.run] = self._run(command)
        return self.reasons[command.run]

    def _run(self, command):
        blocked = [self.reasons.get(run, "") for run in command.after]
        if any(blocked):
            return "; ".join(dict.fromkeys(filter(None, blocked)))
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
