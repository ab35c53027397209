"""Options of a run of VTAB-1k, and the recipe of each task.

A field's docstring is its text in `python recipes/vtab.py --help`.
"""

import dataclasses
import itertools
import pathlib
from typing import NamedTuple

from sweep import SweepConfig

from keras_vit.runs.smoke import DATA, smoke, smoke_dir
from keras_vit.training.config import (
    AugmentationConfig,
    DataConfig,
    ModelConfig,
    OptimizerConfig,
    PreprocessingConfig,
    Recipe,
    TrainingConfig,
)
from vtab.tasks import GROUPS, TASKS

__all__ = ["STAND_INS", "Setting", "Vtab", "smoke_vtab"]

# Data of a trial in place of each group: nothing is downloaded.
FRACTALS = "fractals/num_classes=4,images_per_class=12,seed="
STAND_INS = {
    "natural": DATA,
    "specialized": DataConfig(name=f"{FRACTALS}0"),
    "structured": DataConfig(name=f"{FRACTALS}1"),
}
SHARED = (
    "model",
    "preprocessing",
    "augmentation",
    "optimizer",
    "training",
    "distribution",
    "seed",
)


class Setting(NamedTuple):
    """What a sweep chooses, the same for all tasks.

    Args:
        learning_rate: of the training.
        steps: its length; None for that of training.epochs.
    """

    learning_rate: float
    steps: int | None

    def is_of(self, row: dict) -> bool:
        """Return whether a row of sweep.csv has this setting."""
        return (row["learning_rate"], row["steps"]) == self

    @property
    def folder(self) -> str:
        """Name of the folder of its runs."""
        return f"learning_rate_{self.learning_rate:g}_steps_{self.steps}"


@dataclasses.dataclass(frozen=True)
class Vtab:
    """One model on the tasks of VTAB-1k, each a run of its own.

    Raises:
        ValueError: for an unknown task, or a grid without a length in steps.

    Example:
        >>> Vtab(tasks=("specialized", "dtd")).names()
        ['dtd', 'camelyon', 'eurosat', 'resisc45', 'retinopathy']
    """

    data: DataConfig = DataConfig()
    """Where the data is; its name and its splits are those of each task."""

    model: ModelConfig = ModelConfig()
    preprocessing: PreprocessingConfig = PreprocessingConfig()
    augmentation: AugmentationConfig = AugmentationConfig()
    optimizer: OptimizerConfig = OptimizerConfig()
    training: TrainingConfig = TrainingConfig()
    sweep: SweepConfig = SweepConfig()

    tasks: tuple[str, ...] = ()
    """Tasks, or groups of tasks ("natural", "specialized", "structured"), to
    train on, as [dtd,structured]; none for all 19."""

    schedules: tuple[int, ...] = ()
    """Numbers of steps to choose from on the validation images of all tasks,
    each with each of sweep.learning_rates where there are several, as the
    paper did with two of both; none trains for training.steps."""

    distribution: str = "auto"
    """Devices to use, as in the other recipes."""

    seed: int = 0
    """Seed of the new classification layer, the order of the images and their
    augmentation."""

    run_dir: str = "runs/vtab"
    """Folder for the results, with a folder per task."""

    smoke: bool = False
    """Whether to try the recipe out: two steps of a tiny model of the same
    kind on digits and fractals in place of a task of each group, in the folder
    run_dir with "-smoke" behind it."""

    def __post_init__(self):
        unknown = [x for x in self.tasks if x not in (*TASKS, *GROUPS)]
        if unknown:
            raise ValueError(
                f"Unknown tasks: {', '.join(map(repr, unknown))}. Expected of "
                f"{', '.join((*GROUPS, *TASKS))}."
            )
        if self.schedules and (
            min(self.schedules) < 1 or self.training.steps is None
        ):
            raise ValueError(
                "schedules must be numbers of steps above 0, and need "
                "training.steps, which the warm-up is for. Received: "
                f"schedules={self.schedules}, training.steps="
                f"{self.training.steps}."
            )

    def names(self) -> list[str]:
        """Return the tasks to train on, in the order of the paper's Table 9."""
        wanted = self.tasks or GROUPS
        return [
            name
            for name, task in TASKS.items()
            if name in wanted or task.group in wanted
        ]

    def settings(self) -> list[Setting]:
        """List what a sweep compares; the only setting without a sweep."""
        rates = self.sweep.learning_rates
        if len(rates) < 2:
            rates = (self.optimizer.learning_rate,)
        steps = self.schedules or (self.training.steps,)
        return list(itertools.starmap(Setting, itertools.product(rates, steps)))

    def final(self, task: str, setting: Setting) -> Recipe:
        """Make the recipe of a result: 1000 training images, all test ones."""
        splits = {"train_split": "train800val200", "validation_split": None}
        return self._recipe(task, setting, splits, pathlib.Path(task))

    def trial(self, task: str, setting: Setting) -> Recipe:
        """Return the recipe of a choice: 800 images, and 200 to choose on."""
        splits = {"train_split": "train800", "validation_split": "val200"}
        folder = pathlib.Path("sweep", setting.folder, task)
        return self._recipe(task, setting, splits, folder)

    def _recipe(self, task, setting, splits, folder):
        splits = {"name": f"vtab/{task}", "test_split": "test", **splits}
        shared = {name: getattr(self, name) for name in SHARED}
        recipe = Recipe(**shared, data=dataclasses.replace(self.data, **splits))
        warmup, steps = recipe.optimizer.warmup_steps, recipe.training.steps
        training = dataclasses.replace(recipe.training, steps=setting.steps)
        if self.smoke:
            stand_in = STAND_INS[TASKS[task].group]
            recipe = dataclasses.replace(smoke(recipe), data=stand_in)
            warmup, training = recipe.optimizer.warmup_steps, recipe.training
        elif warmup is not None and setting.steps and steps:
            # The same share of the training.
            warmup = warmup * setting.steps // steps
        return dataclasses.replace(
            recipe,
            optimizer=dataclasses.replace(
                recipe.optimizer,
                learning_rate=setting.learning_rate,
                warmup_steps=warmup,
            ),
            training=training,
            run_dir=str(pathlib.Path(self.run_dir, folder)),
        )


def smoke_vtab(vtab: Vtab) -> Vtab:
    """Return a trial of a run, on the first of its tasks of each group.

    Example:
        >>> smoke_vtab(Vtab(tasks=("structured",))).tasks
        ('clevr_count',)
    """
    first = {TASKS[name].group: name for name in reversed(vtab.names())}
    return dataclasses.replace(
        vtab,
        tasks=tuple(reversed(first.values())),
        run_dir=smoke_dir(vtab.run_dir),
        smoke=True,
    )
