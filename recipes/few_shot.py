"""Few-shot accuracy of a model: simple classifiers on few images per class.

    python recipes/few_shot.py --model.weights runs/quickstart --crop squash
    python recipes/few_shot.py --model.name ViT_B16 \
        --model.weights imagenet21k --data.name cifar100
    python recipes/few_shot.py --model.weights runs/quickstart --crop squash \
        --probe knn --shots "[null]" --num_seeds 1

The measure with which "An Image Is Worth 16x16 Words" compares pre-training
(sections 4.1 and 4.3, figure 4): a classifier of the frozen features, fitted by
regularised least squares in closed form to 1, 5, 10 and 25 training images of
each class, and its accuracy on all test images, for three choices of images.
Nothing is trained, so it takes one pass over the test images, of which each
of several processes takes its share. `--probe knn`
lets the nearest images vote instead (DINO's protocol), `--probe linear` is
logistic regression; `--shots "[null]"` takes all training images.

The run folder then holds the config, the environment, result.json,
few_shot.csv and few_shot.png.
"""

import dataclasses
import functools
import sys
import time

from named_data.sources import SOURCES

from keras_vit import data
from keras_vit.analysis.plots import new_figure
from keras_vit.data import DataConfig, PreprocessingConfig, Share
from keras_vit.data.config import chosen_reader
from keras_vit.evaluation import Together
from keras_vit.evaluation.few_shot import (
    FewShot,
    feature_model,
    few_shot,
    summarise_shots,
)
from keras_vit.io.atomic_files import write_csv
from keras_vit.io.tables import markdown_table
from keras_vit.prediction.networks import load_model
from keras_vit.runs.reporting import save_figure
from keras_vit.runs.script import (
    check_packages,
    exit_code,
    parse,
    show,
    with_open,
)
from keras_vit.runs.smoke import smoke_dir, tiny_model
from keras_vit.runtime.machine import environment, versions
from keras_vit.training.distribution.layouts import on_devices
from keras_vit.training.distribution.processes import (
    agreed,
    explain_lost_process,
    is_first,
    stacked,
)
from keras_vit.training.run import files as run_folder

SMOKE_IMAGES = 200
SMOKE_SHOTS = (1, 5)
BLUE = "#0072B2"


def run(recipe: FewShot) -> dict:
    """Evaluate and fill the run folder.

    Returns:
        What is written to result.json.

    Raises:
        ValueError: when model and data do not fit, or the run folder is taken.
        OSError: when weights cannot be fetched.
    """
    check_packages(recipe.data, SOURCES)
    reader = chosen_reader(recipe.data.reader)
    data_config = dataclasses.replace(recipe.data, reader=reader)
    recipe = dataclasses.replace(recipe, data=data_config)
    run_folder.local(recipe.run_dir)  # Of a store, errors show at once.
    with on_devices(recipe.distribution, recipe.batch_size) as share:
        return evaluate(recipe, share)


