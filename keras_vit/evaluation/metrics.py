"""Numbers of a split: counted exactly, in NumPy, from the predictions.

Axes: N images, M of them to look at, H and W height and width, C channels, K
classes.
"""

import csv
import math
import os
import pathlib
from collections.abc import Iterable, Sequence

import numpy as np

from keras_vit.evaluation.gallery import images_at, of_cells, worst
from keras_vit.evaluation.predictions import Predictions, predict_classes
from keras_vit.files import replacing

__all__ = [
    "evaluate",
    "multi_hot",
    "per_class",
    "summarise",
    "top_k_accuracy",
    "write_evaluation",
    "write_per_class",
]

SCORES = ("precision", "recall", "f1")


def evaluate(model, batches, **options) -> dict[str, float | int]:
    """Accuracy of a model on every image of a split.

    Args:
        model: a Keras model from images to scores.
        batches: padded batches of (images, labels, mask), see
            `predict_classes`.
        **options: `activation`, `class_map` and `verbose` of
            `predict_classes`.

    Returns:
        Dict of "top1" and "top5", shares in [0, 1], and "num_examples", the
        images that they are shares of; see `summarise`.

    Raises:
        ValueError: as `predict_classes`.

    Example:
        >>> batch = (images, labels, np.ones(len(images), bool))
        >>> evaluate(model, [batch])["top1"]
    """
    return summarise(predict_classes(model, batches, top=5, **options))


def summarise(predictions: Predictions) -> dict[str, float | int]:
    """The accuracies that papers give.

    Args:
        predictions: `Predictions` of at least one image with a label.

    Returns:
        Dict of "top1" and "top5", the shares of the images with a label whose
        label, or one of whose labels, is the most probable class, or among
        the five most probable ones; "num_examples", the number of images with
        a label; and "num_unlabelled", of those that are left out for having
        none.

    Raises:
        ValueError: no image has a label.

    Example:
        >>> summarise(predict_classes(model, batches))["num_examples"]
        10000
    """
    num_examples = int(predictions.labelled.sum())
    return {
        "top1": top_k_accuracy(predictions, 1),
        "top5": top_k_accuracy(predictions, 5),
        "num_examples": num_examples,
        "num_unlabelled": len(predictions) - num_examples,
    }


def top_k_accuracy(predictions: Predictions, k: int) -> float:
    """Share of the labelled images with a label among k most probable classes.

    With several labels an image this is ImageNet-ReaL's accuracy (arXiv
    2006.07159, section 3): any of them is right, and images without labels
    are left out.

    Args:
        predictions: `Predictions`.
        k: int.

    Returns:
        float in [0, 1].

    Raises:
        ValueError: no image has a label, or fewer than k classes an image
            were kept (and fewer than there are).

    Example:
        >>> top_k_accuracy(predictions, 5)
    """
    kept = predictions.classes.shape[1]
    if k < 1 or k > kept < predictions.num_classes:
        raise ValueError(f"k must be from 1 to {kept}. Received: k={k}.")
    num_labelled = int(predictions.labelled.sum())
    if not num_labelled:
        raise ValueError(
            "No image has a label. Received: predictions of "
            f"{len(predictions)} images."
        )
    right = predictions.right[:, :k].max(axis=1)
    return int(right.sum()) / num_labelled  # Without a label none is right.


def multi_hot(
    label_sets: Iterable[Iterable[int]], num_classes: int
) -> np.ndarray:
    """Several labels an image, or none, as the array that `Predictions` takes.

    Args:
        label_sets: for each image the numbers of its classes.
        num_classes: int, K.

    Returns:
        Boolean array of shape (N, K).

    Raises:
        ValueError: a label is not in 0..K-1.

    Example:
        >>> multi_hot([[0, 2], []], num_classes=3).astype(int).tolist()
        [[1, 0, 1], [0, 0, 0]]
    """
    label_sets = [list(labels) for labels in label_sets]
    array = np.zeros((len(label_sets), num_classes), bool)
    for i, labels in enumerate(label_sets):
        if not all(0 <= label < num_classes for label in labels):
            raise ValueError(
                f"Labels must be from 0 to {num_classes - 1}. Received: "
                f"{labels} of image {i}."
            )
        array[i, labels] = True
    return array


