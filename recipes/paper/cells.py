"""One call of a recipe, and the run folder that its result is in.

A name in the paper, "ViT-L/16", is a folder "ViT-L16", which all of its runs
are in, so that tables share what they have in common.
"""

import dataclasses
import json
import pathlib
import shlex
import statistics
from collections.abc import Callable

from keras_vit.runs.smoke import SUFFIX
from keras_vit.training import run_folder

__all__ = [
    "Cell",
    "Command",
    "Place",
    "Source",
    "Value",
    "pre_trained",
]

REFERENCE = "@"  # Begins an option's value that is the folder of another run.
BY_HAND = ("keras-vit ", "python ")  # Begin what is no script of recipes.


@dataclasses.dataclass(frozen=True)
class Place:
    """Where recipes are, and where their results go.

    Args:
        recipes: folder of the scripts.
        root: folder of the run folders.
        smoke: bool, whether each recipe is only tried out.
    """

    recipes: str
    root: str
    smoke: bool = False

    def folder(self, run: str) -> pathlib.Path:
        """The run folder of a run.

        Args:
            run: its name, or the path of something in its folder.

        Returns:
            A path.
        """
        return pathlib.Path(self.root, run + SUFFIX if self.smoke else run)

    def result(self, run: str) -> dict | None:
        """What a run that is finished has found, None of any other.

        Args:
            run: its name.

        Returns:
            The content of result.json.
        """
        path = self.folder(run) / run_folder.RESULT
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
    options: tuple[tuple[str, str], ...] = ()
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
        """The command line behind the name of the script.

        Args:
            place: a `Place`.

        Returns:
            A list of str. The learning rate of a sweep that is not finished
            is left out: the config has one of its own.
        """
        words = []
        if self.config:
            config = pathlib.Path(place.recipes, "configs", self.config)
            words += ["--config", f"{config}.yaml"]
        for option, value in self.options:
            words += [f"--{option}", _path(value, place)]
        best = place.result(self.rate_of) if self.rate_of else None
        if best is not None:
            rate = f"{best['learning_rate']:g}"
            words += ["--optimizer.learning_rate", rate]
        if place.smoke:
            words += ["--smoke", "true"]
        return [*words, "--run_dir", str(place.folder(self.run))]

    def text(self, place: Place) -> str:
        """What a person types.

        Args:
            place: a `Place`.

        Returns:
            str, one line.
        """
        if self.recipe.startswith(BY_HAND):
            values = [_path(value, place) for _, value in self.options]
            return f"{self.recipe} {shlex.join(values)}"
        script = pathlib.Path(place.recipes, f"{self.recipe}.py")
        text = shlex.join(["python", str(script), *self.words(place)])
        if self.rate_of and place.result(self.rate_of) is None:
            text += "  # with the learning rate that the sweep chooses"
        return text

    def is_finished(self, place: Place) -> bool:
        """Whether its result is there, with nothing left out.

        Args:
            place: a `Place`.

        Returns:
            bool.
        """
        result = place.result(self.run)
        return result is not None and not result.get("missing")


def _path(value, place):
    """An option's value, in which another run is its folder."""
    if value.startswith(REFERENCE):
        return str(place.folder(value.removeprefix(REFERENCE)))
    return value


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


# Sizes of the hybrid and of those whose config is another model's.
VIT_B = (
    ("model.hidden_dim", "768"),
    ("model.num_layers", "12"),
    ("model.mlp_dim", "3072"),
    ("model.num_heads", "12"),
    ("model.representation_dim", "768"),
)
# Model to its config in recipes/configs/paper and what differs from it.
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


@dataclasses.dataclass(frozen=True)
class Source:
    """A pre-trained model that is transferred.

    Args:
        folder: of its runs.
        model: name of the application; "null" where the weights say it.
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
    def options(self) -> tuple[tuple[str, str], ...]:
        """The model as options of a recipe."""
        return (("model.name", self.model), ("model.weights", self.weights))


def pre_trained(
    dataset: str,
    model: str,
    epochs: int | None = None,
    *,
    variant: str = "",
    options: tuple[tuple[str, str], ...] = (),
) -> Source:
    """A model of the paper, pre-trained.

    Args:
        dataset: "ImageNet", "ImageNet-21k" or "JFT-300M".
        model: as the paper names it, "ViT-L/16".
        epochs: int; None for the model's own.
        variant: name of what `options` change, for the folder.
        options: further options of the pre-training.

    Returns:
        A `Source`.
    """
    name = model.replace("/", "")
    application = name.replace("-", "_").replace("R50x1+ViT", "ViT_R50")
    if dataset == "ImageNet-21k":
        return Source(f"imagenet21k/{name}", application, "imagenet21k")
    if dataset == "ImageNet":
        folder, config, base = (
            f"imagenet/{name}",
            "table3_imagenet_vit",
            (
                ("model.name", application),
                ("model.representation_dim", WIDTHS[model[4]]),
            ),
        )
    elif model not in JFT:
        note = f"keras_vit has no application of the size of {model}"
        return Source(f"jft300m/{name}", note=note)
    else:
        epochs = epochs or EPOCHS.get(model, 7)
        folder = f"jft300m/{name}_{epochs}ep{variant and f'_{variant}'}"
        config, base = JFT[model]
        base = (*base, ("training.epochs", str(epochs)))
    run = f"{folder}/pretraining"
    command = Command(
        run,
        "pretrain",
        f"paper/{config}",
        (*base, *options),
        hardware="cluster",
    )
    return Source(folder, weights=f"@{run}", commands=(command,))