def evaluate(recipe: FewShot, share: Share) -> dict:
    """As `run`, on the devices of the scope.

    Of several processes each takes its share, and the first one writes.
    """
    # Errors show before an earlier run is replaced.
    model = (
        tiny_model(recipe.model.name, recipe.seed)
        if recipe.smoke
        else load_model(recipe.model, with_head=False)
    )
    features = feature_model(model, recipe.layer)
    dataset = data.open_dataset(recipe.data, SOURCES)
    if dataset.test is None:
        raise ValueError(f"{dataset.name} has no test images.")
    agreed(lambda: open_folder(recipe))
    begin = time.perf_counter()
    rows = few_shot(
        features,
        dataset.train,
        dataset.test,
        num_classes=len(dataset.class_names),
        batches=functools.partial(
            data.evaluation_batches,
            image_size=features.input_shape[1:3],
            channels=features.input_shape[3],
            batch_size=recipe.batch_size,
            preprocessing=PreprocessingConfig(evaluation=recipe.crop),
            share=share,
        ),
        shots=recipe.shots,
        seeds=range(recipe.seed, recipe.seed + recipe.num_seeds),
        fit=recipe.fit,
        together=Together(stacked, recipe.batch_size // share.count)
        if share.count > 1
        else None,
    )
    seconds = time.perf_counter() - begin
    result = {
        "model": recipe.model.weights,
        "data": dataset.name,
        "num_classes": len(dataset.class_names),
        "num_features": features.output_shape[-1],
        "probe": recipe.probe,
        "summary": summarise_shots(rows),
        "rows": rows,
        "seconds": seconds,
        "versions": versions(),
    }
    agreed(lambda: write_all(recipe, result))
    return result


def open_folder(recipe: FewShot) -> None:
    """Take the run folder, before the work begins."""
    taken = run_folder.taken(recipe.run_dir, overwrite=recipe.overwrite)
    with taken as folder:
        run_folder.begin(folder, dataclasses.asdict(recipe), environment())


def write_all(recipe: FewShot, result: dict) -> None:
    """Fill the run folder with what was found."""
    folder = run_folder.local(recipe.run_dir)
    write_csv(folder / "few_shot.csv", result["rows"])
    save_figure(plot(result), folder / "few_shot.png")
    run_folder.write_result(folder, result)


def smoke(recipe: FewShot) -> FewShot:
    """Return a trial of a recipe, on data that needs no download."""
    return dataclasses.replace(
        recipe,
        data=DataConfig(
            name="digits",
            max_examples=SMOKE_IMAGES,
            reader=recipe.data.reader,
        ),
        layer=None,
        shots=SMOKE_SHOTS,
        batch_size=16,
        run_dir=smoke_dir(recipe.run_dir),
    )


def plot(result: dict):
    """Accuracy over the number of images per class, a dot per seed."""
    from matplotlib.ticker import NullFormatter, PercentFormatter

    figure = new_figure(5.2, 3.6)
    axis = figure.subplots()
    summary, rows = result["summary"], result["rows"]
    per_class = {
        row["shots"]: row["shots"] or row["num_train"] / result["num_classes"]
        for row in rows
    }
    shots = [per_class[row["shots"]] for row in summary]
    means = [row["mean"] for row in summary]
    axis.plot(shots, means, "-", color=BLUE, label="mean")
    axis.plot(
        [per_class[row["shots"]] for row in rows],
        [row["accuracy"] for row in rows],
        "o",
        color=BLUE,
        alpha=0.5,
        label="one choice of images",
    )
    chance = 1 / result["num_classes"]
    axis.axhline(chance, color="grey", linestyle=":", label="chance")
    axis.set_xscale("log")
    axis.set_xticks(shots, [f"{count:.4g}" for count in shots])
    axis.xaxis.set_minor_formatter(NullFormatter())
    axis.yaxis.set_major_formatter(PercentFormatter(xmax=1))
    axis.set(xlabel="training images per class", ylabel="test accuracy")
    axis.set_title(f"Few-shot, {result['data']}", parse_math=False)
    axis.grid(alpha=0.3)
    axis.spines[["top", "right"]].set_visible(False)
    axis.legend(frameon=False)
    return figure


def summary(result: dict) -> str:
    columns = ("images per class", "accuracy", "spread")
    rows = [
        (row["shots"] or "all", f"{row['mean']:.2%}", f"{row['std']:.2%}")
        for row in result["summary"]
    ]
    count = result["rows"][0]["num_test"]
    table = "\n".join(markdown_table(columns, rows, numbers=columns))
    return f"{table}\non {count} test images of {result['data']}"


def main(arguments: list[str] | None = None) -> int:
    words, opens = with_open(arguments)
    recipe = parse(FewShot, words, __doc__, opens=True)
    recipe = smoke(recipe) if recipe.smoke else recipe

    def work():
        with explain_lost_process(recipe.run_dir):
            result = run(recipe)
        if is_first():
            print(summary(result))
        if opens:
            show(recipe.run_dir, "few_shot.png")

    return exit_code(work, "there is no result.")


if __name__ == "__main__":
    sys.exit(main())
