"""Figures of models, predictions, logs and images, and what all figures share.

Axes: B images, H and W height and width, C channels, K classes or filters, L
blocks; on the grid of patches R rows and C columns; in figures of neighbours Q
queries with K neighbours each.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from keras_vit.io.checks import (
    check_classes,
    check_finite,
    check_installed,
    check_kind,
    check_whole,
)

__all__ = [
    "as_pictures",
    "check_axes",
    "curves",
    "grouped",
    "mosaic",
    "new_figure",
    "overlay",
    "plot_attention_distance",
    "plot_attention_maps",
    "plot_attention_rollout",
    "plot_confusion",
    "plot_embeddings",
    "plot_evolution",
    "plot_gradient_cam",
    "plot_images",
    "plot_neighbours",
    "plot_patch_filters",
    "plot_patch_pca",
    "plot_position_similarity",
    "plot_saliency",
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
LINES = ("-", "--")  # A line style says what a colour says.
MAX_LEGEND = 20  # classes
MAX_COUNTS = 20  # classes; of more the numbers cannot be read.
INCHES = 1.6  # width of a picture
# Width and height of a figure of a page in inches: in a column of the page, or
# on a phone, its text is as large as the page's.
PAGE_WIDTH, PAGE_HEIGHT = 3.8, 2.6
HEAD_COLOURS = 6  # of COLOURS; after these heads the marker changes.
LEGEND_ROWS = 8
GAP = 0.08  # of the longer side of a tile
PICTURE_INCHES = 1.9  # width of a map over its picture
TINY = float(np.finfo("float32").tiny)
SMALL = 1.6  # width of one among neighbours or patches
SHORTEST = 18  # letters of a name under a picture


def new_figure(width: float, height: float):
    """Make a matplotlib figure of so many inches, without overlaps."""
    check_installed("A figure", "matplotlib")
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def grouped(number: float) -> str:
    """Return a number for readers, thousands in groups of three.

    Example:
        >>> grouped(305386).split()
        ['305', '386']
    """
    if abs(number) < 1000 or not math.isfinite(number):
        return f"{number:g}"
    return f"{number:,.0f}".replace(",", "\N{NARROW NO-BREAK SPACE}")


def check_axes(name: str, array: Any, axes: str) -> np.ndarray:
    """Return an array, if it has as many axes as their names in `axes`."""
    array = np.asarray(array)
    if array.ndim != len(axes.split(",")) or not array.size:
        raise ValueError(
            f"{name} must have the shape ({axes}). Received: an array of "
            f"shape {array.shape}. Select or add an axis, as in "
            f"{name}[0] or {name}[np.newaxis]."
        )
    return array


def as_pictures(images: Any) -> np.ndarray:
    """Images as (B, H, W, 3) in [0, 1].

    Args:
        images: array (B, H, W, C): integers, or floats that go above 1, in
            [0, 255]; other floats in [-1, 1], as a model takes them. With
            other than 3 channels the grey of their mean is drawn.
    """
    images = check_axes("images", images, "batch, height, width, channels")
    check_finite(images=images)
    bytes_ = np.issubdtype(images.dtype, np.integer) or images.max() > 1
    pictures = images / 255 if bytes_ else (images + 1) / 2
    if pictures.shape[-1] != 3:
        grey = pictures.mean(axis=-1, keepdims=True)
        pictures = np.repeat(grey, 3, axis=-1)
    return np.clip(pictures, 0, 1)


def overlay(images: Any, maps: Any, *, blur: float = 0) -> np.ndarray:
    """Darken images where their maps are low.

    As the pictures of attention in "An Image Is Worth 16x16 Words"
    (arXiv:2010.11929), by vision_transformer#27: the map is divided by its
    maximum, enlarged by Lanczos's filter, blurred, and used as a mask.

    Args:
        images: array (B, H, W, C), see `as_pictures`.
        maps: array (B, rows, columns), not negative, on the grid of patches
            or of the size of the images (see `to_pixels`).
        blur: float, radius of a Gaussian blur in patches; 1 in the paper.

    Returns:
        uint8 array of shape (B, H, W, 3).

    Raises:
        ValueError: for arrays of other numbers of axes or of images.

    Example:
        >>> overlay(images, attention_rollout(model, images), blur=1)
    """
    pictures = as_pictures(images)
    maps = check_axes("maps", maps, "batch, rows, columns")
    check_finite(maps=maps)
    _check_numbers(pictures, maps)
    check_kind(float, blur=blur)
    if blur < 0:
        raise ValueError(f"blur must be 0 or more. Received: blur={blur}.")
    size = pictures.shape[1:3]
    masks = np.stack([_mask(grid, size, blur) for grid in maps])  # (B, H, W)
    return np.round(255 * pictures * masks[..., None]).astype("uint8")


def _check_numbers(pictures, maps):
    if len(pictures) != len(maps):
        raise ValueError(
            f"There must be one map per image. Received: {len(pictures)} "
            f"images and {len(maps)} maps."
        )


def _mask(grid, size, blur):
    from PIL import Image, ImageFilter

    tiny = np.finfo("float32").tiny
    height, width = size
    relative = (grid / max(grid.max(), tiny)).astype("float32")
    mask = Image.fromarray(relative)
    mask = mask.resize((width, height), Image.Resampling.LANCZOS)
    if blur:
        # Pillow blurs bytes only.
        bytes_ = np.clip(255 * np.asarray(mask), 0, 255).astype("uint8")
        radii = blur * width / grid.shape[1], blur * height / grid.shape[0]
        blurred = Image.fromarray(bytes_).filter(
            ImageFilter.GaussianBlur(radii)
        )
        mask = np.asarray(blurred, "float32")
        mask = mask / max(mask.max(), tiny)
    return np.clip(np.asarray(mask), 0, 1)


def mosaic(axis, tiles: np.ndarray, **options):
    """Draw a table of small pictures in one axis, with gaps between them.

    Args:
        axis: matplotlib axis; tile (i, j) has its centre at x=j, y=i.
        tiles: array of shape (rows, columns, H, W), or (rows, columns, H, W,
            3) for colours.
        **options: of `imshow`.

    Returns:
        The matplotlib image, for a colour bar.
    """
    rows, columns, height, width = tiles.shape[:4]
    gap = max(1, round(GAP * max(height, width)))
    edges = [(0, 0), (0, 0), (0, gap), (0, gap), *[(0, 0)] * (tiles.ndim - 4)]
    # White lines: not a number in maps, one in colours.
    line = np.nan if tiles.ndim == 4 else 1.0
    padded = np.pad(tiles.astype("float32"), edges, constant_values=line)
    table = np.moveaxis(padded, 2, 1)
    shape = (rows * (height + gap), columns * (width + gap), *tiles.shape[4:])
    table = table.reshape(shape)[:-gap, :-gap]
    right = columns - 0.5 - gap / (width + gap)
    bottom = rows - 0.5 - gap / (height + gap)
    axis.spines[:].set_visible(False)
    axis.tick_params(length=0)
    return axis.imshow(
        table,
        extent=(-0.5, right, bottom, -0.5),
        aspect=(height + gap) / (width + gap),
        interpolation="nearest",
        **options,
    )


def curves(series: dict, *, xlabel: str, ylabel: str, percent: bool = False):
    """Draw one or two curves in a small figure, for a page or a phone.

    Args:
        series: name to (x, y), sequences of numbers of one length.
        xlabel: what x is.
        ylabel: what y is, with its unit.
        percent: whether y are shares, written as percentages.

    Returns:
        matplotlib Figure.

    Example:
        >>> steps, losses = [0, 100, 200], [2.3, 1.1, 0.4]
        >>> curves({"training": (steps, losses)}, xlabel="step", ylabel="loss")
    """
    figure = new_figure(PAGE_WIDTH, PAGE_HEIGHT)
    axis = figure.subplots()
    draw_curves(axis, series, xlabel=xlabel, ylabel=ylabel, percent=percent)
    return figure


def draw_curves(
    axis, series: dict, *, xlabel: str, ylabel: str, percent: bool = False
) -> None:
    """Draw what `curves` does on an axis of a figure with several."""
    from matplotlib.ticker import MaxNLocator, PercentFormatter

    styles = zip(COLOURS, LINES, strict=False)
    for (name, (x, y)), style in zip(series.items(), styles, strict=False):
        colour, line = style
        # A single value makes no line.
        marker = "o" if len(x) == 1 else ""
        axis.plot(x, y, line, marker=marker, color=colour, label=name)
    axis.set(xlabel=xlabel, ylabel=ylabel)
    axis.xaxis.set_major_locator(MaxNLocator(4, integer=True))
    axis.xaxis.set_major_formatter(lambda x, _: grouped(x))
    if max(abs(y) for _, values in series.values() for y in values) >= 1000:
        axis.yaxis.set_major_formatter(lambda y, _: grouped(y))
    axis.grid(alpha=0.3)
    axis.spines[["top", "right"]].set_visible(False)
    if len(series) > 1:
        axis.legend(frameon=False)
    if percent:
        axis.yaxis.set_major_formatter(PercentFormatter(xmax=1))


def plot_attention_distance(distances: Any):
    """Draw the attention distance of each head by depth (Figure 7, right).

    Args:
        distances: array of shape (L, heads) from `attention_distance`, in
            pixels.

    Returns:
        matplotlib Figure, a dot for each head, with a legend of the heads.

    Raises:
        ValueError: for an array of another number of axes.

    Example:
        >>> plot_attention_distance(attention_distance(model, images))
    """
    from matplotlib.ticker import MaxNLocator

    distances = check_axes("distances", distances, "blocks, heads")
    blocks, heads = distances.shape
    figure = new_figure(PAGE_WIDTH, PAGE_HEIGHT)
    axis = figure.subplots()
    for head in range(heads):
        group, cycle = divmod(head, HEAD_COLOURS)
        axis.scatter(
            np.arange(blocks),
            distances[:, head],
            s=14,
            color=COLOURS[cycle],
            marker=MARKERS[group % len(MARKERS)],
            label=str(head),
        )
    figure.legend(
        loc="outside right upper",
        title="head",
        frameon=False,
        ncols=-(-heads // LEGEND_ROWS),
        handletextpad=0,
        columnspacing=0.3,
    )
    axis.set(xlabel="block", ylabel="distance (pixels)")
    axis.set_ylim(0, 1.05 * max(distances.max(), 1))
    axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    axis.grid(alpha=0.3)
    axis.spines[["top", "right"]].set_visible(False)
    return figure


def plot_position_similarity(similarity: Any):
    """Draw the similarity of each position with all others (Figure 7, centre).

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
    # Without axis and colour bar 2.6 inches are left for the maps.
    figure = new_figure(PAGE_WIDTH, 2.6 * (rows / columns) ** 2 + 0.5)
    axis = figure.subplots()
    image = mosaic(axis, similarity, cmap="viridis", vmin=-1, vmax=1)
    axis.set(xlabel="column of the patch", ylabel="row of the patch")
    axis.set_xticks(range(columns))
    axis.set_yticks(range(rows))
    axis.tick_params(labelsize=min(10, 100 / max(rows, columns)))
    figure.colorbar(image, label="cosine similarity", ticks=[-1, 0, 1])
    return figure


