"""Reading images, by TensorFlow and by Pillow: decoding, cropping, resizing.

Each decodes by itself; crops, windows and arithmetic are the same. They are
those of big_vision's `pp/ops_image.py`
(https://github.com/google-research/big_vision); vision_transformer's
`input_pipeline.py` does the same without rounding.

Axes: H and W height and width, C channels.
"""

import contextlib
import io
import itertools
import logging
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from keras_vit.data.array_ops import ARRAYS
from keras_vit.data.resizing import (
    ASPECT_RATIO_RANGE,
    EVALUATION_CROPS,
    LEAST_AREA,
    RANDOM_CROPS,
    Geometry,
    evaluation_crop,
    inception_window,
    resize,
)
from keras_vit.data.seeds import key

__all__ = [
    "BROKEN",
    "LevelError",
    "UNREADABLE",
    "as_seen",
    "colour_change",
    "crop_window",
    "decode",
    "from_pillow",
    "image_reader",
    "in_8_bits",
    "in_channels",
    "is_coloured",
    "is_readable",
    "is_readable_by_pillow",
    "log_colour_changes",
    "naming_broken_images",
    "pillow_reader",
    "say_colour_changes",
    "unknown_levels",
]

LOGGER = logging.getLogger(__name__)

# What Pillow raises for broken files; SyntaxError is that of PNG.
BROKEN = (OSError, SyntaxError, ValueError)
UNREADABLE = (
    "An image cannot be read. Repair or remove it, or set "
    'data.on_broken_image to "skip":'
)
COLOURED = 32  # of 255; JPEG makes smaller differences of grey
ORIENTATION = 0x0112  # its number in EXIF
STRIP = 512  # rows that are converted at a time
# Images of a split that are looked at: the first ones, and those all over it.
FIRST, LOOKED_AT = 8, 64
GREY_MODES = ("1", "L", "LA", "La", "I", "I;16", "I;16B", "I;16L", "F")
DEEP = ("PNG", "PPM")  # kinds whose levels of 16 bits Pillow has in 32
ADDED, DROPPED = "added", "dropped"  # what `colour_change` finds
MESSAGES = {
    ADDED: "Without colours: %s. The model is for images in colour, "
    "and gets three equal channels of them.",
    DROPPED: "In colour: %s. The model is for grey images, and their "
    "colours are dropped.",
}
MODES = {1: "L", 3: "RGB"}  # Pillow's name for an image of so many channels


def from_pillow(image, channels: int) -> np.ndarray:
    """Return the pixels of a Pillow image as it is seen.

    Turned as its EXIF data says, without transparency.

    Returns:
        uint8 array of shape (H, W, channels).
    """
    image = as_seen(image)
    width, height = image.size
    pixels = np.empty((height, width, channels), "uint8")
    # In strips, since Pillow converts by way of several copies of the whole.
    for top in range(0, height, STRIP):
        bottom = min(top + STRIP, height)
        strip = in_channels(image.crop((0, top, width, bottom)), channels)
        pixels[top:bottom] = np.asarray(strip).reshape(-1, width, channels)
    return pixels


def as_seen(image):
    """Return a Pillow image of 8 bits, turned as its EXIF data says.

    Raises:
        LevelError: see `in_8_bits`.
    """
    from PIL import ImageOps

    image.load()  # Some kinds have their EXIF data at the end.
    turned = image
    if image.getexif().get(ORIENTATION, 1) != 1:
        turned = ImageOps.exif_transpose(image)
    return in_8_bits(turned, image.format)


class LevelError(ValueError):
    """The levels of an image are of no range that is known."""


def in_8_bits(image, kind: str | None = None):
    """Return a grey Pillow image with levels of 0 to 255; another as it is.

    Levels of 16 bits are divided by 257, and floats from 0 to 1 are multiplied
    by 255. What is white in other floats and in 32 bits, nothing says: 1, 255,
    4095 or the largest level.

    Args:
        image: a Pillow image.
        kind: of its file, as "PNG", whose levels have 16 bits at most.

    Raises:
        LevelError: for other floats and for integers of 32 bits.
    """
    from PIL import Image

    if image.mode.startswith("I;16") or image.mode == "I" and kind in DEEP:
        levels = np.asarray(image) // 257
    elif image.mode in ("I", "F"):
        levels = np.asarray(image)
        low, high = levels.min(), levels.max()
        if image.mode == "I" or not (low >= 0 and high <= 1):
            of = {"I": "whole numbers of 32 bits", "F": "floats"}[image.mode]
            raise LevelError(
                f"its levels are {of} from {low:g} to {high:g}, and nothing "
                "says which of them is white. Expected 8 bits, 16 bits, or "
                "floats from 0 to 1: scale it, and save it as one of these."
            )
        levels = np.rint(levels * 255)
    else:
        return image
    return Image.fromarray(levels.astype(np.uint8))


