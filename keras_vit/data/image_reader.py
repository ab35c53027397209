"""Reading images by TensorFlow: decoding, cropping and resizing.

Names and arithmetic are those of big_vision's `pp/ops_image.py`
(https://github.com/google-research/big_vision); vision_transformer's
`input_pipeline.py` does the same without rounding.

Axes: H and W height and width, C channels.
"""

import contextlib
import io
import re
from collections.abc import Callable, Iterator

from keras_vit.data.pillow_images import BROKEN, UNREADABLE, from_pillow
from keras_vit.data.resizing import (
    ASPECT_RATIO_RANGE,
    EVALUATION_CROPS,
    LEAST_AREA,
    Geometry,
    evaluation_crop,
)
from keras_vit.data.seeds import key

__all__ = [
    "crop_window",
    "decode",
    "image_reader",
    "is_readable",
    "naming_broken_images",
]

OF_PILLOW = ("box", "hamming")  # methods that TensorFlow does not have
# Where EXIF data begin in a JPEG or PNG file, and what stands before the value
# of the orientation: tag, kind and count, in either order of bytes.
HEADER_BYTES = 4096
BEFORE_ORIENTATION = (
    r"\C*?(?:Exif\x00\x00|eXIf)\C*?(?:\x12\x01\x03\x00\x01\x00\x00\x00|"
    r"\x01\x12\x00\x03\x00\x00\x00\x01\x00)"
)
# What TensorFlow does not decode, or as something else: WebP, TIFF, a BMP with
# a palette, a PNG of 16 bits, and an image that is to be turned.
SPECIAL = "|".join(
    rf"(?s){kind}\C*"
    for kind in (
        r"RIFF\C{4}WEBP",
        r"II\*\x00",
        r"MM\x00\*",
        r"BM\C{26}[\x01\x04\x08]\x00",
        r"\x89PNG\C{20}\x10",
        rf"{BEFORE_ORIENTATION}[\x02-\x08]",
    )
)
# The same in an error of TensorFlow, and the name behind it: of what it read,
# and of what it was given.
STOPPED = re.compile(
    r"\[An image cannot be read[^\]]*\] (?P<name>\[.*\])|"
    rf"{re.escape(UNREADABLE)} (?P<given>.*)"
)


def image_reader(examples, crop: str, geometry: Geometry, seed: int = 0):
    """Make the function that turns a record into an image.

    Args:
        examples: an `Examples`.
        crop: a name of `CROPS`.
        geometry: the size of the result.
        seed: non-negative int, of random crops.

    Returns:
        A function of a record (see `Examples.in_order`), which returns the
        image, a tensor of shape (H, W, C) in [0, 255], and whether it could
        be read. If not, the image is black, or the pipeline stops and names
        it, as `examples.on_broken_image` says.
    """
    import tensorflow as tf

    read = _pixel_reader(examples, crop == "inception_crop", geometry)
    cut = _crop_of(crop, geometry)
    stops = examples.on_broken_image == "stop"
    shape = (*geometry.image_size, geometry.channels)

    def reader(record):
        crop_key = key("crop", seed, record["epoch"], record["example"])
        pixels = read(record["content"], crop_key)
        readable = tf.size(pixels) > 0
        if stops:
            _assert_readable(readable, examples, record)
        image = tf.cond(
            readable,
            lambda: cut(pixels, geometry, crop_key),
            lambda: tf.zeros(shape, geometry.dtype),
        )
        return tf.ensure_shape(image, shape), readable

    return reader


def _assert_readable(readable, examples, record) -> None:
    import tensorflow as tf

    def stop():
        name = tf.numpy_function(
            lambda example: examples.name_of(int(example)).encode(),
            [record["example"]],
            tf.string,
        )
        tf.debugging.Assert(False, [UNREADABLE, name])
        return False

    if examples.kind == "record":
        tf.cond(readable, lambda: True, stop)
        return
    name = (
        [record["content"]]
        if examples.kind == "path"
        else [examples.source, record["number"]]
    )
    tf.debugging.Assert(readable, [UNREADABLE, *name])


@contextlib.contextmanager
def naming_broken_images() -> Iterator[None]:
    """Raise a ValueError where a pipeline stops at a broken image.

    TensorFlow's own error has the name among names of its functions.
    """
    try:
        yield
    except Exception as error:
        found = STOPPED.search(str(error))
        if not found or isinstance(error, ValueError):
            raise
        name = found["name"] or found["given"]
        raise ValueError(f"{UNREADABLE} {name}") from error


