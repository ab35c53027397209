"""The size of a model's images: their geometry, crop windows and resizing.

`Geometry` resizes in TensorFlow, `tensor_crop` in exported files. The other
functions do without either what they do: windows are those that TensorFlow
draws, to the bit.

Axes: B images of a batch, H and W height and width, C channels; h and w height
and width of the result.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from keras_vit.data.config import (
    BY_SHORTER_SIDE,
    FILLING,
    UNSIZED,
    PreprocessingConfig,
)
from keras_vit.data.seeds import random_bits, random_words
from keras_vit.interpolation import cubic, hamming, lanczos3, triangle
from keras_vit.io.checks import check_kind, check_whole

__all__ = [
    "LEAST_AREA",
    "ASPECT_RATIO_RANGE",
    "EVALUATION_CROPS",
    "Geometry",
    "KERNELS",
    "RANDOM_CROPS",
    "TTA",
    "evaluation_crop",
    "evaluation_fields",
    "inception_window",
    "random_window",
    "resize",
    "squash",
    "tensor_crop",
    "views",
]

# The other methods give means of pixels, which need no clipping.
OVERSHOOTING = ("bicubic", "lanczos3")
LONGEST = 32  # shorter sides that are scaled by the shorter side
# What the originals scale to before they crop; else 8/7 of the crop.
RESIZE_SIZES = {224: 256, 384: 448}
# Of an inception crop: the shares of the area, and width by height.
LEAST_AREA = 0.05  # of an inception crop
ASPECT_RATIO_RANGE = (0.75, 1.33)
ATTEMPTS = 100
LARGEST_INT = 2**31 - 1
# What test-time augmentation averages the scores of.
TTA = (None, "flip", "crops")
# Of each side, that a crop has: 224 pixels of 256, as is usual.
CROP_SHARE = 7 / 8
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
        check_kind(PreprocessingConfig, preprocessing=self.config)
        check_whole(1, channels=self.channels)
        given = self.config.resize_size
        if given is None or self.config.evaluation in FILLING:
            return
        needed = self.image_size
        if {self.config.train, self.config.evaluation} & BY_SHORTER_SIDE:
            needed = max(needed)
        if np.any(np.less(given, needed)):
            raise ValueError(
                f"resize_size={given} is smaller than the images of "
                f"{self.image_size[0]}x{self.image_size[1]} that are cut out "
                "of it. Leave resize_size out or choose a larger one."
            )

    @property
    def least_area(self) -> float:
        """Smallest share of an image's area that an inception crop has."""
        return self.config.least_area or LEAST_AREA

    @property
    def smaller_side(self) -> int:
        """Length of the shorter side before a crop, in pixels."""
        given = self.config.resize_size
        if given is None:
            return self._before_crop(max(self.image_size))
        return int(np.min(given))

    @property
    def both_sides(self) -> tuple[int, int]:
        """(height, width) before a crop, in pixels."""
        given = self.config.resize_size
        if given is None:
            height, width = map(self._before_crop, self.image_size)
        else:
            height, width = np.broadcast_to(given, 2).tolist()
        return height, width

    def _before_crop(self, side: int) -> int:
        if self.config.evaluation in FILLING:
            return side
        return RESIZE_SIZES.get(side, round(side * 8 / 7))

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
        antialias, nearest = self.config.antialias, self._rounds_to_nearest
        # As Pillow: the width first, and a level of 255 after each axis.
        steps = [(tf.shape(image)[0], size[1])] if nearest else []
        for step in (*steps, size):
            image = tf.image.resize(image, step, method, antialias=antialias)
            if method in OVERSHOOTING:
                image = tf.clip_by_value(image, 0.0, 255.0)
            if nearest:
                image = tf.floor(image + 0.5)
        return tf.cast(image, self.dtype)

    @property
    def dtype(self) -> str:
        """The dtype of the images: "uint8" or "float32"."""
        return "uint8" if self._rounds_to_nearest else self.config.rounding

    @property
    def _rounds_to_nearest(self) -> bool:
        return self.config.rounding == "nearest"


# The fields of a `PreprocessingConfig` that training alone reads.
OF_TRAINING = ("train", "flip")


