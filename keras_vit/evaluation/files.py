"""What an evaluation leaves in a run folder, for people and for the report.

Axes: N images, M of them to look at, H and W height and width, C channels, K
classes.
"""

import os
import pathlib
from collections.abc import Iterable, Sequence

from keras_vit.evaluation.gallery import images_at, worst
from keras_vit.evaluation.metrics import per_class, write_per_class
from keras_vit.evaluation.predictions import Predictions
from keras_vit.files import replacing

__all__ = ["write_evaluation"]


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
    `picture_rows` of shape (M,), which of the N images they are. The table
    by class is left out where images have several labels.

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
    pictures = images_at(batches, rows)
    with replacing(folder / "predictions.npz") as path:
        predictions.save(path, pictures=pictures, picture_rows=rows)
    if predictions.labels.ndim == 1:
        table = per_class(
            predictions.labels, predictions.classes[:, 0], class_names
        )
        with replacing(folder / "per_class.csv") as path:
            write_per_class(path, table)
