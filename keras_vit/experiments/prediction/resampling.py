"""The resizing of evaluation without TensorFlow.

What `keras_vit.data.crops` does with `tf.image.resize`, in NumPy, so that a
model sees an image as in its evaluation wherever it is used. Each axis on its
own: a pixel of the result is a weighted mean of pixels of the image, the
weights a kernel of the distance between their centres.

Axes: H and W height and width, C channels, N pixels along an axis of the
result, K pixels of the image that one of them is the mean of.
"""

import numpy as np

from keras_vit.data.preprocess import Geometry

__all__ = ["evaluation_crop", "resize"]


def evaluation_crop(image: np.ndarray, geometry: Geometry) -> np.ndarray:
    """Scales and crops an image as an evaluation does.

    Args:
        image: array of shape (H, W, C), in [0, 255].
        geometry: a `Geometry`.

    Returns:
        uint8 or float32 array, as the config of the geometry says, of shape
        (*geometry.image_size, C).

    Example:
        >>> geometry = Geometry((224, 224), 3, PreprocessingConfig())
        >>> evaluation_crop(image, geometry).shape
        (224, 224, 3)
    """
    return EVALUATION_CROPS[geometry.config.evaluation](image, geometry)


def resize(
    image: np.ndarray,
    size: tuple[int, int],
    *,
    method: str = "bilinear",
    antialias: bool = False,
    rounding: str = "uint8",
) -> np.ndarray:
    """Scales both sides, as `keras_vit.data.crops.resize`.

    Args:
        image: array of shape (H, W, C), in [0, 255].
        size: (height, width) of the result.
        method: "bilinear", "bicubic", "area", "lanczos3" or "nearest".
        antialias: bool, whether the kernel grows with the pixels of the
            result; "area" and "nearest" are the same with and without.
        rounding: "uint8" rounds down, "float32" does not.

    Returns:
        Array of that dtype and of shape (height, width, C).

    Example:
        >>> resize(np.array([[[0], [100]]]), (1, 1), method="area")
        array([[[50]]], dtype=uint8)
    """
    kernel, radius = KERNELS[method]
    for axis, length in enumerate(size):
        if image.shape[axis] != length:
            scale = image.shape[axis] / length
            stretch = max(scale, 1.0) if antialias else 1.0
            if radius is None:  # They reach as far as a pixel of the result.
                stretch, reach = scale, (scale + 1) / 2
            else:
                reach = radius * stretch
            taps = _taps(image.shape[axis], length, kernel, stretch, reach)
            image = _weighted_means(image, axis, *taps)
    return np.clip(image, 0, 255).astype(rounding)


def _taps(length, new_length, kernel, stretch, reach):
    """Which pixels each pixel of the result is the mean of, and weights."""
    centres = (np.arange(new_length) + 0.5) * length / new_length  # (N,)
    first = np.floor(centres - reach)  # (N,)
    count = int(np.ceil(2 * reach)) + 1
    pixels = first[:, np.newaxis] + np.arange(count)  # (N, K)
    weights = kernel(pixels + 0.5 - centres[:, np.newaxis], stretch)  # (N, K)
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
        total = total + image.take(pixels[:, k], axis) * weight
    return total


def _triangle(offset, stretch):
    return np.maximum(0.0, 1.0 - np.abs(offset) / stretch)


def _keys_cubic(offset, stretch):
    """Keys's cubic convolution with a = -1/2."""
    x = np.abs(offset) / stretch
    near = (1.5 * x - 2.5) * x * x + 1.0
    far = ((-0.5 * x + 2.5) * x - 4.0) * x + 2.0
    return np.where(x <= 1, near, np.where(x < 2, far, 0.0))


def _lanczos3(offset, stretch):
    x = offset / stretch
    return np.where(np.abs(x) < 3, np.sinc(x) * np.sinc(x / 3), 0.0)


def _overlap(offset, stretch):
    """How much of a pixel lies in a box as wide as `stretch` pixels."""
    reach = (stretch + 1) / 2 - np.abs(offset)
    return reach.clip(0.0, min(1.0, stretch))


def _is_inside(offset, _):
    return ((offset > -0.5) & (offset <= 0.5)).astype(float)


# Method: kernel and its radius in pixels.
KERNELS = {
    "bilinear": (_triangle, 1),
    "bicubic": (_keys_cubic, 2),
    "lanczos3": (_lanczos3, 3),
    "area": (_overlap, None),
    "nearest": (_is_inside, None),
}


def _squash(image, geometry):
    return _resize(image, geometry.image_size, geometry, "bilinear")


def _resize_small_central_crop(image, geometry):
    sides = np.array(image.shape[:2], "float32")
    factor = np.float32(geometry.smaller_side) / sides.min()
    height, width = (int(side) for side in np.round(sides * factor))
    image = _resize(image, (height, width), geometry, "area")
    return _central_crop(image, geometry.image_size)


def _resize_central_crop(image, geometry):
    image = _resize(image, geometry.both_sides, geometry, "bilinear")
    return _central_crop(image, geometry.image_size)


def _resize(image, size, geometry, default):
    config = geometry.config
    return resize(
        image,
        size,
        method=config.resize_method or default,
        antialias=config.antialias,
        rounding=config.rounding,
    )


def _central_crop(image, size):
    height, width = size
    top, left = (np.array(image.shape[:2]) - size) // 2
    return image[top : top + height, left : left + width]


EVALUATION_CROPS = {
    "squash": _squash,
    "resize_small_central_crop": _resize_small_central_crop,
    "resize_central_crop": _resize_central_crop,
}
