"""Figures of images and of what was predicted of them, made by matplotlib.

Axes: B images, H and W height and width, C channels, K classes.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from keras_vit.analysis.drawing import as_pictures, new_figure

__all__ = ["plot_confusion", "plot_images"]

INCHES = 1.6  # width of a picture
MAX_COUNTS = 20  # classes; of more the numbers cannot be read.


def plot_images(images: Any, titles: Sequence[str] = (), *, columns: int = 6):
    """Images side by side, with a line of text above each.

    Args:
        images: array (B, H, W, C), integers in [0, 255] or as the model takes
            them.
        titles: B strings, or none.
        columns: int, images in a row.

    Returns:
        matplotlib Figure.

    Raises:
        ValueError: for an array of another number of axes, or another number
            of titles.

    Example:
        >>> plot_images(images, [class_names[label] for label in labels])
    """
    pictures = as_pictures(images)
    if len(titles) not in (0, len(pictures)):
        raise ValueError(
            f"There must be one title an image. Received: {len(pictures)} "
            f"images and {len(titles)} titles."
        )
    columns = min(columns, len(pictures))
    rows = -(-len(pictures) // columns)
    height = INCHES * pictures.shape[1] / pictures.shape[2] + 0.25
    figure = new_figure(columns * INCHES, rows * height)
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    for axis in axes:
        axis.set_axis_off()
    for axis, picture in zip(axes, pictures, strict=False):
        axis.imshow(picture)
    for axis, title in zip(axes, titles, strict=False):
        # A dollar in a name begins no formula.
        axis.set_title(title, fontsize=9, parse_math=False)
    return figure


def plot_confusion(labels: Any, predicted: Any, class_names: Sequence[str]):
    """Which class was taken for which, as a table of colours.

    Args:
        labels: integer array of shape (B,), the true classes.
        predicted: integer array of shape (B,).
        class_names: K names.

    Returns:
        matplotlib Figure: a row for each true class, whose colours are shares
        of the row, with the numbers of images where there are few classes.

    Raises:
        ValueError: when a class has no name, or the arrays differ in length.

    Example:
        >>> plot_confusion([0, 1, 1], [0, 1, 0], ["cat", "dog"])
    """
    labels, predicted = np.asarray(labels), np.asarray(predicted)
    counts = np.zeros((len(class_names),) * 2, int)  # (K, K)
    if labels.shape != predicted.shape or labels.ndim != 1:
        raise ValueError(
            "There must be one prediction an image. Received: labels of shape "
            f"{labels.shape}, predictions of shape {predicted.shape}."
        )
    met = np.union1d(labels, predicted)
    if met.size and not 0 <= met.min() <= met.max() < len(counts):
        raise ValueError(
            f"Classes are numbers from 0 to {len(counts) - 1}, as there are "
            f"{len(counts)} names. Received: {met.min()} to {met.max()}."
        )
    np.add.at(counts, (labels, predicted), 1)
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    side = min(0.4 * len(counts) + 2, 9)
    figure = new_figure(side + 0.6, side)
    axis = figure.subplots()
    image = axis.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    axis.set(xlabel="predicted", ylabel="true")
    figure.colorbar(image, label="share of the true class", shrink=0.8)
    if len(counts) <= MAX_COUNTS:
        _write_counts(axis, counts, shares, class_names)
    return figure


def _write_counts(axis, counts, shares, class_names):
    places = range(len(counts))
    names = {"labels": class_names, "parse_math": False}
    axis.set_xticks(places, **names, rotation="vertical")
    axis.set_yticks(places, **names)
    for (i, j), count in np.ndenumerate(counts):
        colour = "white" if shares[i, j] > 0.5 else "black"
        axis.text(j, i, str(count), color=colour, ha="center", va="center")
