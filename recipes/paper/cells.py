"""Cells of the paper's tables, and the commands that reproduce them.

A name in the paper, "ViT-L/16", is a folder "ViT-L16" with all of its runs, so
that tables share the runs that they have in common.
"""

import dataclasses
import json
import pathlib
import shlex
import statistics
from collections.abc import Callable

from keras_vit.io.run_folder import RESULT
from keras_vit.runs.smoke import SUFFIX
from keras_vit.runtime.shipped_recipes import INSTALLED

__all__ = [
    "Cell",
    "Command",
    "Place",
    "Source",
    "few_shot",
    "fine_tuning",
    "pre_trained",
    "real_labels",
    "run_cell",
    "trained_source",
    "vtab_runs",
]

REFERENCE = "@"  # Begins an option's value that is the folder of another run.
BY_HAND = ("keras-vit ", "python ")  # Begin commands that are no recipe.
Options = tuple[tuple[str, str], ...]
Value = float | str | None


@dataclasses.dataclass(frozen=True)
class Place:
    """Folders of the recipes and of their results.

    Args:
        recipes: folder of the scripts.
        root: folder of the run folders.
        smoke: whether each recipe is only tried out.
    """

    recipes: str
    root: str
    smoke: bool = False

    @property
    def installed(self) -> bool:
        """Whether the recipes are commands of an installed package."""
        return pathlib.Path(self.recipes).resolve() == INSTALLED

    def folder(self, run: str) -> pathlib.Path:
        """Return the folder of a run, or the path of something in it."""
        return pathlib.Path(self.root, run + SUFFIX if self.smoke else run)

    def result(self, run: str) -> dict | None:
        """Return the result.json of a run, None if it is not finished."""
        path = self.folder(run) / RESULT
        return json.loads(path.read_text()) if path.is_file() else None


@dataclasses.dataclass(frozen=True)
class Command:
    """A call of a recipe.

    Args:
        run: name of its run folder.
        recipe: name of the script, or a command such as "keras-vit explain",
            which `reproduce.py` shows and does not run.
        config: path below recipes/configs without its suffix, or "".
        options: pairs of an option without its dashes and a value, in which
            "@run" is the folder of another run.
        rate_of: run of a sweep whose best learning rate this one takes, or "".
        hardware: "cpu", "accelerator" or "cluster", the least that makes sense.

    Example:
        >>> command = Command("a", "finetune", options=(("seed", "1"),))
        >>> command.text(Place("recipes", "runs"))
        'python recipes/finetune.py --seed 1 --run_dir runs/a'
    """

    run: str
    recipe: str
    config: str = ""
    options: Options = ()
    rate_of: str = ""
    hardware: str = "accelerator"

    @property
    def after(self) -> tuple[str, ...]:
        """Runs whose result or weights this one needs."""
        weights = (
            value[1:].removesuffix("/final")
            for _, value in self.options
            if value.startswith(REFERENCE)
        )
        return tuple(filter(None, (*weights, self.rate_of)))

    def words(self, place: Place) -> list[str]:
        """Return the arguments of the script.

        The learning rate of a sweep that is not finished is left out: the
        config has one of its own.
        """
        words = []
        if self.config:
            config = pathlib.Path(place.recipes, "configs", self.config)
            path = self.config if place.installed else f"{config}.yaml"
            words += ["--config", path]
        for option, value in self.options:
            words += [f"--{option}", _value(value, place)]
        best = place.result(self.rate_of) if self.rate_of else None
        if best is not None:
            rate = f"{best['learning_rate']:g}"
            words += ["--optimizer.learning_rate", rate]
        if place.smoke:
            words += ["--smoke"]
        return [*words, "--run_dir", str(place.folder(self.run))]

    def text(self, place: Place) -> str:
        """Return the line that a person types."""
        if self.recipe.startswith(BY_HAND):
            values = [_value(value, place) for _, value in self.options]
            return f"{self.recipe} {shlex.join(values)}"
        script = pathlib.Path(place.recipes, f"{self.recipe}.py")
        program = ["python", str(script)]
        if place.installed:
            program = ["keras-vit", self.recipe.replace("_", "-")]
        text = shlex.join([*program, *self.words(place)])
        if self.rate_of and place.result(self.rate_of) is None:
            text += "  # with the learning rate that the sweep chooses"
        return text

    def is_finished(self, place: Place) -> bool:
        """Return whether it has a result with nothing left out."""
        result = place.result(self.run)
        return result is not None and not result.get("missing")


