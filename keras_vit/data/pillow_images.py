"""Images as Pillow reads them: decoded, as they are seen, in grey or in colour.

Crops, windows and arithmetic are those of `image_reader`, which needs
TensorFlow; decoding is Pillow's.

Axes: H and W height and width, C channels.
"""

import contextlib
import io
import itertools
import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from keras_vit.data.array_ops import ARRAYS
from keras_vit.data.resizing import (
    RANDOM_CROPS,
    Geometry,
    evaluation_crop,
    inception_window,
    resize,
)
from keras_vit.data.seeds import key

__all__ = [
    "BROKEN",
    "UNREADABLE",
    "LevelError",
    "as_seen",
    "colour_change",
    "from_pillow",
    "in_8_bits",
    "in_channels",
    "is_coloured",
    "is_readable_by_pillow",
    "log_colour_changes",
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