def in_channels(image, channels: int):
    """Return a Pillow image as grey or in colour, without transparency."""
    if "transparency" in image.info:  # Pillow warns of other ways to drop it.
        image = image.convert("RGBA")
    return image.convert(MODES[channels])


def is_coloured(examples) -> bool:
    """Return whether one of the first images has colours.

    Grey photographs in files of three channels have none. Of images that
    cannot be read, or whose contents are not at hand, nothing is known.
    """
    return DROPPED in _changes(examples, 1, range(FIRST))


def say_colour_changes(examples, channels: int) -> None:
    """Log how many images get or lose colours for a model, if any.

    Looks at `LOOKED_AT` images over all of a split, or at all of fewer.

    Args:
        examples: the `Examples` of a split.
        channels: 1 for a model of grey images, 3 for one in colour.
    """
    rows = _spaced(examples)
    changes = list(_changes(examples, channels, rows))
    log_colour_changes(changes, f" of {len(rows):,} that were looked at")


def log_colour_changes(changes: Sequence[str], of: str = "") -> None:
    """Log how many images of a run have got or lost colours, if any.

    Args:
        changes: what `colour_change` found, without None.
        of: what stands behind the number.
    """
    for kind, message in MESSAGES.items():
        if number := changes.count(kind):
            LOGGER.warning(message, f"{number:,} image(s){of}")


def colour_change(image, channels: int) -> str | None:
    """Return what becomes of the colours of an image in a model.

    Args:
        image: a Pillow image, or an array (H, W, C) in [0, 255].
        channels: 1 for a model of grey images, 3 for one in colour.

    Returns:
        "added" of a grey image for a model in colour, "dropped" of one in
        colour for a model of grey images, else None.
    """
    is_array = isinstance(image, np.ndarray)
    grey = image.shape[-1] == 1 if is_array else image.mode in GREY_MODES
    if channels == 3:
        return ADDED if grey else None
    if grey:
        return None
    pixels = image if is_array else from_pillow(image, 3)
    return DROPPED if _spread(pixels[..., :3]) > COLOURED else None


def are_equal(examples) -> bool:
    """Return whether images over all of a split have the same pixels.

    Reads them until one differs. Of images that cannot be read, or whose
    contents are not at hand, nothing is known.
    """
    images = _found(examples, _spaced(examples), np.array)
    equal = (np.array_equal(*pair) for pair in itertools.pairwise(images))
    return next(equal, False) and all(equal)


def _spaced(examples) -> list[int]:
    """Return the numbers of `LOOKED_AT` images over all of a split, or all."""
    last = len(getattr(examples, "contents", ())) - 1
    return [*dict.fromkeys(np.linspace(0, last, LOOKED_AT, dtype=int).tolist())]


def _changes(examples, channels, rows) -> Iterator[str]:
    """Return the changes of some images, as far as they can be read."""
    return _found(examples, rows, lambda image: colour_change(image, channels))


def _found(examples, rows, function) -> Iterator:
    """Return what a function finds in images that can be read, but None.

    It takes an array (H, W, C) or a Pillow image.
    """
    from PIL import Image

    contents: Any = getattr(examples, "contents", ())
    for row in rows:
        if not 0 <= row < len(contents):
            continue
        content = contents[row]
        found = None
        if examples.kind == "array":
            found = function(content)
        else:
            with contextlib.suppress(*BROKEN):
                if examples.kind == "record":
                    content = examples.records.read(int(content))
                is_bytes = isinstance(content, bytes)
                source = io.BytesIO(content) if is_bytes else content
                with Image.open(source) as image:
                    found = function(image)
        if found is not None:
            yield found


def _spread(pixels) -> int:
    """Return the largest difference of the channels of a pixel."""
    return int((pixels.max(axis=-1) - pixels.min(axis=-1)).max())


