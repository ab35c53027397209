"""Chooses the learning rate on held-out images, then trains on all of them.

    python recipes/sweep.py --config recipes/configs/paper/table4_cifar10.yaml

as the paper fine-tunes (arXiv:2010.11929, appendix B.1.1): one run for each of
`sweep.learning_rates`, the best by the validation images, and a last run with
it on the whole training set, `sweep.train_split`, which is evaluated on the
test images. The same command continues a sweep that was stopped; finished runs
are not repeated.

The run folder then holds a run folder for each learning rate, `final`, and
sweep.csv, sweep.png and result.json of them all.
"""

import dataclasses
import pathlib
import sys

import numpy as np
from named_data.sources import SOURCES

from keras_vit import data
from keras_vit.analysis.plots import new_figure
from keras_vit.data.tfds import PRESETS, Preset
from keras_vit.io.atomic_files import write_csv
from keras_vit.runs import run_script
from keras_vit.runs.reporting import finished, save_figure
from keras_vit.runs.smoke import smoke
from keras_vit.runtime.machine import versions
from keras_vit.training import Recipe
from keras_vit.training.distribution.processes import agreed
from keras_vit.training.run import files as run_folder


@dataclasses.dataclass(frozen=True)
class SweepConfig:
    """Learning rates to compare, and the images to train the best one on."""

    learning_rates: tuple[float, ...] = ()
    """Learning rates to choose from on the validation images."""

    train_split: str | None = None
    """Split of tensorflow-datasets that the best one is trained on: the whole
    training set, as "train"; null adds the validation images to the training
    images of other data."""

    def __post_init__(self):
        if not all(rate > 0 for rate in self.learning_rates):
            raise ValueError(
                "learning_rates must be above 0. Received: "
                f"learning_rates={self.learning_rates!r}."
            )


@dataclasses.dataclass(frozen=True)
class SweepRecipe(Recipe):
    """The whole sweep: the same recipe on the same machine, the same result."""

    sweep: SweepConfig = SweepConfig()


def run(recipe: SweepRecipe) -> dict:
    """Train with each learning rate, then with the best on all images.

    Returns:
        What is written to result.json.

    Raises:
        ValueError: without learning rates or validation images, or when
            recipe, data and run folders do not fit together.
        OSError: when weights cannot be fetched, or the disk is full.
    """
    rates = recipe.sweep.learning_rates
    if not rates:
        raise ValueError(
            "There is nothing to compare. Received: sweep.learning_rates=(). "
            "Give --sweep.learning_rates [0.003,0.01,0.03]."
        )
    # Errors show before the first run.
    last = final(recipe, rates[0])
    dataset = data.open_dataset(recipe.data, SOURCES)
    check_parts(dataset)
    whole = with_validation(data.open_dataset(last.data, SOURCES))
    folder = run_folder.local(recipe.run_dir)
    rows = [
        {
            "learning_rate": rate,
            **finished(trial(recipe, rate), "validation", dataset),
        }
        for rate in rates
    ]
    agreed(lambda: write(folder, rows))
    best = max(rows, key=lambda row: row["top1"])["learning_rate"]
    result = {
        "learning_rate": best,
        "validation_top1": {row["learning_rate"]: row["top1"] for row in rows},
        **finished(final(recipe, best), "test", whole),
        "versions": versions(),
    }
    agreed(lambda: run_folder.write_summary(folder, result))
    return result


def trial(recipe: SweepRecipe, rate: float) -> SweepRecipe:
    """Make the recipe of one learning rate, in a folder of its own."""
    return dataclasses.replace(
        recipe,
        optimizer=dataclasses.replace(recipe.optimizer, learning_rate=rate),
        run_dir=str(pathlib.Path(recipe.run_dir, f"learning_rate_{rate:g}")),
    )


