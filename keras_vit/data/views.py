"""The views of an image that test-time augmentation averages the scores of."""

from typing import Any

import numpy as np

from keras_vit.interpolation import triangle

__all__ = ["TTA", "views"]

TTA = (None, "flip", "crops")
# Of each side, that a crop has: 224 pixels of 256, as is usual.
SHARE = 7 / 8


def views(images: Any, tta: str | None, ops: Any = np) -> list:
    """Return the views of images whose scores are averaged.

    Args:
        images: array or tensor (B, H, W, C).
        tta: None for the images alone, "flip" for them and their mirror
            images, "crops" for the ten crops of "ImageNet Classification with
            Deep Convolutional Neural Networks" (Krizhevsky et al., 2012): the
            centre and the corners, of 7/8 of each side and resized to H x W
            by bilinear interpolation, with their mirror images.
        ops: module of the images' functions, NumPy or `keras.ops`.

    Example:
        >>> len(views(np.zeros((2, 32, 32, 3)), "crops"))
        10
    """
    if tta is None:
        return [images]
    found = [images]
    if tta == "crops":
        rows, columns = (_windows(length) for length in images.shape[1:3])
        places = [(1, 1), (0, 0), (0, 2), (2, 0), (2, 2)]
        found = [
            ops.einsum("rh,bhwc,vw->brvc", rows[y], images, columns[x])
            for y, x in places
        ]
    return found + [ops.flip(x, axis=2) for x in found]


def _windows(length: int) -> list[np.ndarray]:
    """Return the maps (N, N) from N pixels to the first, middle, last 7/8."""
    size = max(round(SHARE * length), 1)
    steps = (np.arange(length) + 0.5) * size / length - 0.5
    steps = np.clip(steps, 0, size - 1)[:, None]
    starts = (0, (length - size) // 2, length - size)
    pixels = np.arange(length)
    return [
        triangle(start + steps - pixels).astype("float32") for start in starts
    ]
