"""One training of an experiment, and what is measured of it.

Options are those of recipes/finetune.py. Added are `images_a_class`, which
keeps so many training images of each class, options that begin with
`pretraining.`, of a training that the model is pre-trained by first, and
`pretraining.recipe`, which that training is of: pretrain or masked_patch.
"""

import dataclasses
import functools
import hashlib
import json
import pathlib
import time

import keras

from keras_vit import data
from keras_vit.analysis import multiply_adds
from keras_vit.data import DataConfig
from keras_vit.evaluation.few_shot import (
    SHOTS,
    choose_shots,
    feature_model,
    few_shot,
)
from keras_vit.runs.reporting import evaluated
from keras_vit.runs.script import parse
from keras_vit.training import Recipe, run_folder, train
from keras_vit.training.build import make_model
from keras_vit.training.masked_patch.task import MASKED_PATCH
from keras_vit.training.task import CLASSIFICATION, Task

__all__ = ["SHOTS_AXIS", "measured"]

IMAGES_A_CLASS = "images_a_class"
PRETRAINING = "pretraining."
RECIPE = "recipe"
TASKS = {"pretrain": CLASSIFICATION, "masked_patch": MASKED_PATCH}
SHOTS_AXIS = "images a class"


def measured(
    options: dict, *, seed: int, folder: pathlib.Path, probe: bool
) -> list[dict]:
    """Trains and measures one combination of options.

    Args:
        options: name to value.
        seed: int, of everything that is drawn.
        folder: run folder; pre-trainings stand beside it.
        probe: bool, whether to fit few-shot classifiers to the features as
            they are, and not to train on the data.

    Returns:
        Dictionaries with "accuracy" and "seconds"; one for each number of
        shots of a probe.

    Raises:
        SystemExit: when an option is unknown or wrong.

    Example:
        >>> options = {"config": "recipes/configs/digits_from_fractals.yaml"}
        >>> measured(options, seed=0, folder=Path("runs/x"), probe=False)
    """
    keras.utils.clear_session()
    begin = time.perf_counter()
    *before, recipe = recipes_of(options, seed=seed, folder=folder)
    task = TASKS[options.get(PRETRAINING + RECIPE, "pretrain")]
    for one in before:
        pretrain(one, task)
    dataset = opened(recipe.data)
    if probe:
        found = probed(recipe, dataset)
    else:
        few = few_images(dataset, options.get(IMAGES_A_CLASS), seed)
        found = [tested(recipe, few)]
    seconds = time.perf_counter() - begin
    return [{**row, "seconds": round(seconds, 1)} for row in found]


def recipes_of(
    options: dict, *, seed: int, folder: pathlib.Path
) -> list[Recipe]:
    """The recipes of a combination of options.

    Args:
        options: name to value.
        seed: int.
        folder: run folder of the last one.

    Returns:
        That of the pre-training, if there is one, and the one that is
        measured.

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
        return [_recipe(options, seed, folder)]
    # Its name is its content: combinations share what is the same.
    text = json.dumps([before, seed], sort_keys=True)
    digest = hashlib.sha256(text.encode()).hexdigest()[:12]
    weights = folder.parent / f"pretraining-{digest}"
    options["model.weights"] = str(weights)
    before.pop(RECIPE, None)
    return [
        _recipe(before, seed, weights),
        _recipe(options, seed, folder),
    ]


def _recipe(options, seed, folder):
    words = [
        f"--{key}={value if isinstance(value, str) else json.dumps(value)}"
        for key, value in options.items()
    ]
    words += [f"--seed={seed}", f"--run_dir={folder}", "--overwrite=true"]
    return parse(Recipe, words, "")


def pretrain(recipe: Recipe, task: Task) -> None:
    """Trains unless the run folder has that model already.

    Args:
        recipe: a `Recipe`.
        task: a `Task`, with labels or without.
    """
    result = pathlib.Path(recipe.run_dir, run_folder.RESULT)
    if not result.exists():
        trained = train(recipe, task=task)
        run_folder.write_json(result, {"seconds": trained.seconds})
        keras.utils.clear_session()


@functools.cache
def opened(config: DataConfig) -> data.Dataset:
    """The data of several runs, opened once."""
    return data.open_dataset(config)


def few_images(dataset, images_a_class: int | None, seed: int):
    """A data set with a few training images of each class.

    Args:
        dataset: a `Dataset` of `Examples`.
        images_a_class: int, None for all.
        seed: int, of the choice.

    Returns:
        A `Dataset`; few images have no validation images.
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


def tested(recipe: Recipe, dataset) -> dict:
    """Trains and counts the test images that are right.

    Args:
        recipe: a `Recipe`.
        dataset: a `Dataset` with test images.

    Returns:
        "accuracy" and, where there are validation images, theirs.
    """
    trained = train(recipe, dataset=dataset)
    result = evaluated(trained, recipe, "test")
    run_folder.write_json(trained.folder / run_folder.RESULT, result)
    row = {
        "accuracy": result["top1"],
        "parameters": trained.model.count_params(),
        "multiply_adds": sum(multiply_adds(trained.model).values()),
    }
    if trained.history.get("val_accuracy"):
        row["validation_accuracy"] = trained.history["val_accuracy"][-1]
    return row


def probed(recipe: Recipe, dataset) -> list[dict]:
    """Few-shot accuracies of a model as its weights are.

    Args:
        recipe: a `Recipe`, of which the model, the images and the seed are
            used: that of the choice of images and of weights that are drawn.
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
            batch_size=recipe.training.batch_size,
            preprocessing=recipe.preprocessing,
        ),
        shots=SHOTS,
        seeds=[recipe.seed],
    )
    return [
        {SHOTS_AXIS: row["shots"], "accuracy": row["accuracy"]} for row in rows
    ]
