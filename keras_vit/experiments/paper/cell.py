"""One cell of a table or point of a figure: the paper's number, and ours."""

import dataclasses
import statistics
from collections.abc import Callable

from keras_vit.experiments.paper.command import Command, Place

__all__ = ["Cell", "Value"]

Value = float | str | None

# What a key of a result says, by the part before its colon.
READ: dict[str, Callable[[dict, str], float | None]] = {
    "top1": lambda result, _: 100 * result["top1"],
    "tasks": lambda result, name: result["tasks"].get(name),
    "groups": lambda result, name: result["groups"].get(name),
    "shots": lambda result, shots: next(
        (
            100 * row["mean"]
            for row in result["summary"]
            if row["shots"] == int(shots)
        ),
        None,
    ),
}


@dataclasses.dataclass(frozen=True)
class Cell:
    """A number of the paper and what it takes to get it.

    Args:
        table: "table2" or "figure4".
        row: its row's name.
        column: its column's name.
        paper: what the paper prints; None where it prints no number.
        spread: the standard deviation that it prints, or None.
        unit: of both, "%" or a word.
        commands: `Command`s in their order.
        results: (run, key) of the results that the number is the mean of: the
            key of `READ` and, behind a colon, what it asks for.
        compute: function of a `Place` that finds the number without a run.
        note: what a reader has to know, or why there is no command.
    """

    table: str
    row: str
    column: str
    paper: Value
    spread: float | None = None
    unit: str = "%"
    commands: tuple[Command, ...] = ()
    results: tuple[tuple[str, str], ...] = ()
    compute: Callable[[Place], Value] | None = None
    note: str = ""

    def measured(self, place: Place) -> tuple[Value, float | None, int]:
        """What the finished runs have found.

        Args:
            place: a `Place`.

        Returns:
            The mean, None where a result is missing; the standard deviation
            over three seeds or more (that of the sample), or None; how many
            results there are.
        """
        if self.compute is not None:
            return self.compute(place), None, 1
        found = [_read(place.result(run), key) for run, key in self.results]
        known = [value for value in found if value is not None]
        if not known or len(known) < len(found):
            return None, None, len(known)
        spread = None
        if self.spread is not None and len(known) > 1:
            spread = statistics.stdev(known)
        return statistics.fmean(known), spread, len(known)


def _read(result, key):
    kind, _, name = key.partition(":")
    return None if result is None else READ[kind](result, name)
