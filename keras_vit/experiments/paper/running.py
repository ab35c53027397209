"""Runs the commands of cells, each once, and says why one was not run."""

import dataclasses
import subprocess
import sys
from collections.abc import Callable, Iterable

from keras_vit.experiments.paper.cell import Cell
from keras_vit.experiments.paper.command import Command, Place
from keras_vit.experiments.paper.config import Reproduction
from keras_vit.experiments.paper.needs import RECORDS, lacking

__all__ = ["BY_HAND", "Runner", "execute"]

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
