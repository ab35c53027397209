"""From what a user names to pixels, with Pillow.

Axes: B images, H and W height and width, C channels.
"""

import os
import pathlib
from collections.abc import Iterable, Iterator
from typing import Any

import keras
import numpy as np

from keras_vit import preprocessing
from keras_vit.data import folders

__all__ = ["images_of", "read_pixels"]

# Training reads with TensorFlow; Pillow knows more kinds.
SUFFIXES = (*folders.SUFFIXES, ".webp", ".tif", ".tiff")
MODES = {1: "L", 3: "RGB"}  # Pillow's name for an image of so many channels
# Of red, green and blue in grey, ITU-R BT.601, as in JPEG and in Pillow.
LUMA = np.array([0.299, 0.587, 0.114], "float32")


def images_of(source: Any) -> Iterator[Any]:
    """The single images of a source.

    Args:
        source: path of a file; path of a folder, for the images in it and
            below it; a Pillow image; an array or tensor (H, W), (H, W, C) or
            (B, H, W, C); or an iterable of all these.

    Yields:
        str, Pillow images and arrays of shape (H, W) or (H, W, C). A folder
        without images is its own path, which `read_pixels` refuses.

    Raises:
        ValueError: for anything else.

    Example:
        >>> list(images_of(["a.jpg", "folder"]))
        ['a.jpg', 'folder/b.jpg', 'folder/c.png']
    """
    if isinstance(source, (str, os.PathLike)):
        yield from _files(os.fspath(source))
    elif isinstance(source, np.ndarray) or keras.ops.is_tensor(source):
        array = keras.ops.convert_to_numpy(source)
        yield from array if array.ndim == 4 else [array]
    elif hasattr(source, "convert"):  # Pillow's, which may not be installed.
        yield source
    elif isinstance(source, Iterable):
        for part in source:
            yield from images_of(part)
    else:
        raise ValueError(
            "An image is a path, a Pillow image or an array of shape (H, W), "
            f"(H, W, C) or (B, H, W, C). Received: {source!r} of type "
            f"{type(source).__name__}."
        )


def _files(path):
    """The image files of a folder in order; any other path as it is."""
    path = os.path.expanduser(path)
    found = []
    if os.path.isdir(path):
        below = pathlib.Path(path).rglob("*")
        found = [str(x) for x in below if x.suffix.lower() in SUFFIXES]
    return sorted(found) or [path]


def read_pixels(image: Any, channels: int) -> np.ndarray:
    """Reads one image.

    The orientation that a camera noted is applied; transparency is dropped,
    as in training.

    Args:
        image: one of those that `images_of` yields.
        channels: 1 for grey, 3 for colour.

    Returns:
        Array of shape (H, W, channels) in [0, 255]: uint8 but for arrays,
        which keep their dtype.

    Raises:
        ValueError: when it is missing, no image, or its values are no pixels,
            with the reason.

    Example:
        >>> read_pixels("photo.jpg", 3).shape
        (3024, 4032, 3)
    """
    if isinstance(image, str):
        return _read_file(image, channels)
    if isinstance(image, np.ndarray):
        return _from_array(image, channels)
    return _from_pillow(image, channels)


def _read_file(path, channels):
    from PIL import Image

    if os.path.isdir(path):
        raise ValueError(
            f"There are no images ({', '.join(SUFFIXES)}) in {path!r}."
        )
    try:
        with Image.open(path) as image:
            return _from_pillow(image, channels)
    except FileNotFoundError:
        raise ValueError(f"There is no file {path!r}.") from None
    except Image.UnidentifiedImageError:
        raise ValueError(f"{path!r} is not an image.") from None
    except (
        OSError,
        SyntaxError,  # Pillow's, for a broken PNG.
        ValueError,
        Image.DecompressionBombError,
    ) as error:
        raise ValueError(
            f"{path!r} cannot be read as an image: {error}"
        ) from None


def _from_pillow(image, channels):
    from PIL import Image, ImageOps

    image = ImageOps.exif_transpose(image)
    if image.mode.startswith("I;16"):  # Pillow would clip it at 255.
        image = Image.fromarray((np.asarray(image) // 257).astype(np.uint8))
    if "transparency" in image.info:  # Pillow warns of other ways to drop it.
        image = image.convert("RGBA")
    pixels = np.asarray(image.convert(MODES[channels]))
    return pixels.reshape(*pixels.shape[:2], channels)


def _from_array(array, channels):
    pixels = array[..., np.newaxis] if array.ndim == 2 else array
    if pixels.ndim != 3 or pixels.shape[2] not in (1, 3, 4):
        raise ValueError(
            "An array is an image (H, W) or (H, W, C), or a batch "
            "(B, H, W, C), with 1, 3 or 4 channels. Received: shape "
            f"{array.shape}."
        )
    if 0 in pixels.shape:
        raise ValueError(f"An image of shape {array.shape} has no pixels.")
    preprocessing.preprocess_input(pixels)  # It refuses what is no pixels.
    pixels = pixels[..., :3]
    if channels == 1 and pixels.shape[2] == 3:
        return (pixels @ LUMA)[..., np.newaxis]
    return (
        pixels
        if channels == 1
        else np.broadcast_to(pixels, (*pixels.shape[:2], 3))
    )
