"""Figures of images: attention, saliency, features, and nearest neighbours.

Axes: B images, H and W height and width, R and C rows and columns of the grid
of patches, L blocks, Q queries, K neighbours.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from keras_vit.analysis.plots import (
    as_pictures,
    check_axes,
    mosaic,
    new_figure,
    overlay,
)

__all__ = [
    "plot_attention_maps",
    "plot_attention_rollout",
    "plot_evolution",
    "plot_gradient_cam",
    "plot_neighbours",
    "plot_patch_pca",
    "plot_saliency",
]

INCHES = 1.9  # width of a picture
TINY = float(np.finfo("float32").tiny)
SMALL = 1.6  # width of one among neighbours or patches
SHORTEST = 18  # letters of a name under a picture


def plot_attention_rollout(images: Any, rollout: Any):
    """Draw images beside their attention rollout, as Figure 6 of the paper.

    Args:
        images: array (B, H, W, C), integers in [0, 255] or as the model takes
            them.
        rollout: array (B, R, C) from `attention_rollout`, or (B, H, W).

    Returns:
        matplotlib Figure.

    Raises:
        ValueError: for arrays of other shapes.

    Example:
        >>> rollout = attention_rollout(model, images)
        >>> plot_attention_rollout(images, rollout).savefig("rollout.pdf")
    """
    shown = overlay(images, rollout, blur=1)
    return _pairs(as_pictures(images), shown, "attention")


def plot_gradient_cam(images: Any, maps: Any):
    """Draw images beside the patches that speak for the class.

    Args:
        images: array (B, H, W, C), integers in [0, 255] or as the model takes
            them.
        maps: array (B, R, C) from `gradient_cam`, or (B, H, W).

    Returns:
        matplotlib Figure.

    Raises:
        ValueError: for arrays of other shapes.

    Example:
        >>> plot_gradient_cam(images, gradient_cam(model, images))
    """
    return _pairs(as_pictures(images), overlay(images, maps), "Grad-CAM")


def plot_saliency(images: Any, maps: Any):
    """Draw images beside their saliency maps.

    Args:
        images: array (B, H, W, C), integers in [0, 255] or as the model takes
            them.
        maps: array (B, H, W) from `saliency`. Where there are negative values
            red speaks for the class and blue against it. The strongest
            hundredth of the pixels has the strongest colour.

    Returns:
        matplotlib Figure.

    Raises:
        ValueError: for arrays of other shapes.

    Example:
        >>> plot_saliency(images, saliency(model, images))
    """
    maps = check_axes("maps", maps, "batch, height, width")
    signed = maps.min() < 0
    limits = np.quantile(np.abs(maps), 0.99, axis=(1, 2))[:, None, None]
    relative = maps / np.maximum(limits, TINY)
    return _pairs(
        as_pictures(images),
        relative,
        "saliency",
        cmap="RdBu_r" if signed else "inferno",
        vmin=-1 if signed else 0,
        vmax=1,
    )


def _pairs(pictures, results, title, **options):
    """Two columns: inputs and results."""
    if len(pictures) != len(results):
        raise ValueError(
            f"There must be one map per image. Received: {len(pictures)} "
            f"images and {len(results)} maps."
        )
    height = INCHES * pictures.shape[1] / pictures.shape[2]
    figure = new_figure(2 * INCHES, len(pictures) * height + 0.3)
    axes = figure.subplots(len(pictures), 2, squeeze=False)
    for row, picture, result in zip(axes, pictures, results, strict=True):
        row[0].imshow(picture)
        row[1].imshow(result, **options)
    for axis in axes.flat:
        axis.set_axis_off()
    axes[0, 0].set_title("input", fontsize=10)
    axes[0, 1].set_title(title, fontsize=10)
    return figure


def plot_attention_maps(grids: Any):
    """Draw the attention of each block and head in one image.

    Args:
        grids: array of shape (L, heads, R, C): of `attention_grids` the part
            of one image, `grids[:, 0]`. Each map is scaled to its maximum.

    Returns:
        matplotlib Figure, a row for each block, a column for each head.

    Raises:
        ValueError: for an array of another number of axes.

    Example:
        >>> grids = attention_grids(model, attention_maps(model, images))
        >>> plot_attention_maps(grids[:, 0])
    """
    grids = check_axes("grids", grids, "blocks, heads, rows, columns")
    peaks = grids.max(axis=(2, 3), keepdims=True)
    blocks, heads, rows, columns = grids.shape
    width = min(0.6 * heads + 0.8, 10)
    height = width * blocks * rows / (heads * columns) + 0.6
    figure = new_figure(width, height)
    axis = figure.subplots()
    mosaic(axis, grids / np.maximum(peaks, TINY), cmap="inferno", vmin=0)
    axis.set(xlabel="head", ylabel="block")
    axis.set_xticks(range(heads))
    axis.set_yticks(range(blocks))
    return figure


def plot_evolution(images: Any, maps: Any):
    """Draw images and the colours of their patches from block to block.

    Args:
        images: array (B, H, W, C), integers in [0, 255] or as the model takes
            them.
        maps: array (L + 1, B, R, C, 3) from `evolution`.

    Returns:
        matplotlib Figure, a row for each image: the image, its patches before
        the first block, then after each block.

    Raises:
        ValueError: for arrays of other shapes.

    Example:
        >>> plot_evolution(images, evolution(model, images))
    """
    maps = check_axes("maps", maps, "blocks + 1, batch, rows, columns, 3")
    pictures = as_pictures(images)
    if len(pictures) != maps.shape[1] or maps.shape[-1] != 3:
        raise ValueError(
            f"maps must have the shape (blocks + 1, {len(pictures)}, rows, "
            f"columns, 3) for these images. Received: maps of shape "
            f"{maps.shape}. Use evolution(model, images, num_components=3)."
        )
    peaks = np.abs(maps).max(axis=(2, 3, 4), keepdims=True)
    colours = 0.5 + maps / np.maximum(2 * peaks, TINY)
    columns = len(maps) + 1
    height = pictures.shape[1] / pictures.shape[2]
    figure = new_figure(columns, len(pictures) * height + 0.3)
    axes = figure.subplots(len(pictures), columns, squeeze=False)
    titles = ["input", "patches", *map(str, range(len(maps) - 1))]
    for j, title in enumerate(titles):
        axes[0, j].set_title(title, fontsize=8)
        for i, picture in enumerate(pictures):
            axes[i, j].imshow(picture if j == 0 else colours[j - 1, i])
            axes[i, j].set_axis_off()
    return figure


def plot_patch_pca(images: Any, colours: Any):
    """Draw images beside the colours of their patches.

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
    size = SMALL * len(pictures), 2 * SMALL * height / width
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
    """Draw query images, each in a row with its nearest images.

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
    figure = new_figure(SMALL * columns, 1.25 * SMALL * len(queries))
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
