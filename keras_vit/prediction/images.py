"""Reading of images, from wherever they are, without TensorFlow.

Axes: B images, H and W height and width, C channels.
"""

import concurrent.futures
import functools
import http.client
import io
import itertools
import os
import pathlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from keras_vit import preprocessing
from keras_vit.checkpoints.public.network import (
    check_address,
    open_address,
    shown,
)
from keras_vit.data.image_folders import SUFFIXES, image_files, other_files
from keras_vit.data.pillow_images import (
    BROKEN,
    colour_change,
    from_pillow,
    log_colour_changes,
)
from keras_vit.io.checks import check_regular
from keras_vit.io.stores import on_disk

__all__ = [
    "images_of",
    "read_batches",
    "read_pixels",
    "scaled",
]


# Of training images only what TensorFlow reads; Pillow reads more kinds.
# Pixels of an image, above which one file at a time is held as a whole.
LARGE = 2**25
ADDRESSES = ("https://", "http://")
LARGEST_DOWNLOAD = 100 * 2**20  # bytes
# Of red, green and blue in grey, ITU-R BT.601, as in JPEG and in Pillow.
LUMA = np.array([0.299, 0.587, 0.114], "float32")
# Of a config: mean and deviation of channels in [0, 1].
PIXELS = ("pixel_mean", "pixel_std")