def final(recipe: SweepRecipe, rate: float) -> SweepRecipe:
    """Return the recipe on the whole training set, without validation images.

    Raises:
        ValueError: when the recipe does not say what the whole set is.
    """
    parts = recipe.data
    splits = (parts.train_split, parts.validation_split, parts.test_split)
    named = PRESETS.get(parts.name or "", Preset("")).splits
    whole: dict = {"validation_fraction": 0.0}
    if any(splits) or recipe.sweep.train_split or named:
        if not all(splits):
            raise ValueError(
                "The images for the last run of a sweep are not known. "
                "Received: data.train_split, data.validation_split, "
                f"data.test_split={splits}. Give all three."
            )
        train_split = recipe.sweep.train_split or "+".join(map(str, splits[:2]))
        whole = {"train_split": train_split, "validation_split": None}
    return dataclasses.replace(
        trial(recipe, rate),
        data=dataclasses.replace(recipe.data, **whole),
        run_dir=str(pathlib.Path(recipe.run_dir, "final")),
    )


def with_validation(dataset: data.Dataset) -> data.Dataset:
    """Add validation images that the data has of its own to those to train on.

    Raises:
        ValueError: when the two are not kept alike.
    """
    train, validation = dataset.train, dataset.validation
    if not validation:
        return dataset
    parts = (train, validation)
    kept = {
        isinstance(x, data.Examples)
        and (x.kind, id(x.records), x.contents.shape[1:])
        for x in parts
    }
    if len(kept) > 1 or False in kept:
        raise ValueError(
            f"The {len(validation)} validation images of {dataset.name} cannot "
            f"be added to the {len(train)} training images for the last run, "
            f"as they are kept otherwise: {validation.source}, {train.source}."
            " Give data without validation images, off which they are cut."
        )
    whole = dataclasses.replace(
        train,
        contents=np.concatenate([x.contents for x in parts]),
        labels=np.concatenate([x.labels for x in parts]),
        numbers=np.arange(sum(map(len, parts))),
        source=f"{train.source} and {validation.source}",
    )
    return dataclasses.replace(dataset, train=whole, validation=None)


def check_parts(dataset) -> None:
    """Raise a ValueError unless there are images to choose and to test on."""
    for part in ("validation", "test"):
        if not getattr(dataset, part):
            raise ValueError(
                f"A sweep needs {part} images, and the data has none. Give "
                f"--data.{part}_split or --data.{part}_fraction."
            )


def write(folder: pathlib.Path, rows: list[dict]) -> None:
    """Write sweep.csv and sweep.png."""
    write_csv(folder / "sweep.csv", rows)
    rows = sorted(rows, key=lambda row: row["learning_rate"])
    figure = new_figure(5, 3.5)
    axes = figure.add_subplot()
    rates = [row["learning_rate"] for row in rows]
    axes.plot(rates, [100 * row["top1"] for row in rows], marker="o")
    axes.set_xscale("log")
    axes.set_xticks(rates, [f"{rate:g}" for rate in rates])
    axes.set_xlabel("learning rate")
    axes.set_ylabel("accuracy on the validation images, %")
    save_figure(figure, folder / "sweep.png")


def summary(result: dict) -> str:
    lines = [
        f"learning rate {rate:g}: {accuracy:.2%} on validation images"
        for rate, accuracy in result["validation_top1"].items()
    ]
    last = (
        f"learning rate {result['learning_rate']:g} on the whole training "
        f"set: {result['top1']:.2%} of {result['num_examples']} test images "
        "are right"
    )
    return "\n".join([*lines, last])


def smoke_sweep(recipe: SweepRecipe) -> SweepRecipe:
    """Return a trial of the sweep: two learning rates at most."""
    rates = recipe.sweep.learning_rates[:2]
    return dataclasses.replace(smoke(recipe), sweep=SweepConfig(rates))


def main(arguments: list[str] | None = None) -> int:
    return run_script(
        run,
        summary,
        __doc__,
        arguments,
        record=SweepRecipe,
        shrink=smoke_sweep,
        sources=SOURCES,
    )


if __name__ == "__main__":
    sys.exit(main())