def evaluation_fields(config: PreprocessingConfig, image_size) -> dict:
    """Return the fields that prepare images of an evaluation, for a record.

    Args:
        config: how images are prepared.
        image_size: (height, width), or of a model of any size with None; the
            size before a crop is that for it.
    """
    fields = dataclasses.asdict(config)
    found = {x: y for x, y in fields.items() if x not in OF_TRAINING}
    if config.evaluation in UNSIZED:  # Training may read one.
        return {**found, "resize_size": None}
    if None in image_size:
        return found
    crop = EVALUATION_CROPS[config.evaluation]
    geometry = Geometry(tuple(image_size), 1, config)
    small = crop.size in (_smaller_side, _shorter_side, _longer_side)
    before = geometry.smaller_side if small else geometry.both_sides
    return {**found, "resize_size": config.resize_size or before}


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
    height: int, width: int, key: np.ndarray, least_area: float = LEAST_AREA
) -> tuple[int, int, int, int]:
    """Draw the box of an inception crop; see `image_reader.crop_window`.

    Args:
        height: int, H, of the image in pixels.
        width: int, W.
        key: int64 array of shape (2,), see `seeds.key`.
        least_area: smallest share of the area of the image.

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
        size = _drawn_size(height, width, ratio, least_area, words)
        if size is not None:
            top, left = (
                _below(length - part, words) if part < length else 0
                for length, part in zip((height, width), size, strict=True)
            )
            return top, left, *size
    return 0, 0, height, width


def _drawn_size(height, width, ratio, least_area, words):
    """Height and width of a box of a ratio; None where none fits.

    In the order and the precision of TensorFlow's
    sample_distorted_bounding_box_op.cc: float32, halves to the even number.
    """
    smallest, largest = (
        np.float32(share) * np.float32(width) * np.float32(height)
        for share in (least_area, 1.0)
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


def evaluation_crop(
    image: np.ndarray, geometry: Geometry, crop: str | None = None
) -> np.ndarray:
    """Resize and crop an image (H, W, C) in [0, 255] as for evaluation.

    What a crop is larger than the resized image is filled with the config's
    `padding_colour`.

    Args:
        image: the image.
        geometry: the size of the result, and how it is resized.
        crop: a name of `EVALUATION_CROPS`, where it is not the config's.

    Returns:
        Array (*geometry.image_size, C), of the geometry's dtype.
    """
    rule = EVALUATION_CROPS[crop or geometry.config.evaluation]
    if rule.window:
        image = image[rule.window(image.shape[:2], geometry)]
    size = rule.size_of(image.shape[:2], geometry)
    wanted = np.array(geometry.image_size)
    first = rule.first(np.subtract(size, wanted), np).astype(int)
    begin, end = np.maximum(first, 0), np.minimum(first + wanted, size)
    box = tuple(map(slice, begin.tolist(), end.tolist()))
    found = _scaled(image, size, geometry, rule.method, box)
    padding = [*zip(begin - first, first + wanted - end, strict=True), (0, 0)]
    if not np.any(padding):
        return found
    colour = np.array(geometry.config.padding_colour or 0, found.dtype)
    padded = np.empty((*geometry.image_size, image.shape[2]), found.dtype)
    padded[...] = colour
    inside = tuple(map(slice, *(begin - first, end - first)))
    padded[inside] = found
    return padded


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
        method: a name of `KERNELS`.
        antialias: bool, whether the kernel grows with the pixels of the
            result; "area" and "nearest" are the same with and without.
        rounding: "uint8" rounds down, "float32" does not; "nearest" rounds
            after each axis, the width first, as Pillow does.
        box: rows and columns of the result that are wanted. Nothing else is
            computed, nor is more of the image touched than they are made of.

    Returns:
        Array of that dtype and of shape (height, width, C), or of the box.
    """
    nearest = rounding == "nearest"
    if nearest and antialias and image.dtype == np.uint8:
        return _resized_by_pillow(image, size, method, box)
    steps = []
    for axis in (1, 0) if nearest else (0, 1):
        length, part, old = size[axis], box[axis], image.shape[axis]
        if old == length:
            image = image[_along(axis, part)]
            continue
        start, stop, _ = part.indices(length)
        pixels, weights = _taps(old, length, start, stop, method, antialias)
        first, last = pixels.min(), pixels.max()
        image = image[_along(axis, slice(first, last + 1))]
        steps.append((axis, pixels - first, weights))
    for step in steps:
        image = _weighted_means(image, *step)
        if nearest:
            image = np.floor(np.clip(image, 0, 255) + np.float32(0.5))
    return np.clip(image, 0, 255).astype("uint8" if nearest else rounding)


def _resized_by_pillow(image, size, method, box):
    """Resize bytes (H, W, C) as Pillow does, whichever axis it takes first."""
    from PIL import Image

    # Cut afterwards: which axis comes first depends on what is asked for. Of
    # a very long image the whole would take too much.
    whole = math.prod(size) <= LARGEST
    (top, bottom), (left, right) = (
        part.indices(length)[:2] for part, length in zip(box, size, strict=True)
    )
    rows, columns = np.divide(image.shape[:2], size)
    part = (left * columns, top * rows, right * columns, bottom * rows)
    wanted = size if whole else (bottom - top, right - left)
    method = Image.Resampling[(PILLOW_NAMES.get(method) or method).upper()]
    planes = [image] if image.shape[2] == 3 else np.moveaxis(image, 2, 0)
    found = [
        np.asarray(
            Image.fromarray(plane).resize(
                wanted[::-1], method, box=None if whole else part
            )
        )
        for plane in planes
    ]
    result = found[0] if image.shape[2] == 3 else np.stack(found, axis=2)
    return result[box] if whole else result


