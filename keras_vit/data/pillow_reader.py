"""Reading and cropping of images by Pillow and NumPy, where TensorFlow is not.

Crops, windows and arithmetic are those of `image_reader`, decoding is
Pillow's.

Axes: H and W height and width, C channels.
"""

import io
from collections.abc import Callable

import numpy as np

from keras_vit.data.array_ops import ARRAYS
from keras_vit.data.crop_windows import inception_window
from keras_vit.data.image_reader import UNREADABLE, Geometry
from keras_vit.data.pillow_images import (
    BROKEN,
    as_seen,
    from_pillow,
    in_channels,
)
from keras_vit.data.resizing import (
    EVALUATION_CROPS,
    RANDOM_CROPS,
    resize,
)
from keras_vit.data.seeds import key

__all__ = ["is_readable_by_pillow", "pillow_reader"]


def pillow_reader(
    examples, crop: str, geometry: Geometry, seed: int = 0
) -> Callable:
    """Makes the function that reads an image.

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
    """Whether an image, given as a path or as bytes, can be decoded."""
    from PIL import Image

    try:
        with Image.open(content if from_path else io.BytesIO(content)) as image:
            image.load()
    except _broken():
        return False
    return True


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
    """Converts an array of 1, 3 or 4 channels to 1 or 3."""
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
    return EVALUATION_CROPS[crop](pixels, geometry)


def _inception_crop(image, geometry, crop_key):
    """Cuts out a window of a Pillow image, and only then converts it."""
    from PIL import Image

    width, height = image.size
    top, left, rows, columns = inception_window(height, width, crop_key)
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
