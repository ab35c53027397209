"""What the figures of the analysis share: pictures, overlays, mosaics.

The figures are made without pyplot: no window, no state, no backend to
choose.

Axes: B images, H and W height and width, C channels, R and C rows and columns
of a grid.
"""

from typing import Any

import numpy as np

__all__ = ["as_pictures", "check_axes", "mosaic", "new_figure", "overlay"]

GAP = 0.08  # of the longer side of a tile


def new_figure(width: float, height: float):
    """A matplotlib figure of so many inches, whose parts do not overlap."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def check_axes(name: str, array: Any, axes: str) -> np.ndarray:
    """An array, checked for its number of axes.

    Args:
        name: str, what it is, for the message.
        array: the array, or what NumPy makes one of.
        axes: str, names of its axes with a comma after each but the last.

    Returns:
        NumPy array.

    Raises:
        ValueError: when it has another number of axes.
    """
    array = np.asarray(array)
    if array.ndim != len(axes.split(",")):
        raise ValueError(
            f"{name} must have the shape ({axes}). Received: an array of "
            f"shape {array.shape}. Select or add an axis, as in "
            f"{name}[0] or {name}[np.newaxis]."
        )
    return array


def as_pictures(images: Any) -> np.ndarray:
    """Images as they are drawn.

    Args:
        images: array (B, H, W, C): integers, or floats that go above 1, in
            [0, 255]; other floats in [-1, 1], as a model takes them.

    Returns:
        float array of shape (B, H, W, 3) in [0, 1]; with other than 3
        channels the grey of their mean.

    Raises:
        ValueError: for an array of another number of axes.
    """
    images = check_axes("images", images, "batch, height, width, channels")
    bytes_ = np.issubdtype(images.dtype, np.integer) or images.max() > 1
    pictures = images / 255 if bytes_ else (images + 1) / 2
    if pictures.shape[-1] != 3:
        grey = pictures.mean(axis=-1, keepdims=True)
        pictures = np.repeat(grey, 3, axis=-1)
    return np.clip(pictures, 0, 1)


def overlay(images: Any, maps: Any, *, blur: float = 0) -> np.ndarray:
    """Images darkened where their maps are low.

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
    if len(maps) != len(pictures):
        raise ValueError(
            f"There must be one map an image. Received: {len(pictures)} "
            f"images and {len(maps)} maps."
        )
    size = pictures.shape[1:3]
    masks = np.stack([_mask(grid, size, blur) for grid in maps])  # (B, H, W)
    return np.round(255 * pictures * masks[..., None]).astype("uint8")


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
    """Draws a table of small pictures in one axis, with gaps between them.

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