def pillow_reader(
    examples, crop: str, geometry: Geometry, seed: int = 0
) -> Callable:
    """Make the function that reads an image.

    Args:
        examples: an `Examples`.
        crop: a name of `config.CROPS`.
        geometry: the size of the result.
        seed: non-negative int, of random crops.

    Returns:
        A function of the epoch and the number of the image, ints, which
        returns an array (H, W, C) in [0, 255]; or, of an image that cannot
        be read, None where `examples.on_broken_image` is "skip".

    Raises:
        ValueError: by the function, of an image that cannot be read.
    """

    def read(epoch, example):
        crop_key = key("crop", seed, epoch, example)
        content, kind = examples.contents[example], examples.kind
        try:
            if kind == "record":
                content, kind = examples.records.read(int(content)), "encoded"
            return _cropped(content, kind, crop, geometry, crop_key)
        except _broken() as error:
            if examples.on_broken_image == "skip":
                return None
            name = examples.name_of(example)
            raise ValueError(f"{UNREADABLE} {name}") from error

    return read


def _broken():
    from PIL import Image

    return (*BROKEN, Image.DecompressionBombError)


def is_readable_by_pillow(content, from_path: bool) -> bool:
    """Return whether an image, given as a path or as bytes, can be decoded."""
    from PIL import Image

    try:
        with Image.open(content if from_path else io.BytesIO(content)) as image:
            image.load()
            in_8_bits(image, image.format)
    except _broken():
        return False
    return True


def unknown_levels(content, from_path: bool) -> str:
    """Return why the levels of an image are refused; "" for other images."""
    from PIL import Image

    try:
        with Image.open(content if from_path else io.BytesIO(content)) as image:
            as_seen(image)
    except LevelError as error:
        return str(error)
    except _broken():
        pass
    return ""


def _cropped(content, kind, crop, geometry, crop_key):
    from PIL import Image

    if kind == "array":
        pixels = _to_channels(content, geometry.channels)
        if crop != "inception_crop":
            return _crop_of(pixels, crop, geometry, crop_key)
        # Pillow has no axis for the channels of a grey image.
        image = Image.fromarray(
            pixels[..., 0] if geometry.channels == 1 else pixels
        )
        return _inception_crop(image, geometry, crop_key)
    source = content if kind == "path" else io.BytesIO(content)
    with Image.open(source) as image:
        if crop == "inception_crop":
            return _inception_crop(as_seen(image), geometry, crop_key)
        pixels = from_pillow(image, geometry.channels)
    return _crop_of(pixels, crop, geometry, crop_key)


def _to_channels(pixels, channels):
    """Convert an array of 1, 3 or 4 channels to 1 or 3."""
    found = pixels.shape[-1]
    if found == channels:
        return pixels
    if found == 1:
        return np.repeat(pixels, 3, axis=-1)
    colours = pixels[..., :3]
    return colours if channels == 3 else ARRAYS.image.rgb_to_grayscale(colours)


def _crop_of(pixels, crop, geometry, crop_key):
    if crop in RANDOM_CROPS:
        return RANDOM_CROPS[crop](pixels, geometry, crop_key)
    return evaluation_crop(pixels, geometry, crop)


def _inception_crop(image, geometry, crop_key):
    """Cut out a window of a Pillow image, and only then convert it."""
    from PIL import Image

    width, height = image.size
    top, left, rows, columns = inception_window(
        height, width, crop_key, geometry.least_area
    )
    part = image.crop((left, top, left + columns, top + rows))
    part = in_channels(part, geometry.channels)
    config = geometry.config
    method = config.resize_method or "bilinear"
    if (method, config.rounding, config.antialias) == PLAIN:
        # As `resize`, but for roundings, in an eighth of the time. Pillow's
        # own resizing would take the mean of all pixels.
        part = part.transform(
            geometry.image_size[::-1],
            Image.Transform.EXTENT,
            (0, 0, columns, rows),
            Image.Resampling.BILINEAR,
        )
        return np.asarray(part).reshape(*geometry.image_size, geometry.channels)
    return resize(
        np.asarray(part).reshape(rows, columns, geometry.channels),
        geometry.image_size,
        method=method,
        antialias=config.antialias,
        rounding=config.rounding,
    )


# Method, rounding and antialiasing of big_vision, the default.
PLAIN = ("bilinear", "uint8", False)


# --- By TensorFlow ---

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
    cut = _tensor_crop(crop, geometry)
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
            image = _tensor_in_channels(image, channels)
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
        return _tensor_in_channels(image, channels)

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


def _tensor_in_channels(image, channels: int):
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


def _tensor_crop(crop: str, geometry: Geometry) -> Callable:
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
