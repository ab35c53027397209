"""Few-shot accuracy of a model: linear classifiers on few images a class.

    python recipes/few_shot.py --model.weights runs/quickstart --crop squash
    python recipes/few_shot.py --model.name ViT_B16 \
        --model.weights imagenet21k --data.name cifar100

The measure that "An Image Is Worth 16x16 Words" compares pre-trainings with
(sections 4.1 and 4.3, figure 4): features of the model as it is, a classifier
by regularised least squares in closed form on 1, 5, 10 and 25 training images
of each class, its accuracy on all test images, for three choices of images.
Nothing is trained, so it takes one pass over the test images.

The run folder then holds the config, the environment, result.json,
few_shot.csv and few_shot.png.
"""

import dataclasses
import functools
import sys
import time

from keras_vit import data
from keras_vit.data import DataConfig, PreprocessingConfig
from keras_vit.evaluation.few_shot import (
    FewShot,
    feature_model,
    few_shot,
    summarise_shots,
)
from keras_vit.files import replacing, write_csv
from keras_vit.prediction.classifier import load_model
from keras_vit.runs.script import fail, parse
from keras_vit.runs.smoke import tiny_model
from keras_vit.training import run_folder
from keras_vit.training.distribution import environment, versions
from keras_vit.training.distribution.layouts import on_devices

SMOKE_DATA = DataConfig(name="digits", max_examples=200)
SMOKE_SHOTS = (1, 5)
SMOKE_SUFFIX = "-smoke"
DOTS_PER_INCH = 150
BLUE = "#0072B2"
INTERRUPTED = 130  # The exit code of a program that Ctrl-C ended.


def run(recipe: FewShot) -> dict:
    """Evaluates and fills the run folder.

    Args:
        recipe: a `FewShot`.

    Returns:
        What is written to result.json.

    Raises:
        ValueError: when model and data do not fit, or the run folder is taken.
        OSError: when weights cannot be fetched.
    """
    recipe = smoke(recipe) if recipe.smoke else recipe
    with on_devices(recipe.distribution, recipe.batch_size):
        return evaluate(recipe)


def evaluate(recipe: FewShot) -> dict:
    """As `run`, of a recipe on the devices chosen."""
    # What may be wrong shows before an earlier run is replaced.
    model = (
        tiny_model(recipe.model.name, recipe.seed)
        if recipe.smoke
        else load_model(recipe.model, with_head=False)
    )
    features = feature_model(model, recipe.layer)
    dataset = data.open_dataset(recipe.data)
    if dataset.test is None:
        raise ValueError(f"{dataset.name} has no test images.")
    folder = run_folder.prepare(recipe.run_dir, overwrite=recipe.overwrite)
    run_folder.write_json(folder / "environment.json", environment())
    run_folder.write_yaml(folder / "config.yaml", dataclasses.asdict(recipe))
    begin = time.perf_counter()
    rows = few_shot(
        features,
        dataset.train,
        dataset.test,
        num_classes=len(dataset.class_names),
        batches=make_batches(recipe, features.input_shape),
        shots=recipe.shots,
        seeds=range(recipe.seed, recipe.seed + recipe.num_seeds),
        l2=recipe.l2,
    )
    seconds = time.perf_counter() - begin
    result = {
        "model": recipe.model.weights,
        "data": dataset.name,
        "num_classes": len(dataset.class_names),
        "num_features": features.output_shape[-1],
        "summary": summarise_shots(rows),
        "rows": rows,
        "seconds": seconds,
        "versions": versions(),
    }
    write_csv(folder / "few_shot.csv", rows)
    with replacing(folder / "few_shot.png") as path:
        plot(result).savefig(path, dpi=DOTS_PER_INCH)
    run_folder.write_json(folder / "result.json", result)
    return result


def smoke(recipe: FewShot) -> FewShot:
    """Makes a trial of a recipe, on data that needs no download.

    Args:
        recipe: a `FewShot`.

    Returns:
        A `FewShot`.
    """
    return dataclasses.replace(
        recipe,
        data=SMOKE_DATA,
        layer=None,
        shots=SMOKE_SHOTS,
        batch_size=16,
        run_dir=recipe.run_dir.removesuffix(SMOKE_SUFFIX) + SMOKE_SUFFIX,
    )


def make_batches(recipe: FewShot, shape):
    """The function that reads images in the size of the model.

    Args:
        recipe: a `FewShot`.
        shape: input shape of the model.

    Returns:
        `data.evaluation_batches` with its options.
    """
    return functools.partial(
        data.evaluation_batches,
        image_size=shape[1:3],
        channels=shape[3],
        batch_size=recipe.batch_size,
        preprocessing=PreprocessingConfig(evaluation=recipe.crop),
    )


def plot(result: dict):
    """Accuracy over the number of images a class, each seed a dot.

    Args:
        result: what `run` returns.

    Returns:
        matplotlib Figure.
    """
    from matplotlib.figure import Figure
    from matplotlib.ticker import NullFormatter, PercentFormatter

    figure = Figure(figsize=(5.2, 3.6), layout="constrained")
    axis = figure.subplots()
    summary, rows = result["summary"], result["rows"]
    shots = [row["shots"] for row in summary]
    means = [row["mean"] for row in summary]
    axis.plot(shots, means, "-", color=BLUE, label="mean")
    axis.plot(
        [row["shots"] for row in rows],
        [row["accuracy"] for row in rows],
        "o",
        color=BLUE,
        alpha=0.5,
        label="one choice of images",
    )
    chance = 1 / result["num_classes"]
    axis.axhline(chance, color="grey", linestyle=":", label="chance")
    axis.set_xscale("log")
    axis.set_xticks(shots, list(map(str, shots)))
    axis.xaxis.set_minor_formatter(NullFormatter())
    axis.yaxis.set_major_formatter(PercentFormatter(xmax=1))
    axis.set(xlabel="training images a class", ylabel="test accuracy")
    axis.set_title(f"Few-shot, {result['data']}", parse_math=False)
    axis.grid(alpha=0.3)
    axis.spines[["top", "right"]].set_visible(False)
    axis.legend(frameon=False)
    return figure


def table(result: dict) -> str:
    """The summary as lines of text.

    Args:
        result: what `run` returns.

    Returns:
        A Markdown table.
    """
    lines = ["| images a class | accuracy | spread |", "|--:|--:|--:|"]
    lines += [
        f"| {row['shots']} | {row['mean']:.2%} | {row['std']:.2%} |"
        for row in result["summary"]
    ]
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    recipe = parse(FewShot, arguments, (__doc__ or "").splitlines()[0])
    try:
        result = run(recipe)
    except (OSError, ValueError) as error:
        fail(str(error))
    except KeyboardInterrupt:
        print("\nInterrupted; there is no result.", file=sys.stderr)
        return INTERRUPTED
    count = result["rows"][0]["num_test"]
    print(f"{table(result)}\non {count} test images of {result['data']}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
