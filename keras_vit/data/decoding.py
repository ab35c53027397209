"""From the bytes of an image to its pixels, in TensorFlow.

Names and arithmetic are those of big_vision's `pp/ops_image.py`
(https://github.com/google-research/big_vision); vision_transformer's
`input_pipeline.py` does the same without rounding.
"""

import dataclasses
from collections.abc import Callable

from keras_vit.data.config import PreprocessingConfig
from keras_vit.data.stateless import key

__all__ = [
    "Geometry",
    "central_crop",
    "crop_window",
    "decode",
    "guarded",
    "image_reader",
    "is_readable",
    "pair",
    "random_crop",
    "resize",
    "resize_small",
    "value_range",
]


def decode(data, channels: int):
    """Decodes a JPEG, PNG, GIF (first frame) or BMP image.

    As `decode` in big_vision's `pp/ops_image.py`, with more kinds of BMP.

    Args:
        data: string scalar, the bytes of the file.
        channels: 1 for grey, 3 for colour.

    Returns:
        uint8 tensor of shape (H, W, C).
    """
    import tensorflow as tf

    def as_stored():
        image = tf.io.decode_image(data, expand_animations=False)
        return to_channels(image, channels)

    def converted():
        return tf.io.decode_image(data, channels, expand_animations=False)

    # TensorFlow converts the channels of JPEG and PNG while it decodes, and
    # refuses to for the others.
    start = tf.strings.substr(data, 0, 2)
    stored = (start == b"BM") | (start == b"GI")
    image = tf.cond(stored, as_stored, converted)
    return tf.ensure_shape(image, [None, None, channels])


def to_channels(image, channels: int):
    """Brings a decoded image of 1, 3 or 4 channels to 1 or 3.

    Args:
        image: uint8 tensor of shape (H, W, any).
        channels: 1 for grey, 3 for colour.

    Returns:
        uint8 tensor of shape (H, W, channels).
    """
    import tensorflow as tf

    image = tf.cond(
        tf.shape(image)[-1] == 1,
        lambda: tf.repeat(image[..., :1], 3, axis=-1),
        lambda: image[..., :3],
    )
    image = tf.ensure_shape(image, [None, None, 3])
    return image if channels == 3 else tf.image.rgb_to_grayscale(image)


def guarded(read: Callable, channels: int) -> Callable:
    """Makes a function return an empty image where it would fail.

    An op that fails ends a tf.data pipeline without saying which image it
    was; a pipeline of one element inside can be told to leave it out. It
    costs some 40 microseconds.

    Args:
        read: function of tensors that returns a uint8 tensor (H, W, C).
        channels: C.

    Returns:
        A function of the same tensors, whose result has the shape (0, 0, C)
        where `read` fails.
    """
    import tensorflow as tf

    def attempt(*inputs):
        image = tf.data.Dataset.from_tensors(inputs).map(read).ignore_errors()
        empty = tf.zeros([0, 0, channels], tf.uint8)
        either = image.concatenate(tf.data.Dataset.from_tensors(empty))
        return either.take(1).get_single_element()

    return attempt


def is_readable(content, from_path: bool) -> bool:
    """Decodes an image to see whether that works.

    Args:
        content: the path of the file, or its bytes.
        from_path: bool, which of the two.

    Returns:
        Whether it does.
    """
    import tensorflow as tf

    try:
        decode(tf.io.read_file(content) if from_path else content, 3)
    except tf.errors.OpError:
        return False
    return True


AREA_RANGE = (0.05, 1.0)
ASPECT_RATIO_RANGE = (0.75, 1.33)
# The others give means of pixels, which need no clipping.
OVERSHOOTING = ("bicubic", "lanczos3")


def crop_window(shape, key):
    """Draws the box of an inception crop.

    5 to 100 % of the area at a ratio of width to height of 0.75 to 1.33; the
    whole image where 100 attempts find no such box inside.

    Args:
        shape: int32 tensor (H, W, C) of the image.
        key: int64 tensor of shape (2,).

    Returns:
        int32 tensor (top, left, height, width).
    """
    import tensorflow as tf

    begin, size, _ = tf.image.stateless_sample_distorted_bounding_box(
        shape,
        tf.zeros([0, 0, 4], tf.float32),
        seed=key,
        min_object_covered=0.0,
        area_range=AREA_RANGE,
        aspect_ratio_range=ASPECT_RATIO_RANGE,
        use_image_if_no_bounding_boxes=True,
    )
    return tf.concat([begin[:2], size[:2]], axis=0)


