"""The size of a model's images: their geometry, crop windows and resizing.

`Geometry` resizes in TensorFlow. The other functions do without it what it
does: windows are those that it draws, to the bit.

Axes: H and W height and width, C channels.
"""

import dataclasses
import functools
from collections.abc import Callable, Iterator

import numpy as np

from keras_vit.data.config import PreprocessingConfig
from keras_vit.data.seeds import random_bits, random_words
from keras_vit.interpolation import cubic, lanczos3, triangle

__all__ = [
    "AREA_RANGE",
    "ASPECT_RATIO_RANGE",
    "DEFAULT_METHODS",
    "Geometry",
    "KERNELS",
    "RANDOM_CROPS",
    "evaluation_crop",
    "inception_window",
    "random_window",
    "resize",
    "squash",
]

# The other methods give means of pixels, which need no clipping.
OVERSHOOTING = ("bicubic", "lanczos3")
LONGEST = 32  # shorter sides that are scaled by the shorter side
# What the originals scale to before they crop; else 8/7 of the crop.
RESIZE_SIZES = {224: 256, 384: 448}
# Of an inception crop: the shares of the area, and width by height.
AREA_RANGE = (0.05, 1.0)
ASPECT_RATIO_RANGE = (0.75, 1.33)
ATTEMPTS = 100
LARGEST_INT = 2**31 - 1
TAPS = 64  # of an axis, that are kept for the next image


@dataclasses.dataclass(frozen=True)
class Geometry:
    """Sizes and resampling of the images of a model.

    Args:
        image_size: (height, width) of the model.
        channels: 1 for grey, 3 for colour.
        config: how images are brought to that size.

    Raises:
        ValueError: when an image is cropped to more than it was scaled to.

    Example:
        >>> Geometry((224, 224), 3, PreprocessingConfig()).smaller_side
        256
    """

    image_size: tuple[int, int]
    channels: int
    config: PreprocessingConfig

    def __post_init__(self):
        given = self.config.resize_size
        if given is not None and given < max(self.image_size):
            raise ValueError(
                f"resize_size={given} is smaller than the images of "
                f"{self.image_size[0]}x{self.image_size[1]} that are cut out "
                "of it. Leave resize_size out or choose a larger one."
            )

    @property
    def smaller_side(self) -> int:
        """Length of the shorter side before a crop, in pixels."""
        return self._before_crop(max(self.image_size))

    @property
    def both_sides(self) -> tuple[int, int]:
        """(height, width) before a crop, in pixels."""
        height, width = map(self._before_crop, self.image_size)
        return height, width

    def _before_crop(self, side: int) -> int:
        default = RESIZE_SIZES.get(side, round(side * 8 / 7))
        return self.config.resize_size or default

    def resize(self, image, size):
        """Scale both sides to (height, width), whatever the ratio."""
        return self._resized(image, size, "bilinear")

    def resize_small(self, image):
        """Scale the shorter side to `smaller_side` and keep the ratio.

        Of what is more than 32 times as long as wide the middle is scaled: of
        1x10000 pixels the whole would take 8 GB.
        """
        import tensorflow as tf

        image = _middle_of_long_tensor(image)
        sides = tf.cast(tf.shape(image)[:2], tf.float32)
        smaller_side = tf.cast(self.smaller_side, tf.float32)
        factor = smaller_side / tf.reduce_min(sides)
        size = tf.cast(tf.round(sides * factor), tf.int32)
        return self._resized(image, size, "area")

    def _resized(self, image, size, default_method: str):
        import tensorflow as tf

        method = self.config.resize_method or default_method
        antialias = self.config.antialias
        image = tf.image.resize(image, size, method, antialias=antialias)
        if method in OVERSHOOTING:
            image = tf.clip_by_value(image, 0.0, 255.0)
        return tf.cast(image, self.config.rounding)


