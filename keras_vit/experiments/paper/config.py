"""What of the paper is reproduced, and with what, as a typed record.

A field's docstring is its text in `python recipes/reproduce.py --help`.
"""

import dataclasses

from keras_vit.data.checks import check_at_least, check_choice
from keras_vit.experiments.paper.contents import CONTENTS, table_name
from keras_vit.training.distribution import DISTRIBUTIONS

__all__ = ["HARDWARE", "Reproduction"]

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
        check_choice(self, "hardware", ("auto", *HARDWARE))
        check_choice(self, "distribution", DISTRIBUTIONS)
        check_at_least(self, 1, "accumulation_steps")

    @property
    def name(self) -> str:
        """The table's name in `CONTENTS`; the first where none was given."""
        return table_name(self.table or next(iter(CONTENTS)))