def resize(
    image,
    size,
    *,
    method: str = "bilinear",
    antialias: bool = False,
    rounding: str = "uint8",
):
    """Scales both sides, whatever the ratio.

    Args:
        image: uint8 or float32 tensor of shape (H, W, C), in [0, 255].
        size: (height, width) of the result.
        method: of `tf.image.resize`.
        antialias: see there.
        rounding: "uint8" rounds down, as big_vision; "float32" does not, as
            vision_transformer.

    Returns:
        Tensor of that dtype and of shape (height, width, C).
    """
    import tensorflow as tf

    image = tf.image.resize(image, size, method=method, antialias=antialias)
    if method in OVERSHOOTING:
        image = tf.clip_by_value(image, 0.0, 255.0)
    return tf.cast(image, rounding)


def resize_small(image, smaller_size: int, *, method: str = "area", **options):
    """Scales the shorter side to a size and keeps the ratio.

    Args:
        image: uint8 tensor of shape (H, W, C).
        smaller_size: int, pixels.
        method: of `tf.image.resize`.
        **options: `antialias` and `rounding`, see `resize`.

    Returns:
        Tensor whose shorter side is `smaller_size`.
    """
    import tensorflow as tf

    sides = tf.cast(tf.shape(image)[:2], tf.float32)
    factor = tf.cast(smaller_size, tf.float32) / tf.reduce_min(sides)
    size = tf.cast(tf.round(sides * factor), tf.int32)
    return resize(image, size, method=method, **options)


def central_crop(image, size: tuple[int, int]):
    """Cuts out the middle.

    Args:
        image: tensor of shape (H, W, C), at least `size`.
        size: (height, width) of the result.

    Returns:
        Tensor of shape (height, width, C).
    """
    import tensorflow as tf

    top, left = tf.unstack((tf.shape(image)[:2] - tf.constant(size)) // 2)
    return tf.image.crop_to_bounding_box(image, top, left, *size)


def random_crop(image, size: tuple[int, int], key):
    """Cuts out any part, each as likely.

    Args:
        image: tensor of shape (H, W, C), at least `size`.
        size: (height, width) of the result.
        key: int64 tensor of shape (2,).

    Returns:
        Tensor of shape (height, width, C).
    """
    import tensorflow as tf

    shape = (*size, image.shape[-1])
    return tf.image.stateless_random_crop(image, shape, seed=key)


def value_range(image, low: float = -1.0, high: float = 1.0):
    """Scales [0, 255] to another range; the models do it inside.

    Args:
        image: tensor in [0, 255].
        low: float, what 0 becomes.
        high: float, what 255 becomes.

    Returns:
        float32 tensor of the same shape.

    Example:
        >>> value_range(np.array([0, 255], "uint8")).numpy()
        array([-1.,  1.], dtype=float32)
    """
    import tensorflow as tf

    return tf.cast(image, tf.float32) / 255.0 * (high - low) + low


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
        return resize(
            image,
            size,
            method=self.config.resize_method or "bilinear",
            antialias=self.config.antialias,
            rounding=self.config.rounding,
        )

    def resize_small(self, image):
        """`crops.resize_small` as the config says."""
        return resize_small(
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
    "resize_small_random_crop": lambda image, geometry, key: random_crop(
        geometry.resize_small(image), geometry.image_size, key
    ),
    "resize_random_crop": lambda image, geometry, key: random_crop(
        geometry.resize(image, geometry.both_sides), geometry.image_size, key
    ),
    "resize_small_central_crop": lambda image, geometry, key: central_crop(
        geometry.resize_small(image), geometry.image_size
    ),
    "resize_central_crop": lambda image, geometry, key: central_crop(
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

    window = crop_window(tf.shape(image), crop_key)
    return tf.image.crop_to_bounding_box(image, *tf.unstack(window))


def _decode_jpeg_and_inception_crop(data, crop_key, channels: int):
    """Decodes only what the crop needs."""
    import tensorflow as tf

    window = crop_window(tf.io.extract_jpeg_shape(data), crop_key)
    return tf.image.decode_and_crop_jpeg(data, window, channels=channels)
