"""What became of the weights of a file."""

import dataclasses

__all__ = ["LoadReport"]


@dataclasses.dataclass(frozen=True)
class LoadReport:
    """What was loaded, resampled, dropped and left as it was.

    `print(report)` shows it as a table.

    Args:
        source: str, the file.
        format: str, its format.
        loaded: paths of the weights that were filled from the file.
        resampled: dict from path to how its weight was adapted; those paths
            are in `loaded` as well.
        dropped: names in the file that the model has no weight for.
        fresh: paths of weights that the file has nothing for; they were left
            as they were.
        notes: what was assumed, or differs from the file's family.
    """

    source: str
    format: str
    loaded: tuple = ()
    resampled: dict = dataclasses.field(default_factory=dict)
    dropped: tuple = ()
    fresh: tuple = ()
    notes: tuple = ()

    def __str__(self):
        lines = [
            f"{self.source} ({self.format})",
            f"loaded     {len(self.loaded)} weights",
            *(f"resampled  {x}: {y}" for x, y in self.resampled.items()),
            *(f"dropped    {name}" for name in self.dropped),
            *(f"fresh      {path}" for path in self.fresh),
            *(f"note       {note}" for note in self.notes),
        ]
        return "\n".join(lines)
