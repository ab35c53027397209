"""Numbers that a model predicts for every image of a split, and their errors.

Axes: N images, K numbers of each.
"""

import dataclasses
import os
import pathlib
from collections.abc import Sequence

import numpy as np

from keras_vit.evaluation.predictions import predict_classes
from keras_vit.io.atomic_files import write_csv

__all__ = ["Numbers", "predict_numbers", "summarise_numbers", "write_numbers"]


@dataclasses.dataclass(frozen=True)
class Numbers:
    """The numbers of N images, and those that a model predicts.

    Attributes:
        true: float64 array of shape (N, K).
        predicted: float64 array of shape (N, K).
        names: N texts or numbers, the file of each image or which it is.
    """

    true: np.ndarray
    predicted: np.ndarray
    names: Sequence

    def __len__(self) -> int:
        return len(self.true)


def predict_numbers(
    model, batches, examples, names: Sequence[str] | None = None, **options
) -> Numbers:
    """Predict the numbers of every image that can be read.

    Args:
        model: a Keras model from images to (B, K) in the units of the labels.
        batches: `evaluation_batches` of the images.
        examples: the `Examples` themselves.
        names: of `keras_vit.data.file_names`.
        **options: `verbose`, `together` and `tta` of `predict_classes`.

    Returns:
        `Numbers`, in the order of the batches.

    Raises:
        ValueError: as `predict_classes`, or for labels that are no numbers of
            this model.

    Example:
        >>> found = predict_numbers(model, batches, dataset.test)
        >>> summarise_numbers(found)["mae"]
    """
    num_outputs = model.output_shape[-1]
    labels = examples.labels
    if labels.dtype.kind != "f" or labels.shape[1:] != (num_outputs,):
        raise ValueError(
            f"The model predicts {num_outputs} number(s) of an image. "
            f"Received: labels of {examples.source} that are {labels.dtype} of "
            f"shape {labels.shape}. Give the columns that it was trained on, "
            "as data.label_key, and data.label_kind number."
        )
    found = predict_classes(
        model,
        batches,
        top=num_outputs,
        activation="linear",
        names=[str(i) for i in range(len(examples))],
        **options,
    )
    rows = np.array(found.names, int)
    return Numbers(
        labels[rows].astype("float64"),
        found.by_class(),
        rows.tolist() if names is None else [names[row] for row in rows],
    )


def summarise_numbers(found: Numbers) -> dict[str, float | int | dict]:
    """Compute the mean absolute error and R2, as scikit-learn does.

    `mean_absolute_error` and `r2_score`: means over the K numbers.

    Args:
        found: `Numbers`.

    Returns:
        Dict of "mae", in the units of the labels, "r2" and "num_examples".

    Example:
        >>> summarise_numbers(Numbers(true, predicted, names))["r2"]
    """
    difference = found.true - found.predicted
    error = (difference**2).sum(axis=0)  # (K,)
    spread = ((found.true - found.true.mean(axis=0)) ** 2).sum(axis=0)
    # Of a number that is the same everywhere: 1 where it is met, else 0.
    constant = (error == 0).astype(float)
    r2 = np.where(spread > 0, 1 - error / np.where(spread, spread, 1), constant)
    return {
        "mae": float(np.abs(difference).mean()),
        "r2": float(r2.mean()),
        "num_examples": len(found),
    }


def write_numbers(
    folder: str | os.PathLike, found: Numbers, names: Sequence[str]
) -> None:
    """Write predictions.csv: of each image the true and predicted numbers.

    Args:
        folder: the run folder.
        found: `Numbers`.
        names: of the K numbers.

    Example:
        >>> write_numbers("runs/a", found, ["width", "height"])
    """
    rows = [
        {"image": str(image)}
        | {
            f"{kind} {name}": float(value)
            for kind, values in (("true", true), ("predicted", predicted))
            for name, value in zip(names, values, strict=True)
        }
        for image, true, predicted in zip(
            found.names, found.true, found.predicted, strict=True
        )
    ]
    write_csv(pathlib.Path(folder) / "predictions.csv", rows)
