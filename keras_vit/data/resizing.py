"""Resizing and cropping of images without TensorFlow, as it does them.

Axes: H and W height and width, C channels.
"""

import functools
from collections.abc import Callable

import numpy as np

from keras_vit.data.crop_windows import random_window
from keras_vit.data.image_reader import LONGEST, Geometry
from keras_vit.interpolation import cubic, lanczos3, triangle

__all__ = [
    "DEFAULT_METHODS",
    "KERNELS",
    "RANDOM_CROPS",
    "evaluation_crop",
    "resize",
    "squash",
]

TAPS = 64  # of an axis, that are kept for the next image


def evaluation_crop(image: np.ndarray, geometry: Geometry) -> np.ndarray:
    """Resizes and crops an image (H, W, C) in [0, 255] as for evaluation.

    Returns:
        Array (*geometry.image_size, C), uint8 or float32 as the config says.
    """
    return EVALUATION_CROPS[geometry.config.evaluation](image, geometry)


def resize(
    image: np.ndarray,
    size: tuple[int, int],
    *,
    method: str = "bilinear",
    antialias: bool = False,
    rounding: str = "uint8",
    box: tuple[slice, slice] = (slice(None), slice(None)),
) -> np.ndarray:
    """Resizes an image as `Geometry.resize` does in TensorFlow.

    Args:
        image: array of shape (H, W, C), in [0, 255].
        size: (height, width) of the result.
        method: "bilinear", "bicubic", "area", "lanczos3" or "nearest".
        antialias: bool, whether the kernel grows with the pixels of the
            result; "area" and "nearest" are the same with and without.
        rounding: "uint8" rounds down, "float32" does not.
        box: rows and columns of the result that are wanted. Nothing else is
            computed, nor is more of the image touched than they are made of.

    Returns:
        Array of that dtype and of shape (height, width, C), or of the box.
    """
    steps = []
    for axis, (length, part) in enumerate(zip(size, box, strict=True)):
        if image.shape[axis] == length:
            image = image[_along(axis, part)]
            continue
        old = image.shape[axis]
        start, stop, _ = part.indices(length)
        pixels, weights = _taps(old, length, start, stop, method, antialias)
        first, last = pixels.min(), pixels.max()
        image = image[_along(axis, slice(first, last + 1))]
        steps.append((axis, pixels - first, weights))
    for step in steps:
        image = _weighted_means(image, *step)
    return np.clip(image, 0, 255).astype(rounding)


def _along(axis, part):
    return (slice(None),) * axis + (part,)


@functools.lru_cache(TAPS)
def _taps(length, new_length, start, stop, method, antialias):
    """Which pixels each pixel of a part is the mean of, and their weights."""
    kernel, radius = KERNELS[method]
    scale = length / new_length
    stretch = max(scale, 1.0) if antialias else 1.0
    if radius is None:  # They reach as far as a pixel of the result.
        stretch, reach = scale, (scale + 1) / 2
    else:
        reach = radius * stretch
    centres = (np.arange(start, stop) + 0.5) * length / new_length  # (N,)
    first = np.floor(centres - reach)  # (N,)
    count = int(np.ceil(2 * reach)) + 1
    pixels = first[:, np.newaxis] + np.arange(count)  # (N, K)
    offsets = pixels + 0.5 - centres[:, np.newaxis]  # (N, K)
    weights = kernel(offsets, stretch, np)  # (N, K)
    weights = weights * ((pixels >= 0) & (pixels < length))
    weights = weights / weights.sum(axis=1, keepdims=True)
    pixels = pixels.clip(0, length - 1).astype(int)
    return pixels, weights.astype("float32")


def _weighted_means(image, axis, pixels, weights):
    shape = [1, 1, 1]
    shape[axis] = -1
    # One pixel of each mean at a time: never more than the result in memory.
    total = np.zeros((), "float32")
    for k in range(pixels.shape[1]):
        weight = weights[:, k].reshape(shape)
        total = total + image[_along(axis, pixels[:, k])] * weight
    return total


def _stretched(kernel):
    return lambda offset, stretch, ops: kernel(offset / stretch, ops)


def _overlap(offset, stretch, ops):
    """How much of a pixel lies in a box as wide as `stretch` pixels."""
    reach = (stretch + 1) / 2 - ops.abs(offset)
    return ops.minimum(ops.maximum(reach, 0.0), ops.minimum(stretch, 1.0))


def _is_inside(offset, _, ops):
    inside = ops.logical_and(offset > -0.5, offset <= 0.5)
    return ops.where(inside, 1.0, 0.0)


# Method: the kernel, a function of distances, how far it is stretched, and
# NumPy or `keras.ops`; and its radius in pixels, None where it reaches as far
# as a pixel of the result.
KERNELS = {
    "bilinear": (_stretched(triangle), 1),
    "bicubic": (_stretched(cubic(-0.5)), 2),
    "lanczos3": (_stretched(lanczos3), 3),
    "area": (_overlap, None),
    "nearest": (_is_inside, None),
}
# Evaluation crop: the method where the config names none; else bilinear.
DEFAULT_METHODS = {"resize_small_central_crop": "area"}


def _size_of(name, image, geometry) -> tuple[int, int]:
    """The size that an image is scaled to before a crop."""
    if name == "resize":
        return geometry.both_sides
    sides = np.array(image.shape[:2], "float32")
    factor = np.float32(geometry.smaller_side) / sides.min()
    height, width = (int(side) for side in np.round(sides * factor))
    return height, width


def _scaled(image, size, geometry, default: str, box=(slice(None),) * 2):
    """A box of an image that is scaled to a size (height, width)."""
    config = geometry.config
    return resize(
        image,
        size,
        method=config.resize_method or default,
        antialias=config.antialias,
        rounding=config.rounding,
        box=box,
    )


def _central_crop(name, default):
    def crop(image, geometry):
        size = _size_of(name, image, geometry)
        rows, columns = map(_middle, size, geometry.image_size)
        return _scaled(image, size, geometry, default, (rows, columns))

    return crop


def _middle(length, kept):
    start = (length - kept) // 2
    return slice(start, start + kept)


def _random_crop(name, default):
    def crop(image, geometry, key):
        if name == "resize_small":
            image = _middle_of_long(image)
        size = _size_of(name, image, geometry)
        first = random_window(size, geometry.image_size, key)
        rows, columns = (
            slice(start, start + length)
            for start, length in zip(first, geometry.image_size, strict=True)
        )
        return _scaled(image, size, geometry, default, (rows, columns))

    return crop


def _middle_of_long(image):
    sides = np.array(image.shape[:2])
    longest = LONGEST * sides.min()
    kept = np.minimum(sides, longest + (sides - longest) % 2)
    top, left = (sides - kept) // 2
    return image[top : top + kept[0], left : left + kept[1]]


def squash(image: np.ndarray, geometry: Geometry) -> np.ndarray:
    """Scales both sides of an image (H, W, C) to those of the geometry."""
    return _scaled(image, geometry.image_size, geometry, "bilinear")


EVALUATION_CROPS: dict[str, Callable] = {
    "squash": squash,
    "resize_small_central_crop": _central_crop("resize_small", "area"),
    "resize_central_crop": _central_crop("resize", "bilinear"),
}
# They take the key of the crop as well.
RANDOM_CROPS: dict[str, Callable] = {
    "resize_small_random_crop": _random_crop("resize_small", "area"),
    "resize_random_crop": _random_crop("resize", "bilinear"),
}