def plot_patch_filters(filters: Any, *, columns: int = 7):
    """Draw principal components of the patch embedding (Figure 7, left).

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
    check_whole(1, columns=columns)
    columns = min(columns, len(filters))
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
    """Draw images as points in the plane, coloured by class.

    Args:
        points: array of shape (B, 2) from `projection`.
        labels: integer array of shape (B,), classes from 0 on, or None.
        class_names: names of the classes for the legend, which is left out
            above 20 classes; numbers by default.

    Returns:
        matplotlib Figure.

    Raises:
        ValueError: unless there is one label per point, or for names without
            labels.

    Example:
        >>> points = projection(embeddings(model, images), method="tsne")
        >>> plot_embeddings(points, labels, ["cat", "dog"])
    """
    points = check_axes("points", points, "images, 2")
    if points.shape[1] != 2:
        raise ValueError(
            "points must have the shape (images, 2). Received: an array of "
            f"shape {points.shape}. Give what projection returns."
        )
    check_finite(points=points)
    if labels is None and class_names is not None:
        raise ValueError(
            "class_names are those of labels. Received: class_names="
            f"{class_names!r} without labels. Give labels, too."
        )
    labels = np.zeros(len(points), int) if labels is None else labels
    labels = check_axes("labels", labels, "images")
    if len(labels) != len(points):
        raise ValueError(
            "There must be one label per point. Received: "
            f"{len(points)} points and {len(labels)} labels."
        )
    check_kind(tuple[str, ...] | None, class_names=class_names)
    if class_names is not None:
        check_classes(len(class_names), labels=labels)
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
            label=str(label if class_names is None else class_names[label]),
        )
    axis.set(xticks=[], yticks=[])
    if 1 < len(found) <= MAX_LEGEND:
        legend = figure.legend(loc="outside right center", frameon=False)
        for text in legend.get_texts():
            # A dollar in a name begins no formula.
            text.set_parse_math(False)
    return figure


def plot_images(images: Any, titles: Sequence[str] = (), *, columns: int = 6):
    """Draw images side by side, with a line of text above each.

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
    check_kind(tuple[str, ...], titles=titles)
    if len(titles) not in (0, len(pictures)):
        raise ValueError(
            f"There must be one title per image. Received: {len(pictures)} "
            f"images and {len(titles)} titles."
        )
    check_whole(1, columns=columns)
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
        # A dollar in a name begins no formula. Where y is not given, matplotlib
        # measures all ticks to find the place, half of the time of a figure.
        axis.set_title(title, fontsize=9, parse_math=False, y=1)
    return figure


def plot_confusion(labels: Any, predicted: Any, class_names: Sequence[str]):
    """Draw a confusion matrix: which class was taken for which.

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
    check_kind(tuple[str, ...], class_names=class_names)
    labels, predicted = np.asarray(labels), np.asarray(predicted)
    counts = np.zeros((len(class_names),) * 2, int)  # (K, K)
    if labels.shape != predicted.shape or labels.ndim != 1 or not labels.size:
        raise ValueError(
            "There must be one prediction per image. Received: labels of shape "
            f"{labels.shape}, predictions of shape {predicted.shape}."
        )
    check_classes(len(counts), labels=labels, predicted=predicted)
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
    _check_numbers(pictures, results)
    height = PICTURE_INCHES * pictures.shape[1] / pictures.shape[2]
    figure = new_figure(2 * PICTURE_INCHES, len(pictures) * height + 0.3)
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
    check_kind(tuple[tuple | list, ...], queries=queries, neighbours=neighbours)
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
