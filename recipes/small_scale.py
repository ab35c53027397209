"""Reproduces a finding of the paper at small scale, on data at hand.

    python recipes/small_scale.py                  # lists the experiments
    python recipes/small_scale.py positions
    python recipes/small_scale.py positions --size large    # for a GPU

An experiment is an entry of recipes/small_scale.yaml: options and the axes
along which they vary. Each combination is trained with several seeds. Compared
are the accuracies on test images, or those of few-shot classifiers of frozen
features.

docs/results/small_scale has the result as JSON, with the options of each run,
and a plot. The same command trains only what is missing in the JSON.

Options are those of recipes/finetune.py. Added are `images_a_class`, the number
of training images of each class, options that begin with `pretraining.`, of a
training before by recipes/pretrain.py.
"""

import argparse
import collections
import dataclasses
import functools
import hashlib
import itertools
import json
import os
import pathlib
import statistics
import sys
import time

import keras
import yaml
from named_data.sources import SOURCES
from pretrain import METHODS, PretrainRecipe

from keras_vit import data
from keras_vit.analysis import multiply_adds
from keras_vit.analysis.plots import new_figure
from keras_vit.data import DataConfig
from keras_vit.evaluation.few_shot import (
    SHOTS,
    choose_shots,
    feature_model,
    few_shot,
)
from keras_vit.io.atomic_files import write_json
from keras_vit.io.run_folder import RESULT
from keras_vit.io.stores import check_local
from keras_vit.io.tables import markdown_table
from keras_vit.runs.reporting import evaluated, save_figure
from keras_vit.runs.script import check_packages, exit_code, parse
from keras_vit.runtime.machine import environment
from keras_vit.training import Recipe, train
from keras_vit.training.build import make_model

EXPERIMENTS = pathlib.Path(__file__).with_suffix(".yaml")
RESULTS = "docs/results/small_scale"
IMAGES_A_CLASS = "images_a_class"
PRETRAINING = "pretraining."
SHOTS_AXIS = "images a class"
COMPUTE = "multiply_adds"
LOSS = "validation_loss"
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")


def main(arguments: list[str] | None = None) -> int:
    known = experiments()
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    add = parser.add_argument
    add("experiment", nargs="?", choices=list(known))
    add("--size", default="small", help="small, or large for a GPU")
    add("--seeds", type=int, help="the experiment's own number by default")
    add("--runs", default="runs/small_scale", help="folder of the runs")
    add("--results", default=RESULTS, help="folder of the JSON and the plot")
    options = parser.parse_args(arguments)
    if options.experiment is None:
        for name, experiment in known.items():
            print(f"{name:<16} {experiment['finding']}")
        return 0
    return exit_code(
        lambda: compare(known[options.experiment], options),
        "the same command continues.",
    )


def compare(experiment: dict, options) -> None:
    """Measure an experiment, and write and print its result.

    Args:
        experiment: an entry of small_scale.yaml.
        options: of the command line.
    """
    check_packages(data.DataConfig())
    check_local("--runs", options.runs)
    check_local("--results", options.results)
    experiment = sized(experiment, options)
    suffix = "" if options.size == "small" else f"_{options.size}"
    name = options.experiment + suffix
    path = pathlib.Path(options.results, f"{name}.json")
    result = run(experiment, path, pathlib.Path(options.runs, name))
    save_figure(plot(result), path.with_suffix(".png"))
    print(table(result))


def experiments() -> dict[str, dict]:
    """Return the entries of small_scale.yaml."""
    return yaml.safe_load(EXPERIMENTS.read_text())


def sized(experiment: dict, options) -> dict:
    """Return the entry with the options of a size, its seeds and its command.

    Raises:
        SystemExit: when the experiment has no such size.
    """
    sizes = {"small": {}, **experiment.get("sizes", {})}
    if options.size not in sizes:
        sys.exit(
            f"There is no size {options.size!r} of {options.experiment}. "
            f"Expected one of {', '.join(sizes)}."
        )
    size = "" if options.size == "small" else f" --size {options.size}"
    return {
        **experiment,
        "options": experiment["options"] | sizes[options.size],
        "seeds": options.seeds or experiment["seeds"],
        "command": f"python recipes/small_scale.py {options.experiment}{size}",
    }


def cells(experiment: dict) -> list[tuple[dict, dict]]:
    """Return the label on every axis and the options of each combination."""
    axes = experiment["axes"]
    combined = []
    for names in itertools.product(*axes.values()):
        labels = dict(zip(axes, names, strict=True))
        options = dict(experiment["options"])
        for axis, name in reversed(labels.items()):
            options |= axes[axis][name] or {}
        combined.append((labels, options))
    return combined