def _pixel_reader(examples, cropped: bool, geometry: Geometry) -> Callable:
    """Return a function of a content and a key that returns uint8 (H, W, C)."""
    import tensorflow as tf

    channels = geometry.channels

    def inception_crop(image, crop_key):
        window = crop_window(tf.shape(image), crop_key, geometry.least_area)
        return tf.image.crop_to_bounding_box(image, *tf.unstack(window))

    def from_array(image, crop_key):
        if image.shape[-1] != channels:
            image = _to_channels(image, channels)
        return inception_crop(image, crop_key) if cropped else image

    def from_bytes(data, crop_key):
        if not cropped:
            return decode(data, channels)
        return tf.cond(
            tf.io.is_jpeg(data) & ~_is_special(data, channels),
            lambda: _decode_jpeg_and_inception_crop(data, crop_key, geometry),
            lambda: inception_crop(decode(data, channels), crop_key),
        )

    def from_path(path, crop_key):
        return from_bytes(tf.io.read_file(path), crop_key)

    def from_record(position, crop_key):
        data = tf.numpy_function(
            lambda position: examples.records.read(int(position)),
            [position],
            tf.string,
        )
        return from_bytes(tf.ensure_shape(data, []), crop_key)

    if examples.kind == "array":
        return from_array
    readers = {
        "encoded": from_bytes,
        "path": from_path,
        "record": from_record,
    }
    return _empty_on_failure(readers[examples.kind], channels)


def _empty_on_failure(read: Callable, channels: int) -> Callable:
    """Make a reader return an image of shape (0, 0, C) where it would fail.

    An op that fails ends a tf.data pipeline without saying which image it
    was; a pipeline of one element inside can leave it out.
    """
    import tensorflow as tf

    def attempt(*inputs):
        image = tf.data.Dataset.from_tensors(inputs).map(read).ignore_errors()
        empty = tf.zeros([0, 0, channels], tf.uint8)
        either = image.concatenate(tf.data.Dataset.from_tensors(empty))
        return either.take(1).get_single_element()

    return attempt


def is_readable(content, from_path: bool) -> bool:
    """Return whether an image, given as a path or as bytes, can be decoded."""
    import tensorflow as tf

    try:
        decode(tf.io.read_file(content) if from_path else content, 3)
    except (tf.errors.OpError, *BROKEN):
        return False
    return True


def decode(data, channels: int):
    """Decode a JPEG, PNG, GIF (first frame), BMP, WebP or TIFF image.

    As `decode` in big_vision's `pp/ops_image.py`, with more kinds of files, the
    orientation in EXIF data, and CMYK for grey models: Pillow reads what
    TensorFlow would not read, or as something else.

    Args:
        data: string scalar, the bytes of the file.
        channels: 1 for grey, 3 for colour.

    Returns:
        uint8 tensor of shape (H, W, C).
    """
    import tensorflow as tf

    image = tf.cond(
        _is_special(data, channels),
        lambda: _decode_special(data, channels),
        lambda: _decode_plain(data, channels),
    )
    return tf.ensure_shape(image, [None, None, channels])


def _decode_plain(data, channels: int):
    import tensorflow as tf

    def as_stored():
        image = tf.io.decode_image(data, expand_animations=False)
        return _to_channels(image, channels)

    def converted():
        return tf.io.decode_image(data, channels, expand_animations=False)

    # TensorFlow converts the channels of JPEG and PNG while it decodes, and
    # refuses to for the others.
    start = tf.strings.substr(data, 0, 2)
    stored = (start == b"BM") | (start == b"GI")
    return tf.cond(stored, as_stored, converted)


def _is_special(data, channels: int):
    """Test if TensorFlow would decode it as something else, or not at all."""
    import tensorflow as tf

    header = tf.strings.substr(data, 0, HEADER_BYTES)
    special = tf.strings.regex_full_match(header, SPECIAL)
    if channels == 3:
        return special
    # TensorFlow has no grey of CMYK.
    return special | tf.cond(
        tf.io.is_jpeg(data),
        lambda: tf.io.extract_jpeg_shape(data)[2] == 4,
        lambda: tf.constant(False),
    )


