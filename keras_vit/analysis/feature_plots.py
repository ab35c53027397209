"""Figures of features: colours of patches, and images with their neighbours.

Axes: B images, H and W height and width, R and C rows and columns of the grid
of patches, Q queries, K neighbours.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from keras_vit.analysis.plots import (
    as_pictures,
    check_axes,
    new_figure,
)

__all__ = ["plot_neighbours", "plot_patch_pca"]

INCHES = 1.6  # width of a picture
SHORTEST = 18  # letters of a name under a picture


def plot_patch_pca(images: Any, colours: Any):
    """Draws images beside the colours of their patches.

    Args:
        images: array (B, H, W, channels), integers in [0, 255] or as the
            model takes them.
        colours: array (B, R, C, 3) in [0, 1] from `patch_pca`.

    Returns:
        matplotlib Figure, a column for each image.

    Raises:
        ValueError: for arrays of other shapes.

    Example:
        >>> (maps,) = keras_vit.features(model, images)
        >>> colours, _ = patch_pca(maps)
        >>> plot_patch_pca(images, colours).savefig("patches.png")
    """
    pictures = as_pictures(images)
    colours = check_axes("colours", colours, "batch, rows, columns, 3")
    if len(pictures) != len(colours) or colours.shape[-1] != 3:
        raise ValueError(
            f"colours must have the shape ({len(pictures)}, rows, columns, 3) "
            f"for these images. Received: an array of shape {colours.shape}. "
            "Give what patch_pca returns first."
        )
    height, width = pictures.shape[1:3]
    size = INCHES * len(pictures), 2 * INCHES * height / width
    figure = new_figure(*size)
    axes = figure.subplots(2, len(pictures), squeeze=False)
    for column, picture, colour in zip(axes.T, pictures, colours, strict=True):
        column[0].imshow(picture)
        column[1].imshow(
            colour, extent=(0, width, height, 0), interpolation="nearest"
        )
    for axis in axes.flat:
        axis.set_axis_off()
    return figure


def plot_neighbours(
    queries: Sequence[tuple[str, Any]],
    neighbours: Sequence[Sequence[tuple[str, Any, float]]],
):
    """Draws query images, each in a row with its nearest images.

    Args:
        queries: Q pairs of a name and a picture, an array (H, W, 3) of any
            size with integers in [0, 255].
        neighbours: for each query K triples of a name, such a picture (or
            None, where there is none to show) and the cosine similarity.

    Returns:
        matplotlib Figure of Q rows and K + 1 columns.

    Raises:
        ValueError: when there is no query, or not a row for each.

    Example:
        >>> plot_neighbours([("a.png", a)], [[("b.png", b, 0.91)]])
    """
    if not len(queries) or len(queries) != len(neighbours):
        raise ValueError(
            "There must be a query, and a list of neighbours for each. "
            f"Received: {len(queries)} queries, {len(neighbours)} lists."
        )
    columns = 1 + max(map(len, neighbours))
    figure = new_figure(INCHES * columns, 1.25 * INCHES * len(queries))
    axes = figure.subplots(len(queries), columns, squeeze=False)
    for axis in axes.flat:
        axis.set_axis_off()
    for row, query, found in zip(axes, queries, neighbours, strict=True):
        _draw(row[0], *query, "query")
        for axis, (name, picture, score) in zip(row[1:], found, strict=False):
            _draw(axis, name, picture, f"{score:.3f}")
    return figure


def _draw(axis, name, picture, title):
    shown = np.full((1, 1, 3), 230, "uint8") if picture is None else picture
    axis.imshow(shown)
    shorter = name if len(name) <= SHORTEST else f"…{name[1 - SHORTEST :]}"
    axis.set_title(f"{title}\n{shorter}", fontsize=7, parse_math=False)