def run(experiment: dict, path: pathlib.Path, runs: pathlib.Path) -> dict:
    """Measure what the JSON does not hold yet.

    Args:
        experiment: what `sized` returns.
        path: of the JSON.
        runs: folder for the run folders.

    Returns:
        The new content of the JSON.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    known = json.loads(path.read_text())["rows"] if path.exists() else []
    wanted = [
        (labels, {"seed": seed, "options": options})
        for seed in range(experiment["seeds"])
        for labels, options in cells(experiment)
    ]
    found = [[row for row in known if row | key == row] for _, key in wanted]
    for number, (labels, key) in enumerate(wanted):
        if not found[number]:
            rows = measure(
                **key,
                folder=runs / f"{number}",
                probe=experiment.get("measure") == "few_shot",
            )
            found[number] = [{**labels, **key, **row} for row in rows]
            print(json.dumps(found[number][-1]), flush=True)
            write(experiment, path, list(itertools.chain(*found)))
    return write(experiment, path, list(itertools.chain(*found)))


def write(experiment: dict, path: pathlib.Path, rows: list[dict]) -> dict:
    """Write the rows measured so far, and return all that is written."""
    axes = list(experiment["axes"])
    if experiment.get("measure") == "few_shot":
        axes.append(SHOTS_AXIS)
    result = {
        **{key: experiment[key] for key in ("command", "finding", "paper")},
        "by_compute": experiment.get("by_compute", False),
        "axes": axes,
        "environment": {**environment(), "load": os.getloadavg()[0]},
        "summary": summarise(rows, axes),
        "rows": rows,
    }
    write_json(path, result)
    return result


def measure(
    options: dict, *, seed: int, folder: pathlib.Path, probe: bool
) -> list[dict]:
    """Train and measure one combination of options.

    Args:
        options: name to value.
        seed: of everything that is drawn.
        folder: run folder; those of pre-training are beside it.
        probe: whether to fit few-shot classifiers to the frozen features
            instead of training on the data.

    Returns:
        Dictionaries with "accuracy" and "seconds"; one for each number of
        shots of a probe.

    Raises:
        SystemExit: when an option is unknown or wrong.

    Example:
        >>> options = {"config": "recipes/configs/digits_from_fractals.yaml"}
        >>> measure(options, seed=0, folder=Path("runs/x"), probe=False)
    """
    keras.utils.clear_session()
    begin = time.perf_counter()
    *before, recipe = recipes_of(options, seed=seed, folder=folder)
    for one in before:
        pretrain(one)
    dataset = opened(recipe.data)
    if probe:
        found = fit_probes(recipe, dataset)
    else:
        few = few_images(dataset, options.get(IMAGES_A_CLASS), seed)
        found = [train_and_test(recipe, few)]
    seconds = time.perf_counter() - begin
    return [{**row, "seconds": round(seconds, 1)} for row in found]


def recipes_of(
    options: dict, *, seed: int, folder: pathlib.Path
) -> list[Recipe]:
    """Make the recipe of the pre-training, if there is one, and the measured.

    Example:
        >>> recipes_of({"training.epochs": 3}, seed=0, folder=Path("runs/x"))
    """
    before = {
        key.removeprefix(PRETRAINING): value
        for key, value in options.items()
        if key.startswith(PRETRAINING)
    }
    options = {
        key: value
        for key, value in options.items()
        if not key.startswith(PRETRAINING) and key != IMAGES_A_CLASS
    }
    if not before:
        return [_recipe(Recipe, options, seed, folder)]
    # Named by its content: combinations share a pre-training.
    text = json.dumps([before, seed], sort_keys=True)
    digest = hashlib.sha256(text.encode()).hexdigest()[:12]
    weights = folder.parent / f"pretraining-{digest}"
    options["model.weights"] = str(weights)
    return [
        _recipe(PretrainRecipe, before, seed, weights),
        _recipe(Recipe, options, seed, folder),
    ]


def _recipe(record, options, seed, folder):
    words = [
        f"--{key}={value if isinstance(value, str) else json.dumps(value)}"
        for key, value in options.items()
    ]
    words += [f"--seed={seed}", f"--run_dir={folder}", "--overwrite=true"]
    return parse(record, words, "")


def pretrain(recipe) -> None:
    """Train a `PretrainRecipe`, unless its folder has that model already."""
    result = pathlib.Path(recipe.run_dir, RESULT)
    if not result.exists():
        task = METHODS[recipe.method].task
        trained = train(recipe, task=task, sources=SOURCES)
        write_json(result, {"seconds": trained.seconds})
        keras.utils.clear_session()


@functools.cache
def opened(config: DataConfig) -> data.Dataset:
    """Return the data of several runs, opened once."""
    return data.open_dataset(config, SOURCES)


def few_images(dataset, images_a_class: int | None, seed: int):
    """Keep a few training images of each class, and no validation images.

    Args:
        dataset: a `Dataset` of `Examples`.
        images_a_class: number of images; None keeps the dataset as it is.
        seed: of the choice.
    """
    if images_a_class is None:
        return dataset
    [chosen] = choose_shots(
        dataset.train.labels,
        len(dataset.class_names),
        shots=[images_a_class],
        seed=seed,
    )
    return dataclasses.replace(
        dataset, train=dataset.train.subset(chosen), validation=None
    )


def train_and_test(recipe: Recipe, dataset) -> dict:
    """Return the accuracy on the test images, with the sizes of the model."""
    trained = train(recipe, dataset=dataset)
    result = evaluated(trained, recipe, "test")
    write_json(trained.folder / RESULT, result)
    row = {
        "accuracy": result["top1"],
        "parameters": trained.model.count_params(),
        COMPUTE: sum(multiply_adds(trained.model).values()),
    }
    for name in ("accuracy", "loss"):
        if f"val_{name}" in trained.kept:
            row[f"validation_{name}"] = trained.kept[f"val_{name}"]
    return row


def fit_probes(recipe: Recipe, dataset) -> list[dict]:
    """Few-shot accuracies of a model with its weights as they are.

    Args:
        recipe: its model, images and seed are used: the seed draws the images
            and the weights of a new model.
        dataset: a `Dataset` with test images.

    Returns:
        A dictionary for each number of shots.
    """
    keras.utils.set_random_seed(recipe.seed)
    model = make_model(recipe, dataset.class_names)
    rows = few_shot(
        feature_model(model),
        dataset.train,
        dataset.test,
        num_classes=len(dataset.class_names),
        batches=functools.partial(
            data.evaluation_batches,
            image_size=model.input_shape[1:3],
            channels=model.input_shape[3],
            batch_size=recipe.training.micro_batch_size,
            preprocessing=recipe.preprocessing,
        ),
        shots=SHOTS,
        seeds=[recipe.seed],
    )
    return [
        {SHOTS_AXIS: row["shots"], "accuracy": row["accuracy"]} for row in rows
    ]


def summarise(rows: list[dict], axes: list[str]) -> list[dict]:
    """Mean and standard deviation over the seeds.

    Returns:
        A dictionary for each combination: its labels, "mean", "std" (of the
        sample), "seeds" and, where the rows have them, "multiply_adds" per
        image and the mean "validation_loss".
    """
    grouped: dict[tuple, list[float]] = {}
    computed, losses = {}, collections.defaultdict(list)
    for row in rows:
        labels = tuple(row[axis] for axis in axes)
        grouped.setdefault(labels, []).append(row["accuracy"])
        computed[labels] = {k: row[k] for k in (COMPUTE,) if k in row}
        if LOSS in row:
            losses[labels].append(row[LOSS])
            computed[labels][LOSS] = statistics.fmean(losses[labels])
    return [
        {
            **dict(zip(axes, labels, strict=True)),
            "mean": statistics.fmean(found),
            "std": statistics.stdev(found) if len(found) > 1 else 0.0,
            "seeds": len(found),
            **computed[labels],
        }
        for labels, found in grouped.items()
    ]


def lines_of(result: dict) -> list[tuple[tuple, list[dict]]]:
    """List the labels on all axes but the last, and entries along it."""
    *axes, _ = result["axes"]
    grouped: dict[tuple, list[dict]] = {}
    for entry in result["summary"]:
        labels = tuple(entry[axis] for axis in axes)
        grouped.setdefault(labels, []).append(entry)
    return list(grouped.items())


def table(result: dict) -> str:
    """Return the summary as a Markdown table, the last axis in columns.

    Accuracies are in per cent, mean and standard deviation, with the compute
    per image where that is compared, or the validation loss.
    """
    *axes, last = result["axes"]
    columns = dict.fromkeys(f"{last}: {x[last]}" for x in result["summary"])
    rows = []
    for labels, found in lines_of(result):
        texts = []
        for entry in found:
            text = f"{100 * entry['mean']:.1f} ± {100 * entry['std']:.1f}"
            if result.get("by_compute"):
                text += f" ({entry[COMPUTE] / 1e6:.1f} M)"
            elif LOSS in entry:
                text += f" ({entry[LOSS]:.3f})"
            texts.append(text)
        rows.append([*labels, *texts])
    return "\n".join(markdown_table([*axes, *columns], rows, columns))


def plot(result: dict):
    """Draw mean and spread along the last axis, a line for each of the others.

    Args:
        result: content of the JSON of an experiment.
    """
    from matplotlib.ticker import LogLocator, NullLocator, PercentFormatter

    figure = new_figure(6.4, 3.6)
    axis = figure.subplots()
    last = result["axes"][-1]
    by_compute = result.get("by_compute", False)
    for colour, (labels, found) in zip(
        itertools.cycle(COLOURS), lines_of(result), strict=False
    ):
        axis.errorbar(
            [x[COMPUTE] / 1e6 if by_compute else str(x[last]) for x in found],
            [x["mean"] for x in found],
            [x["std"] for x in found],
            fmt="o-" if labels else "o",
            color=colour,
            capsize=3,
            label=", ".join(map(str, labels)),
        )
    axis.yaxis.set_major_formatter(PercentFormatter(xmax=1))
    axis.set(xlabel=last, ylabel="test accuracy")
    if by_compute:
        axis.set(xlabel="million multiply-adds per image", xscale="log")
        axis.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.xaxis.set_major_formatter("{x:g}")
        axis.xaxis.set_minor_locator(NullLocator())
    figure.suptitle(result["finding"], fontsize="medium")
    axis.grid(alpha=0.3)
    axis.spines[["top", "right"]].set_visible(False)
    if len(result["axes"]) > 1:
        figure.legend(loc="outside right center", frameon=False)
    return figure


if __name__ == "__main__":
    sys.exit(main())