def per_class(labels, predicted, class_names) -> list[dict]:
    """How well each class is found.

    Args:
        labels: integer array of shape (N,), the true classes.
        predicted: integer array of shape (N,).
        class_names: K names.

    Returns:
        A dict for each class: "class", its name; "images", how many there
        are; "predicted", how often it was the answer; "precision", the share
        of right ones among its answers; "recall", the share of its images
        that were found; "f1", the harmonic mean of the two. None where there
        is nothing to take a share of.

    Example:
        >>> per_class([0, 1, 1], [0, 0, 1], ["cat", "dog"])[1]["recall"]
        0.5
    """
    from sklearn.metrics import precision_recall_fscore_support

    numbers = np.arange(len(class_names))
    *scores, images = precision_recall_fscore_support(
        labels, predicted, labels=numbers, zero_division=math.nan
    )
    answers = np.bincount(predicted, minlength=len(numbers))
    return [
        {"class": class_names[i], "images": int(images[i])}
        | {"predicted": int(answers[i])}
        | {
            name: None if math.isnan(score[i]) else float(score[i])
            for name, score in zip(SCORES, scores, strict=True)
        }
        for i in numbers
    ]


def write_per_class(path: str | os.PathLike, rows: list[dict]) -> None:
    """Writes the table of `per_class` as CSV.

    Args:
        path: the file; an empty field where there is no score.
        rows: what `per_class` returned.

    Example:
        >>> write_per_class("per_class.csv", per_class(labels, found, names))
    """
    with open(path, "w", newline="", encoding="utf-8") as file:
        table = csv.DictWriter(file, rows[0], lineterminator="\n")
        table.writeheader()
        table.writerows(rows)


# What stands behind the cells of a confusion matrix: 111 images of 224x224.
MAX_CELL_PICTURES = 400
MAX_CELL_BYTES = 2**24


def write_evaluation(
    folder: str | os.PathLike,
    predictions: Predictions,
    batches: Iterable,
    class_names: Sequence[str],
    *,
    num_pictures: int = 24,
) -> None:
    """Writes predictions.npz and per_class.csv.

    predictions.npz holds the arrays of `Predictions` and the images that
    `worst` chooses: `pictures`, uint8 of shape (M, H, W, C), and
    `picture_rows` of shape (M,), which of the N images they are. Where images
    have one label, further images that `of_cells` chooses are `cell_pictures`
    and `cell_rows`. The table by class is left out where images have several
    labels.

    Args:
        folder: the run folder.
        predictions: `Predictions` of N images.
        batches: the padded batches that they were made on.
        class_names: K names, in the order of the model's outputs.
        num_pictures: int, M at most.

    Raises:
        ValueError: the class names or the batches are not those of the
            predictions.

    Example:
        >>> predictions = predict_classes(model, batches)
        >>> write_evaluation("runs/a", predictions, batches, class_names)
    """
    if len(class_names) != predictions.num_classes:
        raise ValueError(
            f"The model has {predictions.num_classes} classes. Received: "
            f"{len(class_names)} class names."
        )
    folder = pathlib.Path(folder)
    rows = worst(predictions, num_pictures)
    more = _more_rows(predictions, batches, rows)
    pictures = images_at(batches, [*rows, *more])
    with replacing(folder / "predictions.npz") as path:
        predictions.save(
            path,
            pictures=pictures[: len(rows)],
            picture_rows=rows,
            cell_pictures=pictures[len(rows) :],
            cell_rows=more,
        )
    if predictions.labels.ndim == 1:
        table = per_class(
            predictions.labels, predictions.classes[:, 0], class_names
        )
        with replacing(folder / "per_class.csv") as path:
            write_per_class(path, table)


def _more_rows(predictions, batches, rows):
    """Images of the cells that are not among the rows."""
    if predictions.labels.ndim > 1:
        return np.zeros(0, int)
    images, _, _ = next(iter(batches))
    affordable = MAX_CELL_BYTES // math.prod(images.shape[1:])
    chosen = of_cells(predictions, min(MAX_CELL_PICTURES, affordable))
    return chosen[~np.isin(chosen, rows)]
