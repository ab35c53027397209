"""Runs of a recipe that are made of several: each is trained once."""

import dataclasses
import json
import pathlib

from keras_vit.experiments.reporting import evaluated, finish
from keras_vit.training import Recipe, run_folder, train
from keras_vit.training.distribution.processes import agreed
from keras_vit.training.resume import differences

__all__ = ["finished", "result_of"]


def finished(recipe: Recipe, part: str, dataset=None) -> dict:
    """The result of a run, which is trained unless it is finished.

    Args:
        recipe: a `Recipe`.
        part: "validation" or "test", the images that the result is of.
        dataset: the `Dataset` of the recipe where it is open already.

    Returns:
        top1, top5 and num_examples.

    Raises:
        ValueError: when the folder holds a run of another recipe.

    Example:
        >>> finished(Recipe(run_dir="runs/digits"), "test")["num_examples"]
        359
    """
    known = agreed(lambda: result_of(recipe))
    if known is not None:
        return known
    trained = train(recipe, dataset=dataset)
    return agreed(
        lambda: finish(trained, recipe, evaluated(trained, recipe, part))
    )


def result_of(recipe: Recipe) -> dict | None:
    """The result of a run that is finished, None of one that is not.

    Args:
        recipe: a `Recipe`.

    Returns:
        What is in result.json.

    Raises:
        ValueError: when it was of another recipe.
    """
    import yaml

    folder = pathlib.Path(recipe.run_dir)
    if not (folder / run_folder.RESULT).is_file():
        return None
    old = yaml.safe_load((folder / run_folder.CONFIG).read_text())
    if changed := differences(old, dataclasses.asdict(recipe)):
        raise ValueError(
            f"The folder {recipe.run_dir!r} holds a finished run of another "
            f"config: {'; '.join(changed)}. Choose another --run_dir, or "
            "remove the folder."
        )
    return json.loads((folder / run_folder.RESULT).read_text())