def _middle_of_long_tensor(image):
    import tensorflow as tf

    image = tf.convert_to_tensor(image)
    sides = tf.shape(image)[:2]
    longest = LONGEST * tf.reduce_min(sides)
    # As much on either side, in whole pixels, so that the middle stays.
    kept = tf.minimum(sides, longest + tf.math.floormod(sides - longest, 2))
    # In a graph a tensor cannot be unpacked.
    top, left = tf.unstack((sides - kept) // 2)
    height, width = tf.unstack(kept)
    return image[top : top + height, left : left + width]


def inception_window(
    height: int, width: int, key: np.ndarray
) -> tuple[int, int, int, int]:
    """Draw the box of an inception crop; see `image_reader.crop_window`.

    Args:
        height: int, H, of the image in pixels.
        width: int, W.
        key: int64 array of shape (2,), see `seeds.key`.

    Returns:
        (top, left, height, width).

    Example:
        >>> inception_window(375, 500, key("crop", 0, 0, 7))
        (249, 93, 91, 115)
    """
    words = random_words(key)
    low, high = map(np.float32, ASPECT_RATIO_RANGE)
    for _ in range(ATTEMPTS):
        ratio = np.float32((next(words) & (2**23 - 1)) / 2**23)
        ratio = ratio * (high - low) + low
        size = _drawn_size(height, width, ratio, words)
        if size is not None:
            top, left = (
                _below(length - part, words) if part < length else 0
                for length, part in zip((height, width), size, strict=True)
            )
            return top, left, *size
    return 0, 0, height, width


def _drawn_size(height, width, ratio, words):
    """Height and width of a box of a ratio; None where none fits.

    In the order and the precision of TensorFlow's
    sample_distorted_bounding_box_op.cc: float32, halves to the even number.
    """
    smallest, largest = (
        np.float32(share) * np.float32(width) * np.float32(height)
        for share in AREA_RANGE
    )
    tall = min(_tallest(largest, width, ratio), height)
    drawn = min(round(np.sqrt(smallest / ratio).item()), tall)
    if drawn < tall:
        drawn += _below(tall - drawn + 1, words)
    # Rounding may have made it too small, or too large, by one pixel.
    for wrong, step in ((np.less, 1), (np.greater, -1)):
        bound = smallest if step > 0 else largest
        if wrong(np.float32(drawn * _wide(drawn, ratio)), bound):
            drawn += step
    wide = _wide(drawn, ratio)
    fits = 0 < wide <= width and 0 < drawn <= height
    if fits and smallest <= np.float32(drawn * wide) <= largest:
        return drawn, wide
    return None


def _tallest(largest, width, ratio) -> int:
    tall = round(np.sqrt(largest / ratio).item())
    if _wide(tall, ratio) > width:
        tall = int((width + 0.5 - 1e-7) / ratio.item())
        if _wide(tall, ratio) > width:
            tall -= 1
    return tall


def _wide(height, ratio) -> int:
    return round((np.float32(height) * ratio).item())


def _below(bound: int, words: Iterator[int]) -> int:
    """Return a random number in [0, bound), each as likely as the others."""
    if bound & (bound - 1) == 0:
        return next(words) & (bound - 1)
    rejected = (2**32 - 1) % bound + 1
    return next(x for x in words if x >= rejected) % bound


def random_window(
    shape: tuple[int, int], size: tuple[int, int], key: np.ndarray
) -> tuple[int, int]:
    """Draw where a crop of a size begins, each place as likely.

    Args:
        shape: (height, width) of the image in pixels.
        size: (height, width) of the crop, at most as large.
        key: int64 array of shape (2,), see `seeds.key`.

    Returns:
        (top, left), as `tf.image.stateless_random_crop` draws them.

    Example:
        >>> random_window((256, 341), (224, 224), key("crop", 0, 0, 7))
        (4, 101)
    """
    bits = random_bits(key, 2) % LARGEST_INT
    top, left = bits % (np.subtract(shape, size) + 1)
    return int(top), int(left)


def evaluation_crop(image: np.ndarray, geometry: Geometry) -> np.ndarray:
    """Resize and crop an image (H, W, C) in [0, 255] as for evaluation.

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
    """Resize an image as `Geometry.resize` does in TensorFlow.

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
    """List the pixels that each pixel is the mean of, and their weights."""
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
    """Return how much of a pixel lies in a box as wide as `stretch` pixels."""
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
    """Return the size that an image is scaled to before a crop."""
    if name == "resize":
        return geometry.both_sides
    sides = np.array(image.shape[:2], "float32")
    factor = np.float32(geometry.smaller_side) / sides.min()
    height, width = (int(side) for side in np.round(sides * factor))
    return height, width


def _scaled(image, size, geometry, default: str, box=(slice(None),) * 2):
    """Return a box of an image that is scaled to a size (height, width)."""
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
    """Scale both sides of an image (H, W, C) to those of the geometry."""
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
