"""The rounds of Noisy Student, each a run that is begun, continued or done.

Axes: N images, K classes.
"""

import dataclasses
import pathlib

import numpy as np

from keras_vit import data
from keras_vit.experiments.finished import result_of
from keras_vit.experiments.noisy_student.networks import of_network
from keras_vit.experiments.noisy_student.pseudo_labels import (
    chosen,
    pseudo_labels,
)
from keras_vit.experiments.noisy_student.unlabelled import (
    joined,
    split_labelled,
)
from keras_vit.experiments.reporting import (
    evaluated,
    facts,
    finish,
)
from keras_vit.files import replacing
from keras_vit.training import Recipe, model_file, train
from keras_vit.training.distribution.processes import agreed

__all__ = ["check_networks", "iterate"]

LABELS = "pseudo_labels.npz"


def check_networks(recipe: Recipe) -> None:
    """Raises a ValueError for a network that there is not.

    Args:
        recipe: a `Recipe`.
    """
    for network in recipe.noisy_student.networks:
        of_network(recipe, network)


def iterate(recipe: Recipe) -> list[dict]:
    """Trains the teacher and the students of a recipe.

    Args:
        recipe: a `Recipe`. Each round has a run folder in its own, with
            what it says of the images without labels beside its model.

    Returns:
        A dictionary a round: iteration, network, num_parameters,
        num_train_images, split, top1 and, for a student, num_pseudo_labelled;
        of images whose labels were forgotten, pseudo_label_accuracy as well.

    Raises:
        ValueError: when recipe, data and folders do not fit together.

    Example:
        >>> [row["top1"] for row in iterate(recipe)]
    """
    check_networks(recipe)
    dataset = data.open_dataset(recipe.data)
    labelled, unlabelled = split_labelled(recipe, dataset)
    examples, rows, more = labelled, [], {}
    for number, network in enumerate(recipe.noisy_student.networks):
        stage, task = of_network(_stage(recipe, number), network)
        given = dataclasses.replace(dataset, train=examples)
        result = _finished(stage, task, given, more)
        rows.append({"iteration": number, "network": _told(network), **result})
        if number + 1 < len(recipe.noisy_student.networks):
            shares = _labels_of(stage, unlabelled)
            picked, labels = chosen(shares, recipe.noisy_student)
            examples = joined(labelled, unlabelled.subset(picked), labels)
            more = _of_labels(recipe, shares, unlabelled, picked)
    return rows


def _stage(recipe, number):
    folder = pathlib.Path(recipe.run_dir, f"iteration_{number}")
    return dataclasses.replace(recipe, run_dir=str(folder))


def _told(network):
    """A network in a cell of a table."""
    fields = [f"{key}={x}" for key, x in network.items() if key != "name"]
    return " ".join([network.get("name", "model"), *fields])


def _finished(stage, task, dataset, more):
    """The result of a round, which is trained unless it is finished."""
    known = agreed(lambda: result_of(stage))
    if known is None:
        run = train(stage, dataset=dataset, task=task)
        part = "test" if dataset.test else "validation"
        known = agreed(
            lambda: finish(
                run,
                stage,
                {**more, **evaluated(run, stage, part), **facts(run)},
            )
        )
    columns = ("num_parameters", "num_train_images", "split", "top1")
    return {name: known[name] for name in (*columns, *more)}


def _labels_of(stage, unlabelled) -> np.ndarray:
    """What a teacher says (N, K), told once."""
    path = pathlib.Path(stage.run_dir, LABELS)
    agreed(lambda: None if path.is_file() else _write(path, stage, unlabelled))
    with np.load(path, allow_pickle=False) as arrays:
        shares = arrays["probabilities"]
    if len(shares) != len(unlabelled):
        raise ValueError(
            f"{str(path)!r} is of {len(shares)} images, and there are "
            f"{len(unlabelled)} without labels now. Remove the run folders, "
            "or choose another --run_dir."
        )
    return shares


def _write(path, stage, unlabelled):
    model, _ = model_file.load(path.with_name("model.keras"))
    shares = pseudo_labels(model, unlabelled, stage)
    with replacing(path) as temporary:
        np.savez_compressed(temporary, probabilities=shares)


def _of_labels(recipe, shares, unlabelled, picked) -> dict:
    """What is known of the pseudo-labels that a student gets."""
    known: dict[str, float] = {"num_pseudo_labelled": len(picked)}
    if recipe.noisy_student.unlabelled is None and unlabelled.labels.ndim == 1:
        right = shares.argmax(axis=1) == unlabelled.labels
        known["pseudo_label_accuracy"] = float(right.mean())
    return known
