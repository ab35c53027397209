"""Reading, resizing and cropping of images without TensorFlow.

Axes: B images, H and W height and width, C channels.
"""

import concurrent.futures
import http.client
import io
import itertools
import os
import pathlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from keras_vit import preprocessing
from keras_vit.checkpoints.public.address import (
    check_address,
    open_address,
    shown,
)
from keras_vit.checkpoints.resampling import cubic, triangle
from keras_vit.data.image_reader import BROKEN, Geometry, from_pillow
from keras_vit.data.sources import SUFFIXES as READ_SUFFIXES
from keras_vit.files import check_regular

__all__ = [
    "evaluation_crop",
    "images_of",
    "read_batches",
    "read_pixels",
    "resize",
    "scaled",
]


def evaluation_crop(image: np.ndarray, geometry: Geometry) -> np.ndarray:
    """Resizes and crops an image (H, W, C) in [0, 255] as for evaluation.

    Returns:
        Array (*geometry.image_size, C), uint8 or float32 as the config says.
    """
    return EVALUATION_CROPS[geometry.config.evaluation](image, geometry)


def resize(
    image: np.ndarray,
    size: tuple[int, int],
    *,
    method: str = "bilinear",
    antialias: bool = False,
    rounding: str = "uint8",
    box: tuple[slice, slice] = (slice(None), slice(None)),
) -> np.ndarray:
    """Resizes an image as `Geometry.resize` does in TensorFlow.

    Args:
        image: array of shape (H, W, C), in [0, 255].
        size: (height, width) of the result.
        method: "bilinear", "bicubic", "area", "lanczos3" or "nearest".
        antialias: bool, whether the kernel grows with the pixels of the
            result; "area" and "nearest" are the same with and without.
        rounding: "uint8" rounds down, "float32" does not.
        box: rows and columns of the result that are wanted. Nothing else is
            computed, nor is more of the image touched than they are made of.

    Returns:
        Array of that dtype and of shape (height, width, C), or of the box.
    """
    steps = []
    for axis, (length, part) in enumerate(zip(size, box, strict=True)):
        if image.shape[axis] == length:
            image = image[_along(axis, part)]
            continue
        old = image.shape[axis]
        pixels, weights = _taps(old, length, part, method, antialias)
        first, last = pixels.min(), pixels.max()
        image = image[_along(axis, slice(first, last + 1))]
        steps.append((axis, pixels - first, weights))
    for step in steps:
        image = _weighted_means(image, *step)
    return np.clip(image, 0, 255).astype(rounding)


def _along(axis, part):
    return (slice(None),) * axis + (part,)


def _taps(length, new_length, part, method, antialias):
    """Which pixels each pixel of a part is the mean of, and their weights."""
    kernel, radius = KERNELS[method]
    scale = length / new_length
    stretch = max(scale, 1.0) if antialias else 1.0
    if radius is None:  # They reach as far as a pixel of the result.
        stretch, reach = scale, (scale + 1) / 2
    else:
        reach = radius * stretch
    wanted = np.arange(*part.indices(new_length))
    centres = (wanted + 0.5) * length / new_length  # (N,)
    first = np.floor(centres - reach)  # (N,)
    count = int(np.ceil(2 * reach)) + 1
    pixels = first[:, np.newaxis] + np.arange(count)  # (N, K)
    weights = kernel(pixels + 0.5 - centres[:, np.newaxis], stretch)  # (N, K)
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
    return lambda offset, stretch: kernel(offset / stretch)


def _lanczos3(x):
    return np.where(np.abs(x) < 3, np.sinc(x) * np.sinc(x / 3), 0.0)


def _overlap(offset, stretch):
    """How much of a pixel lies in a box as wide as `stretch` pixels."""
    reach = (stretch + 1) / 2 - np.abs(offset)
    return reach.clip(0.0, min(1.0, stretch))


def _is_inside(offset, _):
    return ((offset > -0.5) & (offset <= 0.5)).astype(float)


# Method: kernel and its radius in pixels.
KERNELS = {
    "bilinear": (_stretched(triangle), 1),
    "bicubic": (_stretched(cubic(-0.5)), 2),
    "lanczos3": (_stretched(_lanczos3), 3),
    "area": (_overlap, None),
    "nearest": (_is_inside, None),
}


def _squash(image, geometry):
    size = geometry.image_size
    return _resized_and_cropped(image, size, geometry, "bilinear")


def _resize_small_central_crop(image, geometry):
    sides = np.array(image.shape[:2], "float32")
    factor = np.float32(geometry.smaller_side) / sides.min()
    height, width = (int(side) for side in np.round(sides * factor))
    return _resized_and_cropped(image, (height, width), geometry, "area")


def _resize_central_crop(image, geometry):
    size = geometry.both_sides
    return _resized_and_cropped(image, size, geometry, "bilinear")


def _resized_and_cropped(image, size, geometry, default):
    """The middle of an image that is scaled to a size (height, width)."""
    config = geometry.config
    rows, columns = map(_middle, size, geometry.image_size)
    return resize(
        image,
        size,
        method=config.resize_method or default,
        antialias=config.antialias,
        rounding=config.rounding,
        box=(rows, columns),
    )


