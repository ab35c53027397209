"""Windows of random crops without TensorFlow: those that it draws, to the bit.

Axes: H and W height and width.
"""

from collections.abc import Iterator

import numpy as np

from keras_vit.data.seeds import random_bits, random_words

__all__ = [
    "AREA_RANGE",
    "ASPECT_RATIO_RANGE",
    "inception_window",
    "random_window",
]

# Of an inception crop: the shares of the area, and width by height.
AREA_RANGE = (0.05, 1.0)
ASPECT_RATIO_RANGE = (0.75, 1.33)
ATTEMPTS = 100
LARGEST_INT = 2**31 - 1


def inception_window(
    height: int, width: int, key: np.ndarray
) -> tuple[int, int, int, int]:
    """Draws the box of an inception crop; see `image_reader.crop_window`.

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
    """A random number in [0, bound), each as likely as the others."""
    if bound & (bound - 1) == 0:
        return next(words) & (bound - 1)
    rejected = (2**32 - 1) % bound + 1
    return next(x for x in words if x >= rejected) % bound


def random_window(
    shape: tuple[int, int], size: tuple[int, int], key: np.ndarray
) -> tuple[int, int]:
    """Draws where a crop of a size begins, each place as likely.

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
