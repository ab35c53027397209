"""Trains on all folds but one, for each fold, and averages the results.

    python recipes/cross_validate.py --config recipes/configs/quickstart.yaml \
        --data.folds 5

One run for each fold, which is evaluated on the images of that fold. Folds are
made by the contents of the images: equal images are in one fold, and images
that are added move no others. The same command continues where it was stopped;
finished runs are not repeated.

The run folder then holds a run folder for each fold, and folds.csv and
result.json of them all: the mean of each metric over the folds, and its
deviation (of a sample, divided by the number of folds less 1).
"""

import dataclasses
import pathlib
import statistics
import sys

from named_data.sources import SOURCES

from keras_vit import data
from keras_vit.io.atomic_files import write_csv
from keras_vit.runs import run_script
from keras_vit.runs.reporting import finished
from keras_vit.runs.smoke import smoke
from keras_vit.runtime.machine import versions
from keras_vit.training import Recipe
from keras_vit.training.distribution.processes import agreed
from keras_vit.training.run import files as run_folder

METRICS = (
    *("top1", "top5", "accuracy", "balanced_accuracy", "macro_f1", "auc"),
    *("average_precision", "mae", "r2"),
)
SMOKE_FOLDS = 2


def run(recipe: Recipe) -> dict:
    """Train and evaluate once for each fold.

    Returns:
        What is written to result.json.

    Raises:
        ValueError: without folds, or when recipe, data and run folders do not
            fit together.
        OSError: when weights cannot be fetched, or the disk is full.
    """
    if recipe.data.folds is None or recipe.data.fold is not None:
        raise ValueError(
            "All folds are trained. Received: data.folds="
            f"{recipe.data.folds}, data.fold={recipe.data.fold}. Give "
            "--data.folds 5, and no fold."
        )
    recipes = [of_fold(recipe, fold) for fold in range(recipe.data.folds)]
    for each in recipes:  # Errors show before the first run.
        data.open_dataset(each.data, SOURCES)
    rows = []
    for fold, each in enumerate(recipes):
        dataset = data.open_dataset(each.data, SOURCES)
        rows.append({"fold": fold, **finished(each, "validation", dataset)})
    result = {**averages(rows), "versions": versions()}
    folder = run_folder.local(recipe.run_dir)
    agreed(lambda: write(folder, rows, result))
    return result


def of_fold(recipe: Recipe, fold: int) -> Recipe:
    """Make the recipe of one fold, in a folder of its own."""
    return dataclasses.replace(
        recipe,
        data=dataclasses.replace(recipe.data, fold=fold),
        run_dir=str(pathlib.Path(recipe.run_dir, f"fold_{fold}")),
    )


def averages(rows: list[dict]) -> dict:
    """Compute the mean and the deviation of each metric over the folds.

    Args:
        rows: the results of the folds.

    Returns:
        Dict of "folds", how many there are, "num_examples" of them all, and of
        each metric that all folds have: "mean" and "deviation".

    Example:
        >>> averages([{"top1": 0.5, "num_examples": 4},
        ...     {"top1": 0.75, "num_examples": 4}])["mean"]
        {'top1': 0.625}
    """
    values = {
        name: [row[name] for row in rows]
        for name in METRICS
        if all(name in row for row in rows)
    }
    return {
        "folds": len(rows),
        "num_examples": sum(row["num_examples"] for row in rows),
        "mean": {name: statistics.mean(x) for name, x in values.items()},
        "deviation": {name: statistics.stdev(x) for name, x in values.items()},
    }


def write(folder: pathlib.Path, rows: list[dict], result: dict) -> None:
    """Write folds.csv and result.json."""
    columns = ("fold", "num_examples", *result["mean"])
    write_csv(
        folder / "folds.csv", [{x: row[x] for x in columns} for row in rows]
    )
    run_folder.write_summary(folder, result)


def summary(result: dict) -> str:
    lines = [
        f"{name}: {mean:.4f} ± {result['deviation'][name]:.4f}"
        for name, mean in result["mean"].items()
    ]
    head = (
        f"mean and deviation over {result['folds']} folds, each of "
        f"{result['num_examples']} images evaluated once"
    )
    return "\n".join([head, *lines])


def smoke_folds(recipe: Recipe) -> Recipe:
    """Return a trial: two folds of the digits."""
    trial = smoke(recipe)
    parts = {"validation_split": None, "train_split": "train[:100]"}
    folds = dataclasses.replace(trial.data, folds=SMOKE_FOLDS, **parts)
    return dataclasses.replace(trial, data=folds)


def main(arguments: list[str] | None = None) -> int:
    return run_script(
        run, summary, __doc__, arguments, shrink=smoke_folds, sources=SOURCES
    )


if __name__ == "__main__":
    sys.exit(main())