def _middle(length, kept):
    start = (length - kept) // 2
    return slice(start, start + kept)


EVALUATION_CROPS = {
    "squash": _squash,
    "resize_small_central_crop": _resize_small_central_crop,
    "resize_central_crop": _resize_central_crop,
}


# Training reads with TensorFlow; Pillow knows more kinds.
SUFFIXES = (*READ_SUFFIXES, ".webp", ".tif", ".tiff")
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
    """The array of a tensor, whatever framework it is of."""
    if hasattr(source, "detach"):  # torch's, on any device
        source = source.detach().cpu()
        if "bfloat16" in str(getattr(source, "dtype", "")):  # NumPy has none
            source = source.float()
    return np.asarray(source)


def _files(path):
    """The image files of a folder in order; any other path as it is."""
    path = os.path.expanduser(path)
    found = []
    if os.path.isdir(path):
        below = pathlib.Path(path).rglob("*")
        found = [
            str(x)
            for x in below
            # macOS puts "._photo.jpg" beside photos on disks of others.
            if x.suffix.lower() in SUFFIXES and not x.name.startswith("._")
        ]
    return sorted(found) or [path]


def read_pixels(image: Any, channels: int) -> np.ndarray:
    """Reads one image.

    The orientation in a photo's EXIF data is applied; transparency is
    dropped, as in training.

    Args:
        image: one of those that `images_of` yields; a str is the path of a
            file or its address, https:// or http://.
        channels: 1 for grey, 3 for colour.

    Returns:
        Array of shape (H, W, channels) in [0, 255]: uint8 but for arrays,
        which keep their dtype.

    Raises:
        ValueError: when it is missing, no image, or its values are no pixels.
    """
    if isinstance(image, str):
        return _read_file(image, channels)
    if isinstance(image, np.ndarray):
        return _from_array(image, channels)
    return from_pillow(image, channels)


def _read_file(path, channels):
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
            return from_pillow(image, channels)
    except FileNotFoundError:
        raise ValueError(f"There is no file {path!r}.") from None
    except Image.UnidentifiedImageError:
        raise ValueError(f"{path!r} is not an image.") from None
    except (*BROKEN, Image.DecompressionBombError) as error:
        raise ValueError(
            f"{path!r} cannot be read as an image: {error}"
        ) from None


def _downloaded(url):
    """The bytes behind an address, as many as an image may have."""
    check_address(url)
    try:
        with open_address(url, {"User-Agent": "keras_vit"}) as answer:
            content = answer.read(LARGEST_DOWNLOAD + 1)
    except (OSError, http.client.HTTPException) as error:
        raise ValueError(
            f"{shown(url)!r} cannot be downloaded: {error}"
        ) from None
    if len(content) > LARGEST_DOWNLOAD:
        raise ValueError(
            f"{shown(url)!r} has more than {LARGEST_DOWNLOAD // 2**20} MiB. "
            "Download it, and give the path of the file."
        )
    return content


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
    if pixels.dtype != np.uint8:
        is_integer = pixels.dtype.kind in "iu"
        values = pixels.astype("float32") if is_integer else pixels
        preprocessing.preprocess_input(values)  # It refuses what is no pixels.
    pixels = pixels[..., :3]
    if channels == 1 and pixels.shape[2] == 3:
        return (pixels @ LUMA)[..., np.newaxis]
    return (
        pixels
        if channels == 1
        else np.broadcast_to(pixels, (*pixels.shape[:2], 3))
    )


def scaled(config: Any, images: np.ndarray) -> np.ndarray:
    """The float32 input of a model with this config, of images in [0, 255].

    To [-1, 1], or to the mean and deviation that its weights were trained on,
    unless the model scales them itself.
    """
    images = images.astype("float32")
    if config.include_preprocessing:
        return images
    mean, deviation = (getattr(config, x, None) for x in PIXELS)
    return preprocessing.standardize(images, mean, deviation)


def read_batches(
    read: Callable[[Any], np.ndarray], images: Iterable[Any], batch_size: int
) -> Iterator[tuple[list[tuple[str | int, str | None]], np.ndarray]]:
    """Reads images in threads, one batch at a time, past those that are broken.

    Args:
        read: from what `images_of` yields to an array (H, W, C).
        images: what `images_of` yields, any number.
        batch_size: int, B.

    Yields:
        For each image of a batch its name (the path, or its position among
        all images) and None, or why it cannot be read; and those that can as
        an array (B, H, W, C), filled up with zeros; an empty one of none.
    """
    numbered = enumerate(images)
    rows = 0
    executor = concurrent.futures.ThreadPoolExecutor
    with executor() as threads, executor(1) as single:
        while chunk := list(itertools.islice(numbered, batch_size)):
            # Every size of a batch is compiled anew: the last is filled up.
            rows = max(rows, len(chunk))
            given = itertools.repeat(read), itertools.repeat(single), chunk
            found = list(threads.map(_read, *given))
            pixels = [content for _, content, error in found if error is None]
            yield [(x, error) for x, _, error in found], _filled(pixels, rows)


def _read(read, single, numbered):
    """Name, pixels and error of one image."""
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