def images_of(source: Any) -> Iterator[Any]:
    """Splits what `predict` takes as its source into single images.

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
    elif hasattr(source, "convert"):  # Pillow's, which may not be installed.
        yield source
    elif hasattr(source, "__array__"):
        array = _to_numpy(source)
        yield from array if array.ndim == 4 else [array]
    elif isinstance(source, Iterable):
        for part in source:
            yield from images_of(part)
    else:
        raise ValueError(
            "An image is a path, a Pillow image or an array of shape (H, W), "
            f"(H, W, C) or (B, H, W, C). Received: {source!r} of type "
            f"{type(source).__name__}."
        )


def _to_numpy(source):
    """Return the array of a tensor, whatever its framework."""
    if hasattr(source, "detach"):  # torch's, on any device
        source = source.detach().cpu()
        if "bfloat16" in str(getattr(source, "dtype", "")):  # NumPy has none
            source = source.float()
    return np.asarray(source)


def _files(path):
    """Return the image files of a folder in order; any other path as it is."""
    path = on_disk(os.path.expanduser(path))
    found = []
    if os.path.isdir(path):
        found = image_files(pathlib.Path(path))
        _say_what_is_left_out(path)
    return found or [path]


@functools.lru_cache(maxsize=32)
def _say_what_is_left_out(folder):
    """Once a folder: images are looked for more than once, to count them."""
    other_files(pathlib.Path(folder))


def read_pixels(
    image: Any, channels: int, changes: list[str] | None = None
) -> np.ndarray:
    """Reads one image.

    The orientation in a photo's EXIF data is applied; transparency is
    dropped, as in training.

    Args:
        image: one of those that `images_of` yields; a str is the path of a
            file or its address, https:// or http://.
        channels: 1 for grey, 3 for colour.
        changes: gets what becomes of the image's colours, see
            `keras_vit.data.pillow_images.colour_change`.

    Returns:
        Array of shape (H, W, channels) in [0, 255]: uint8 but for arrays,
        which keep their dtype.

    Raises:
        ValueError: when it is missing, no image, or its values are no pixels.
    """
    changes = [] if changes is None else changes
    if isinstance(image, str):
        return _read_file(image, channels, changes)
    if isinstance(image, np.ndarray):
        return _from_array(image, channels, changes)
    return _from_pillow(image, channels, changes)


def _from_pillow(image, channels, changes):
    pixels = from_pillow(image, channels)
    changes += filter(None, [colour_change(image, channels)])
    return pixels


def _read_file(path, channels, changes):
    from PIL import Image

    if os.path.isdir(path):
        raise ValueError(
            f"There are no images ({', '.join(SUFFIXES)}) in {path!r}."
        )
    file = path
    if path.startswith(ADDRESSES):
        file = io.BytesIO(_downloaded(path))
    else:
        check_regular(path)
    try:
        with Image.open(file) as image:
            return _from_pillow(image, channels, changes)
    except FileNotFoundError as error:
        raise ValueError(f"There is no file {path!r}.") from error
    except Image.UnidentifiedImageError as error:
        raise ValueError(f"{path!r} is not an image.") from error
    except (*BROKEN, Image.DecompressionBombError) as error:
        raise ValueError(
            f"{path!r} cannot be read as an image: {error}"
        ) from error


def _downloaded(url):
    """Return the bytes behind an address, as many as an image may have."""
    check_address(url)
    try:
        with open_address(url, {"User-Agent": "keras_vit"}) as answer:
            content = answer.read(LARGEST_DOWNLOAD + 1)
    except (OSError, http.client.HTTPException) as error:
        raise ValueError(
            f"{shown(url)!r} cannot be downloaded: {error}"
        ) from error
    if len(content) > LARGEST_DOWNLOAD:
        raise ValueError(
            f"{shown(url)!r} has more than {LARGEST_DOWNLOAD // 2**20} MiB. "
            "Download it, and give the path of the file."
        )
    return content


def _from_array(array, channels, changes):
    pixels = array[..., np.newaxis] if array.ndim == 2 else array
    if pixels.ndim != 3 or pixels.shape[2] not in (1, 3, 4):
        raise ValueError(
            "An array is an image (H, W) or (H, W, C), or a batch "
            "(B, H, W, C), with 1, 3 or 4 channels. Received: shape "
            f"{array.shape}."
        )
    if 0 in pixels.shape:
        raise ValueError(f"An image of shape {array.shape} has no pixels.")
    if pixels.dtype != np.uint8:
        is_integer = pixels.dtype.kind in "iu"
        values = pixels.astype("float32") if is_integer else pixels
        preprocessing.preprocess_input(values)  # It refuses what is no pixels.
    changes += filter(None, [colour_change(pixels, channels)])
    pixels = pixels[..., :3]
    if channels == 1 and pixels.shape[2] == 3:
        return (pixels @ LUMA)[..., np.newaxis]
    return (
        pixels
        if channels == 1
        else np.broadcast_to(pixels, (*pixels.shape[:2], 3))
    )


def scaled(config: Any, images: np.ndarray) -> np.ndarray:
    """Scale images in [0, 255] to the float32 input of a model.

    To [-1, 1], or to the mean and deviation that its weights were trained on,
    unless the model scales them itself.
    """
    images = images.astype("float32")
    if config.include_preprocessing:
        return images
    mean, deviation = (getattr(config, x, None) for x in PIXELS)
    return preprocessing.standardize(images, mean, deviation)


def read_batches(
    read: Callable[[Any, list[str]], np.ndarray],
    images: Iterable[Any],
    batch_size: int,
) -> Iterator[tuple[list[tuple[str | int, str | None]], np.ndarray]]:
    """Reads images in threads, one batch at a time, past those that are broken.

    At the end it logs how many got or lost colours for the model, if any.

    Args:
        read: from what `images_of` yields, and the `changes` of
            `read_pixels`, to an array (H, W, C).
        images: what `images_of` yields, any number.
        batch_size: int, B.

    Yields:
        For each image of a batch its name (the path, or its position among
        all images) and None, or why it cannot be read; and those that can as
        an array (B, H, W, C), filled up with zeros; an empty one of none.
    """
    numbered = enumerate(images)
    rows, changes = 0, []

    def read_one(image):
        return read(image, changes)

    executor = concurrent.futures.ThreadPoolExecutor
    with executor() as threads, executor(1) as single:
        while chunk := list(itertools.islice(numbered, batch_size)):
            # Every size of a batch is compiled anew: the last is filled up.
            rows = max(rows, len(chunk))
            given = itertools.repeat(read_one), itertools.repeat(single), chunk
            found = list(threads.map(_read, *given))
            pixels = [content for _, content, error in found if error is None]
            yield [(x, error) for x, _, error in found], _filled(pixels, rows)
    log_colour_changes(changes)


def _read(read, single, numbered):
    """Read name, pixels and error of one image."""
    number, image = numbered
    is_path = isinstance(image, str)
    name = image if is_path else number
    try:
        # In one thread: what each of many has had is not given back.
        if is_path and _is_large(image):
            return name, single.submit(read, image).result(), None
        return name, read(image), None
    except ValueError as error:
        return name, None, str(error) if is_path else f"Image {number}: {error}"


def _is_large(path):
    from PIL import Image

    try:
        check_regular(path)
        with Image.open(path) as image:
            width, height = image.size
    except BROKEN:  # Which reading it says.
        return False
    return width * height > LARGE


def _filled(pixels, rows):
    if not pixels:
        return np.zeros((0, 0, 0, 0), "uint8")
    padding = [(0, rows - len(pixels)), (0, 0), (0, 0), (0, 0)]
    return np.pad(np.stack(pixels), padding)  # (B, H, W, C)