LARGEST = 2**25  # pixels of an image that is resized as a whole
PILLOW_NAMES = {"lanczos3": "lanczos", "area": "box"}


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


def _box(offset, stretch, ops):
    """Return whether a pixel lies in a box as wide as `stretch` pixels."""
    # Beyond rounding errors, of the two pixels at its ends the second one.
    x = offset / stretch - 1e-4
    return ops.where(ops.logical_and(x > -0.5, x <= 0.5), 1.0, 0.0)


# Method: the kernel, a function of distances, how far it is stretched, and
# NumPy or `keras.ops`; and its radius in pixels, None where it reaches as far
# as a pixel of the result.
KERNELS = {
    "bilinear": (_stretched(triangle), 1),
    "bicubic": (_stretched(cubic(-0.5)), 2),
    "lanczos3": (_stretched(lanczos3), 3),
    "area": (_overlap, None),
    "nearest": (_is_inside, None),
    "box": (_box, 0.5),
    "hamming": (_stretched(hamming), 1),
}


# --- Crops: the size that an image is scaled to, and where it is cut. Each
# works on (2,) sides as arrays and, in an exported model, as tensors.


def _image_size(sides, geometry, ops):
    return ops.array(geometry.image_size, "float32")


def _both_sides(sides, geometry, ops):
    return ops.array(geometry.both_sides, "float32")


def _smaller_side(sides, geometry, ops):
    """Scale the shorter side, and round the longer one."""
    return ops.round(sides * (geometry.smaller_side / ops.min(sides)))


def _shorter_side(sides, geometry, ops):
    """Scale the shorter side, and round the longer one down."""
    return ops.floor(sides * geometry.smaller_side / ops.min(sides))


def _covering(sides, geometry, ops):
    """Scale to the smallest size that covers both sides."""
    wanted = geometry.both_sides
    if wanted[0] == wanted[1]:
        return _shorter_side(sides, geometry, ops)
    return ops.round(sides / ops.min(sides / ops.array(wanted, "float32")))


def _contained(sides, geometry, ops):
    """Scale to the largest size that both sides contain."""
    wanted = ops.array(geometry.both_sides, "float32")
    return ops.round(sides / ops.max(sides / wanted))


def _longer_side(sides, geometry, ops):
    """Scale the longer side, and round the shorter one."""
    return ops.floor(sides * (geometry.smaller_side / ops.max(sides)) + 0.5)


def _as_it_is(sides, geometry, ops):
    return sides


def _of_the_same_ratio(sides, geometry):
    """Return the middle with the ratio of the sides, as Keras's Resizing."""
    height, width = sides
    tall, wide = geometry.image_size
    rows = max(min(height, int(float(width * tall) / wide)), 1)
    columns = max(min(width, int(float(height * wide) / tall)), 1)
    top, left = int((height - rows) / 2), int((width - columns) / 2)
    return slice(top, top + rows), slice(left, left + columns)


def _half(left_over, ops):
    """Return where the middle begins, rounded down."""
    return ops.floor(left_over / 2)


def _rounded_half(left_over, ops):
    """Return where the middle begins, halves to the even number.

    Of a padding the smaller half stands in front.
    """
    half = left_over / 2
    return ops.where(half < 0, ops.ceil(half), ops.round(half))


def _start(left_over, ops):
    """Return the top left corner, so that padding is below and right."""
    return left_over * 0


class Crop(NamedTuple):
    """How an image comes to the size of a model.

    Attributes:
        size: from (height, width), the geometry and NumPy or `keras.ops` to
            the size that an image is scaled to.
        first: from the pixels that are left over, negative ones where they
            are too few, and NumPy or `keras.ops` to where the crop begins.
        method: how it is resampled where the config names no method.
        precision: of the arithmetic in NumPy.
        window: None, or from (height, width) and the geometry to the rows and
            columns that alone are resized.
    """

    size: Callable
    first: Callable = _half
    method: str = "bilinear"
    precision: str = "float64"
    window: Callable | None = None

    def size_of(self, sides, geometry: Geometry) -> tuple[int, int]:
        """Return the (height, width) that an image of these is scaled to."""
        found = self.size(np.array(sides, self.precision), geometry, np)
        height, width = np.maximum(found, 1).astype(int).tolist()
        return height, width


