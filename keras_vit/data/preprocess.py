"""From a record of the data to an image of the size of the model.

Axes: H and W height and width, C channels.
"""

import dataclasses
from collections.abc import Callable

from keras_vit.data import crops
from keras_vit.data.config import PreprocessingConfig
from keras_vit.data.decode import decode, guarded, to_channels
from keras_vit.data.stateless import key

__all__ = ["Geometry", "image_reader", "pair"]

# What the originals scale to before they crop; else 8/7 of the crop.
RESIZE_SIZES = {224: 256, 384: 448}


@dataclasses.dataclass(frozen=True)
class Geometry:
    """Sizes and resampling of the images of a model.

    Args:
        image_size: (height, width) of the model.
        channels: 1 for grey, 3 for colour.
        config: a `PreprocessingConfig`.

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
        side = max(self.image_size)
        return self.config.resize_size or enlarged(side)

    @property
    def both_sides(self) -> tuple[int, int]:
        """(height, width) before a crop, in pixels."""
        given = self.config.resize_size
        height, width = (given or enlarged(side) for side in self.image_size)
        return height, width

    def resize(self, image, size):
        """`crops.resize` as the config says."""
        return crops.resize(
            image,
            size,
            method=self.config.resize_method or "bilinear",
            antialias=self.config.antialias,
            rounding=self.config.rounding,
        )

    def resize_small(self, image):
        """`crops.resize_small` as the config says."""
        return crops.resize_small(
            image,
            self.smaller_side,
            method=self.config.resize_method or "area",
            antialias=self.config.antialias,
            rounding=self.config.rounding,
        )


def pair(size: int | tuple[int, int]) -> tuple[int, int]:
    """One side, or both, as (height, width).

    Args:
        size: pixels.

    Returns:
        Two ints.

    Raises:
        ValueError: for sizes below one pixel, or more than two.

    Example:
        >>> pair(16), pair((16, 8))
        ((16, 16), (16, 8))
    """
    height, width = (size, size) if isinstance(size, int) else size
    if height < 1 or width < 1:
        raise ValueError(
            "image_size must be one side or (height, width) in pixels. "
            f"Received: {size!r}."
        )
    return height, width


def enlarged(side: int) -> int:
    return RESIZE_SIZES.get(side, round(side * 8 / 7))


# Each takes the image, the geometry and the key of the crop. Inception crops
# are cut while the image is decoded.
CROPS = {
    "inception_crop": lambda image, geometry, key: geometry.resize(
        image, geometry.image_size
    ),
    "resize_small_random_crop": lambda image, geometry, key: crops.random_crop(
        geometry.resize_small(image), geometry.image_size, key
    ),
    "resize_random_crop": lambda image, geometry, key: crops.random_crop(
        geometry.resize(image, geometry.both_sides), geometry.image_size, key
    ),
    "resize_small_central_crop": lambda image, geometry, key: (
        crops.central_crop(geometry.resize_small(image), geometry.image_size)
    ),
    "resize_central_crop": lambda image, geometry, key: crops.central_crop(
        geometry.resize(image, geometry.both_sides), geometry.image_size
    ),
    "squash": lambda image, geometry, key: geometry.resize(
        image, geometry.image_size
    ),
}


def image_reader(examples, crop: str, geometry: Geometry, seed: int = 0):
    """Makes the function that turns a record into an image.

    Args:
        examples: an `Examples` or a `StreamedExamples`.
        crop: a name of `CROPS`.
        geometry: a `Geometry`.
        seed: non-negative int, of random crops.

    Returns:
        A function of a record (see `Examples.in_order`), which returns the
        image, a tensor of shape (H, W, C) in [0, 255], and whether it could
        be read: where not, the image is black, or the pipeline stops and
        names it, as `examples.on_broken_image` says.
    """
    import tensorflow as tf

    read = _pixel_reader(examples.kind, crop == "inception_crop", geometry)
    stops = examples.on_broken_image == "stop"

    def reader(record):
        crop_key = key("crop", seed, record["epoch"], record["example"])
        pixels = read(record["content"], crop_key)
        readable = tf.size(pixels) > 0
        if stops:
            _check_readable(readable, examples, record)
        image = tf.cond(
            readable,
            lambda: CROPS[crop](pixels, geometry, crop_key),
            lambda: tf.zeros(
                (*geometry.image_size, geometry.channels),
                geometry.config.rounding,
            ),
        )
        shape = (*geometry.image_size, geometry.channels)
        return tf.ensure_shape(image, shape), readable

    return reader


def _check_readable(readable, examples, record) -> None:
    import tensorflow as tf

    name = (
        [record["content"]]
        if examples.kind == "path"
        else [examples.source, record["number"]]
    )
    tf.debugging.Assert(
        readable,
        [
            "An image cannot be read. Repair or remove it, or set "
            'data.on_broken_image to "skip":',
            *name,
        ],
    )


def _pixel_reader(kind: str, cropped: bool, geometry: Geometry) -> Callable:
    """A function of a content and a key that returns uint8 (H, W, C)."""
    import tensorflow as tf

    channels = geometry.channels

    def from_array(image, crop_key):
        if image.shape[-1] != channels:
            image = to_channels(image, channels)
        return _inception_crop(image, crop_key) if cropped else image

    def from_bytes(data, crop_key):
        if not cropped:
            return decode(data, channels)
        return tf.cond(
            tf.io.is_jpeg(data),
            lambda: _decode_jpeg_and_inception_crop(data, crop_key, channels),
            lambda: _inception_crop(decode(data, channels), crop_key),
        )

    def from_path(path, crop_key):
        return from_bytes(tf.io.read_file(path), crop_key)

    if kind == "array":
        return from_array
    readers = {"encoded": from_bytes, "path": from_path}
    return guarded(readers[kind], channels)


def _inception_crop(image, crop_key):
    import tensorflow as tf

    window = crops.crop_window(tf.shape(image), crop_key)
    return tf.image.crop_to_bounding_box(image, *tf.unstack(window))


def _decode_jpeg_and_inception_crop(data, crop_key, channels: int):
    """Decodes only what the crop needs."""
    import tensorflow as tf

    window = crops.crop_window(tf.io.extract_jpeg_shape(data), crop_key)
    return tf.image.decode_and_crop_jpeg(data, window, channels=channels)