def _decode_special(data, channels: int):
    """Decode with Pillow, in Python."""
    import tensorflow as tf

    def pixels(content):
        from PIL import Image

        # Outside of a graph it is an array of one object.
        content = content if isinstance(content, bytes) else content.item()
        with Image.open(io.BytesIO(content)) as image:
            return from_pillow(image, channels)

    # Of bytes themselves NumPy would cut off zeros at the end.
    data = tf.convert_to_tensor(data)
    return tf.numpy_function(pixels, [data], tf.uint8, stateful=False)


def _to_channels(image, channels: int):
    """Convert a decoded image of 1, 3 or 4 channels to 1 or 3."""
    import tensorflow as tf

    image = tf.cond(
        tf.shape(image)[-1] == 1,
        lambda: tf.repeat(image[..., :1], 3, axis=-1),
        lambda: image[..., :3],
    )
    image = tf.ensure_shape(image, [None, None, 3])
    return image if channels == 3 else tf.image.rgb_to_grayscale(image)


def _decode_jpeg_and_inception_crop(data, crop_key, geometry):
    """Decode only what the crop needs."""
    import tensorflow as tf

    shape = tf.io.extract_jpeg_shape(data)
    window = crop_window(shape, crop_key, geometry.least_area)
    channels = geometry.channels
    return tf.image.decode_and_crop_jpeg(data, window, channels=channels)


def crop_window(shape, crop_key, least_area: float = LEAST_AREA):
    """Draw the box of an inception crop.

    Of a ratio of width to height of 0.75 to 1.33; the whole image where 100
    attempts find no such box inside.

    Args:
        shape: int32 tensor (H, W, C) of the image.
        crop_key: int64 tensor of shape (2,).
        least_area: smallest share of the area of the image.

    Returns:
        int32 tensor (top, left, height, width).
    """
    import tensorflow as tf

    begin, size, _ = tf.image.stateless_sample_distorted_bounding_box(
        shape,
        tf.zeros([0, 0, 4], tf.float32),
        seed=crop_key,
        min_object_covered=0.0,
        area_range=(least_area, 1.0),
        aspect_ratio_range=ASPECT_RATIO_RANGE,
        use_image_if_no_bounding_boxes=True,
    )
    return tf.concat([begin[:2], size[:2]], axis=0)


def _crop_of(crop: str, geometry: Geometry) -> Callable:
    """Return how images are cropped: by TensorFlow, or as Pillow does it."""
    if crop in CROPS and not (
        geometry.config.rounding == "nearest" and crop in EVALUATION_CROPS
    ):
        if geometry.config.resize_method in OF_PILLOW:
            raise ValueError(
                "TensorFlow does not resize so. Received: resize_method="
                f"{geometry.config.resize_method!r}. Give data.reader=pillow."
            )
        return CROPS[crop]
    import tensorflow as tf

    def by_numpy(image, geometry, key):
        return tf.numpy_function(
            lambda pixels: evaluation_crop(pixels, geometry, crop),
            [image],
            geometry.dtype,
            stateful=False,
        )

    return by_numpy


def _central_crop(image, size: tuple[int, int]):
    import tensorflow as tf

    top, left = tf.unstack((tf.shape(image)[:2] - tf.constant(size)) // 2)
    return tf.image.crop_to_bounding_box(image, top, left, *size)


def _random_crop(image, size: tuple[int, int], crop_key):
    import tensorflow as tf

    shape = (*size, image.shape[-1])
    return tf.image.stateless_random_crop(image, shape, seed=crop_key)


# Each takes the image, the geometry and the key of the crop. Inception crops
# are cut while the image is decoded.
CROPS = {
    "inception_crop": lambda image, geometry, key: geometry.resize(
        image, geometry.image_size
    ),
    "resize_small_random_crop": lambda image, geometry, key: _random_crop(
        geometry.resize_small(image), geometry.image_size, key
    ),
    "resize_random_crop": lambda image, geometry, key: _random_crop(
        geometry.resize(image, geometry.both_sides), geometry.image_size, key
    ),
    "resize_small_central_crop": lambda image, geometry, key: _central_crop(
        geometry.resize_small(image), geometry.image_size
    ),
    "resize_central_crop": lambda image, geometry, key: _central_crop(
        geometry.resize(image, geometry.both_sides), geometry.image_size
    ),
    "squash": lambda image, geometry, key: geometry.resize(
        image, geometry.image_size
    ),
}