SMALL = Crop(_smaller_side, method="area", precision="float32")
EVALUATION_CROPS = {
    "squash": Crop(_image_size),
    "resize_small_central_crop": SMALL,
    "resize_central_crop": Crop(_both_sides),
    "shorter_side_crop": Crop(_shorter_side),
    "both_sides_crop": Crop(_both_sides),
    "longer_side_pad": Crop(_longer_side, _start),
    "cover_crop": Crop(_covering, _rounded_half),
    "stretch_crop": Crop(_both_sides, _rounded_half),
    "contain_pad": Crop(_contained, _rounded_half),
    "central_crop": Crop(_as_it_is),
    "aspect_crop": Crop(_image_size, window=_of_the_same_ratio),
}


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


def tensor_crop(images: Any, geometry: Geometry) -> Any:
    """Resize and crop tensors as `evaluation_crop` does arrays.

    Each side is a product with a matrix of the weights of each pixel, which
    any exporter writes for any size: no shape is known before.

    Args:
        images: float32 tensor (B, H, W, C) in [0, 255].
        geometry: a `Geometry`.

    Returns:
        float32 tensor (B, h, w, C).

    Raises:
        ValueError: for a crop that cuts images before it resizes them.
    """
    from keras import ops

    config = geometry.config
    crop = EVALUATION_CROPS[config.evaluation]
    if crop.window:
        raise ValueError(
            "A file cannot cut images before it resizes them. Received: "
            f"evaluation={config.evaluation!r}. Leave out include_resizing."
        )
    # 1 to H and 1 to W, without asking for a shape.
    rows = ops.cumsum(ops.ones_like(images[0, :, 0, 0]))  # (H,)
    columns = ops.cumsum(ops.ones_like(images[0, 0, :, 0]))  # (W,)
    lengths = ops.stack([ops.max(rows), ops.max(columns)])  # (2,)
    sizes = crop.size(lengths, geometry, ops)  # (2,)
    kept = ops.convert_to_tensor(geometry.image_size, "float32")  # (2,)
    first = crop.first(sizes - kept, ops)  # (2,)
    method = config.resize_method or crop.method
    steps = []
    for axis, places in enumerate((rows, columns)):
        wanted = first[axis] + ops.arange(
            geometry.image_size[axis], dtype="float32"
        )  # (kept,)
        scale = lengths[axis] / sizes[axis]
        weights = _pixel_weights(
            places - 0.5,
            (wanted + 0.5) * scale,
            scale,
            method,
            config.antialias,
            ops,
        )  # (h, H) or (w, W)
        inside = ops.logical_and(wanted >= 0, wanted < sizes[axis])
        steps.append((PRODUCTS[axis], weights, inside))
    nearest = config.rounding == "nearest"
    result = images
    for product, weights, _ in reversed(steps) if nearest else steps:
        result = ops.einsum(product, weights, result)
        if nearest:
            result = ops.floor(ops.clip(result, 0.0, 255.0) + 0.5)
    result = ops.clip(result, 0.0, 255.0)
    if config.rounding == "uint8":
        result = ops.floor(result)
    if config.evaluation not in FILLING:
        return result
    (_, _, rows), (_, _, columns) = steps
    inside = ops.logical_and(rows[:, None], columns)[..., None]  # (h, w, 1)
    colour = ops.convert_to_tensor(config.padding_colour or (0,), "float32")
    return ops.where(inside, result, colour)


PRODUCTS = ("ih,bhwc->biwc", "jw,bhwc->bhjc")


def _pixel_weights(places, centres, scale, method, antialias, ops):
    """Return the weight of each of H pixels in each of h means: (h, H)."""
    kernel, radius = KERNELS[method]
    stretch = ops.maximum(scale, 1.0) if antialias else 1.0
    if radius is None:
        stretch = scale
    weights = kernel(places - centres[:, None], stretch, ops)
    # What lies outside of the image has none, and is filled up later.
    total = ops.sum(weights, axis=1, keepdims=True)
    return weights / ops.where(total == 0, 1.0, total)


def _random_crop(scaled: Crop):
    def crop(image, geometry, key):
        if scaled is SMALL:
            image = _middle_of_long(image)
        size = scaled.size_of(image.shape[:2], geometry)
        first = random_window(size, geometry.image_size, key)
        rows, columns = (
            slice(start, start + length)
            for start, length in zip(first, geometry.image_size, strict=True)
        )
        return _scaled(image, size, geometry, scaled.method, (rows, columns))

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


# They take the key of the crop as well.
RANDOM_CROPS: dict[str, Callable] = {
    "resize_small_random_crop": _random_crop(SMALL),
    "resize_random_crop": _random_crop(EVALUATION_CROPS["resize_central_crop"]),
}


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
    size = max(round(CROP_SHARE * length), 1)
    steps = (np.arange(length) + 0.5) * size / length - 0.5
    steps = np.clip(steps, 0, size - 1)[:, None]
    starts = (0, (length - size) // 2, length - size)
    pixels = np.arange(length)
    return [
        triangle(start + steps - pixels).astype("float32") for start in starts
    ]
