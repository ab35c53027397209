"""Figures of a model as a whole, as Figure 7 of the paper, by matplotlib.

Axes: L blocks, R and C rows and columns of the grid of patches, K filters.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from keras_vit.analysis.drawing import check_axes, mosaic, new_figure

__all__ = [
    "plot_attention_distance",
    "plot_embeddings",
    "plot_patch_filters",
    "plot_position_similarity",
]

# Okabe and Ito's palette, which colour-blind people can tell apart; after
# eight classes the marker changes.
COLOURS = (
    "#0072B2",
    "#D55E00",
    "#009E73",
    "#CC79A7",
    "#E69F00",
    "#56B4E9",
    "#000000",
    "#F0E442",
)
MARKERS = "os^Dv<>p*X"
MAX_LEGEND = 20


def plot_attention_distance(distances: Any):
    """Mean attention distance of each head over the depth (Figure 7, right).

    Args:
        distances: array of shape (L, heads) from `attention_distance`, in
            pixels.

    Returns:
        matplotlib Figure, a dot for each head.

    Raises:
        ValueError: for an array of another number of axes.

    Example:
        >>> plot_attention_distance(attention_distance(model, images))
    """
    from matplotlib.ticker import MaxNLocator

    distances = check_axes("distances", distances, "blocks, heads")
    blocks, heads = distances.shape
    figure = new_figure(4, 3)
    axis = figure.subplots()
    axis.scatter(
        np.repeat(np.arange(blocks), heads),
        distances.ravel(),
        s=14,
        c=np.tile(np.arange(heads), blocks),
        cmap="viridis",
    )
    axis.set(xlabel="block", ylabel="mean attention distance (pixels)")
    axis.set_ylim(0, 1.05 * max(distances.max(), 1))
    axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    axis.grid(alpha=0.3)
    axis.spines[["top", "right"]].set_visible(False)
    return figure


def plot_position_similarity(similarity: Any):
    """Similarity of each position with all others (Figure 7, centre).

    Args:
        similarity: array of shape (R, C, R, C) from `position_similarity`.

    Returns:
        matplotlib Figure, a small map for each patch, placed as the patch is.

    Raises:
        ValueError: for an array of another number of axes.

    Example:
        >>> plot_position_similarity(position_similarity(model))
    """
    similarity = check_axes(
        "similarity", similarity, "rows, columns, rows, columns"
    )
    rows, columns = similarity.shape[:2]
    figure = new_figure(5, 4.2 * (rows / columns) ** 2 + 0.6)
    axis = figure.subplots()
    image = mosaic(axis, similarity, cmap="viridis", vmin=-1, vmax=1)
    axis.set(xlabel="column of the patch", ylabel="row of the patch")
    axis.set_xticks(range(columns))
    axis.set_yticks(range(rows))
    axis.tick_params(labelsize=min(9, 100 / max(rows, columns)))
    figure.colorbar(image, label="cosine similarity", shrink=0.8)
    return figure


def plot_patch_filters(filters: Any, *, columns: int = 7):
    """Principal components of the patch embedding (Figure 7, left).

    Args:
        filters: array of shape (K, height, width, channels) from
            `patch_filters`; with other than 3 channels their mean is drawn.
        columns: int, filters in a row.

    Returns:
        matplotlib Figure, the largest component first, row by row; grey is
        zero, each filter is scaled to its largest value.

    Raises:
        ValueError: for an array of another number of axes.

    Example:
        >>> plot_patch_filters(patch_filters(model))
    """
    filters = check_axes("filters", filters, "filters, height, width, channels")
    if filters.shape[-1] != 3:
        filters = np.repeat(filters.mean(axis=-1, keepdims=True), 3, axis=-1)
    peaks = np.abs(filters).max(axis=(1, 2, 3), keepdims=True)
    colours = 0.5 + filters / np.maximum(2 * peaks, np.finfo("float32").tiny)
    rows = -(-len(filters) // columns)
    empty = np.ones((rows * columns - len(filters), *filters.shape[1:]))
    tiles = np.concatenate([colours, empty])
    height, width = filters.shape[1:3]
    figure = new_figure(0.6 * columns, 0.6 * rows * height / width)
    axis = figure.subplots()
    mosaic(axis, tiles.reshape(rows, columns, *filters.shape[1:]))
    axis.set(xticks=[], yticks=[])
    return figure


def plot_embeddings(
    points: Any, labels: Any = None, class_names: Sequence[str] | None = None
):
    """Images as points in the plane, coloured by class.

    Args:
        points: array of shape (B, 2) from `projection`.
        labels: integer array of shape (B,), classes from 0 on, or None.
        class_names: names of the classes for the legend, which is left out
            above 20 classes; numbers by default.

    Returns:
        matplotlib Figure.

    Raises:
        ValueError: unless there is one label a point.

    Example:
        >>> points = projection(embeddings(model, images), method="tsne")
        >>> plot_embeddings(points, labels, ["cat", "dog"])
    """
    points = check_axes("points", points, "images, 2")
    labels = np.zeros(len(points), int) if labels is None else labels
    labels = check_axes("labels", labels, "images")
    if len(labels) != len(points):
        raise ValueError(
            f"There must be one label a point. Received: {len(points)} points "
            f"and {len(labels)} labels."
        )
    figure = new_figure(4.5, 4)
    axis = figure.subplots()
    found = np.unique(labels)
    for label in found:
        group, cycle = divmod(label, len(COLOURS))
        axis.scatter(
            *points[labels == label].T,
            s=14,
            color=COLOURS[cycle],
            marker=MARKERS[group % len(MARKERS)],
            label=str(class_names[label] if class_names else label),
        )
    axis.set(xticks=[], yticks=[])
    if 1 < len(found) <= MAX_LEGEND:
        legend = figure.legend(loc="outside right center", frameon=False)
        for text in legend.get_texts():
            # A dollar in a name begins no formula.
            text.set_parse_math(False)
    return figure
