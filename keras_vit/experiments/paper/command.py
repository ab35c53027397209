"""One call of a recipe, and the run folder that its result is in."""

import dataclasses
import json
import pathlib
import shlex

from keras_vit.training import run_folder
from keras_vit.training.smoke import SUFFIX

__all__ = ["Command", "Place"]

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
