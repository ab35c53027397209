"""What the model of a run sees, kept in the run folder for its report.

Axes: M images, H and W height and width, C channels.
"""

import os
import pathlib

import keras
import numpy as np

from keras_vit.analysis import report
from keras_vit.analysis.overview import attention_overview
from keras_vit.files import replacing
from keras_vit.models import VisionTransformer
from keras_vit.variants import VariantTransformer

__all__ = ["explain_run"]

NUM_IMAGES = 8


def explain_run(folder: str | os.PathLike, model: keras.Model) -> None:
    """Keeps for the report of a run what its model sees in some images.

    Writes attention.npz: of mistakes and of right answers, which
    predictions.npz holds, or why there is nothing to show.

    Args:
        folder: the run folder.
        model: the model that was evaluated, on images in [0, 255].

    Example:
        >>> explain_run("runs/quickstart", model)
    """
    folder = pathlib.Path(folder)
    with replacing(folder / "attention.npz") as path:
        report.write_attention(path, _of_run(folder, model))


def _of_run(folder, model):
    """Arrays for attention.npz, or the reason why there are none."""
    if isinstance(model, VariantTransformer):
        return "it is drawn of the plain model alone, and this is a variant."
    if not isinstance(model, VisionTransformer):
        return f"a {type(model).__name__} has no attention."
    if not (folder / "predictions.npz").is_file():
        return "no images were evaluated."
    with np.load(folder / "predictions.npz", allow_pickle=False) as arrays:
        found = dict(arrays)
    pictures, rows, single = _chosen(found)
    inputs = pictures.astype("float32")
    if not model.config.include_preprocessing:
        inputs = inputs / 127.5 - 1.0
    try:
        overview = attention_overview(model, inputs)
    except Exception as error:
        # The run is finished; pictures that a device has no memory for, say,
        # are no reason to lose it.
        return f"it could not be computed ({' '.join(str(error).split())})."
    return report.attention_arrays(
        model,
        overview,
        pictures,
        titles=[f"Image {row}" for row in rows],
        classes=found["classes"][rows],
        probabilities=found["probabilities"][rows],
        labels=found["labels"][rows] if single else None,
    )


def _chosen(found):
    """Pictures of mistakes, then of right answers of different classes."""
    pictures = np.concatenate([found["cell_pictures"], found["pictures"]])
    rows = np.concatenate([found["cell_rows"], found["picture_rows"]])
    labels = found["labels"]
    if labels.ndim > 1:
        return pictures[:NUM_IMAGES], rows[:NUM_IMAGES], False
    right = labels[rows] == found["classes"][rows, 0]
    order = np.argsort(-found["probabilities"][rows, 0], kind="stable")
    wrong = order[~right[order]][: NUM_IMAGES // 2]
    others = np.flatnonzero(right)
    _, first = np.unique(labels[rows[others]], return_index=True)
    chosen = [*wrong, *others[np.sort(first)]]
    # As many as there can be: devices share eight alike.
    chosen = [*chosen, *np.setdiff1d(np.arange(len(rows)), chosen)]
    chosen = chosen[:NUM_IMAGES]
    return pictures[chosen], rows[chosen], True
