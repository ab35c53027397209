"""What an evaluation leaves in a run folder, for people and for the report.

Axes: N images, M of them to look at, H and W height and width, C channels, K
classes.
"""

import math
import os
import pathlib
from collections.abc import Iterable, Sequence

import numpy as np

from keras_vit.evaluation.gallery import images_at, of_cells, worst
from keras_vit.evaluation.metrics import per_class, write_per_class
from keras_vit.evaluation.predictions import Predictions
from keras_vit.files import replacing

__all__ = ["write_evaluation"]

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