def _value(value, place):
    """Return an option's value, with the folder of a run for its name."""
    if value.startswith(REFERENCE):
        return str(place.folder(value.removeprefix(REFERENCE)))
    return value


# The number in a result, by the part of a key before its colon.
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
    """A number of the paper and the commands that reproduce it.

    Args:
        table: "table2" or "figure4".
        row: its row's name.
        column: its column's name.
        paper: the printed value; None where the paper prints no number.
        spread: the standard deviation that it prints, or None.
        unit: of both, "%" or a word.
        commands: `Command`s in their order.
        results: (run, key) of the results whose mean is the number: a key of
            `READ` and, after a colon, its argument.
        compute: function of a `Place` that computes the number without a run.
        note: a remark, or why there is no command.
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
        """Read the results of the finished runs.

        Returns:
            The mean, None where a result is missing; the standard deviation
            of the sample where the paper prints one and there are several
            results, or None; the number of results.
        """
        if self.compute is not None:
            return self.compute(place), None, 1
        known = []
        for run, key in self.results:
            kind, _, name = key.partition(":")
            result = place.result(run)
            value = None if result is None else READ[kind](result, name)
            if value is not None:
                known.append(value)
        if not known or len(known) < len(self.results):
            return None, None, len(known)
        spread = None
        if self.spread is not None and len(known) > 1:
            spread = statistics.stdev(known)
        return statistics.fmean(known), spread, len(known)


@dataclasses.dataclass(frozen=True)
class Source:
    """A pre-trained model that is transferred.

    Args:
        folder: of its runs.
        model: name of the application; "null" where the weights have it.
        weights: name of public weights, or "@run".
        commands: what makes the weights.
        note: why there are none, or "".
    """

    folder: str
    model: str = "null"
    weights: str = ""
    commands: tuple[Command, ...] = ()
    note: str = ""

    @property
    def options(self) -> Options:
        """The model as options of a recipe."""
        return (("model.name", self.model), ("model.weights", self.weights))


def run_cell(
    table: str,
    row: str,
    column: str,
    paper: Value,
    source: Source,
    commands: tuple[Command, ...],
    key: str = "top1",
    *,
    seeds: int = 1,
    **fields,
) -> Cell:
    """Return a `Cell` whose results are the last `seeds` of the commands.

    Where the source has no weights, the cell has the reason as its note.
    """
    if source.note:
        return Cell(table, row, column, paper, note=source.note)
    results = tuple((command.run, key) for command in commands[-seeds:])
    return Cell(
        table,
        row,
        column,
        paper,
        commands=commands,
        results=results,
        **fields,
    )


# Sizes of the hybrid and of those whose config is another model's.
VIT_B = (
    ("model.hidden_dim", "768"),
    ("model.num_layers", "12"),
    ("model.mlp_dim", "3072"),
    ("model.num_heads", "12"),
    ("model.representation_dim", "768"),
)
# Model to its config in recipes/configs/paper and the options that differ.
JFT = {
    "ViT-B/16": ("table3_jft300m_vit_b", ()),
    "ViT-B/32": ("table3_jft300m_vit_b", (("model.name", "ViT_B32"),)),
    "ViT-L/16": ("table3_jft300m_vit_l16", ()),
    "ViT-L/32": ("table3_jft300m_vit_l32", ()),
    "ViT-H/14": ("table3_jft300m_vit_h14", ()),
    "R50x1": ("table3_jft300m_r50", ()),
    "R101x1": ("table3_jft300m_r101", ()),
    "R152x2": ("table3_jft300m_r152", ()),
    "R50x1+ViT-B/16": ("table3_jft300m_r50_vit_b", ()),
    "R50x1+ViT-B/32": (
        "table3_jft300m_r50_vit_b",
        (("model.name", "ViT_R50_L32"), *VIT_B),
    ),
    "R50x1+ViT-L/16": ("table3_jft300m_r50_vit_l16", ()),
    "R50x1+ViT-L/32": ("table3_jft300m_r50_vit_l32", ()),
}
WIDTHS = {"B": "768", "L": "1024", "H": "1280"}
EPOCHS = {"ViT-L/16": 14, "ViT-H/14": 14}  # On JFT; 7 of all others.
TRANSFERS = {
    "ImageNet": "paper/table4_imagenet",
    "CIFAR-10": "paper/table4_cifar10",
    "CIFAR-100": "paper/table4_cifar100",
    "Pets": "paper/table4_pets",
    "Flowers": "paper/table4_flowers",
}


def pre_trained(
    dataset: str,
    model: str,
    epochs: int | None = None,
    *,
    variant: str = "",
    options: Options = (),
) -> Source:
    """Return a model of the paper, pre-trained.

    Args:
        dataset: "ImageNet", "ImageNet-21k" or "JFT-300M".
        model: its name in the paper, "ViT-L/16".
        epochs: None for the model's own.
        variant: name of what `options` change, for the folder.
        options: further options of the pre-training.
    """
    name = model.replace("/", "")
    application = name.replace("-", "_").replace("R50x1+ViT", "ViT_R50")
    if dataset == "ImageNet-21k":
        return Source(f"imagenet21k/{name}", application, "imagenet21k")
    if dataset == "ImageNet":
        folder, config = f"imagenet/{name}", "table3_imagenet_vit"
        base = (
            ("model.name", application),
            ("model.representation_dim", WIDTHS[model[4]]),
        )
    elif model not in JFT:
        note = f"keras_vit has no application of the size of {model}"
        return Source(f"jft300m/{name}", note=note)
    else:
        epochs = epochs or EPOCHS.get(model, 7)
        folder = f"jft300m/{name}_{epochs}ep{variant and f'_{variant}'}"
        config, base = JFT[model]
        base = (*base, ("training.epochs", str(epochs)))
    return trained_source(
        folder, "pretrain", f"paper/{config}", (*base, *options)
    )


def trained_source(
    folder: str, recipe: str, config: str, options: Options
) -> Source:
    """Return a `Source` whose weights a recipe makes."""
    run = f"{folder}/pretraining"
    command = Command(run, recipe, config, options, hardware="cluster")
    return Source(folder, weights=f"@{run}", commands=(command,))


def fine_tuning(
    source: Source,
    dataset: str,
    *,
    seeds: int = 1,
    config: str = "",
    options: Options = (),
) -> tuple[Command, ...]:
    """Return the sweep of Table 4, then its best learning rate with more seeds.

    Args:
        source: the model to fine-tune.
        dataset: a key of `TRANSFERS`.
        seeds: number of runs with the best learning rate.
        config: in place of that of the data set.
        options: further options.

    Returns:
        `Command`s, of which the last `seeds` have a result each.
    """
    config = config or TRANSFERS[dataset]
    run = f"{source.folder}/{config.removeprefix('paper/')}"
    shared = (*source.options, *options)
    sweep = Command(run, "sweep", config, (*shared, ("seed", "0")))
    whole = (("data.train_split", "train"), ("data.validation_split", "null"))
    more = (
        Command(
            f"{run}_seed{seed}",
            "finetune",
            config,
            (*shared, *whole, ("seed", str(seed))),
            rate_of=run,
        )
        for seed in range(1, seeds)
    )
    return (*source.commands, sweep, *more)


def real_labels(
    commands: tuple[Command, ...], seeds: int = 1
) -> tuple[Command, ...]:
    """Add the evaluation of the last models on ImageNet's ReaL labels."""
    found = []
    for trained in commands[-seeds:]:
        final = "/final" if trained.recipe == "sweep" else ""
        options = (
            ("model.weights", f"@{trained.run}{final}"),
            ("data.name", "imagenet2012_real"),
            ("data.label_key", "real_label"),
            # The data set has this split alone.
            ("data.train_split", "validation"),
            ("data.test_split", "validation"),
        )
        found.append(
            Command(
                f"{trained.run}_real",
                "evaluate",
                options=options,
                hardware="cpu",
            )
        )
    return (*commands, *found)


def vtab_runs(source: Source, seeds: int = 1) -> tuple[Command, ...]:
    """VTAB-1k, all tasks, with each seed."""
    runs = (
        Command(
            f"{source.folder}/vtab_seed{seed}",
            "vtab",
            "paper/table4_vtab",
            (*source.options, ("seed", str(seed))),
        )
        for seed in range(seeds)
    )
    return (*source.commands, *runs)


def few_shot(source: Source) -> tuple[Command, ...]:
    """Linear classifiers on five images per class of ImageNet."""
    command = Command(
        f"{source.folder}/few_shot_imagenet",
        "few_shot",
        options=(
            *(pair for pair in source.options if pair[1] != "null"),
            ("data.name", "imagenet2012"),
            # The first of them have 30 images of each class, as big_vision
            # says, and are all that it reads.
            ("data.train_split", "train[:65000]"),
            ("data.test_split", "validation"),
            ("shots", "[5]"),
        ),
        hardware="cpu",
    )
    return (*source.commands, command)
