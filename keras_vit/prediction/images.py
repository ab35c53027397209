"""Reading of images, from wherever they are, without TensorFlow.

Also of any size as sequences of patches, for `NaFlexTransformer`.

Axes: B images, H and W height and width, C channels, N patches of the longest
sequence.
"""

import concurrent.futures
import functools
import http.client
import io
import itertools
import math
import os
import pathlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from keras_vit import preprocessing
from keras_vit.checkpoints.public.network import (
    check_address,
    open_address,
    shown,
)
from keras_vit.data.image_folders import SUFFIXES, image_files, other_files
from keras_vit.data.image_reader import (
    BROKEN,
    colour_change,
    from_pillow,
    log_colour_changes,
)
from keras_vit.data.resizing import resize
from keras_vit.io.checks import (
    check_kind,
    check_regular,
    check_size,
    is_of,
)
from keras_vit.io.stores import on_disk
from keras_vit.preprocessing import standardize
from keras_vit.runtime.machine import shortage

__all__ = [
    "check_several",
    "fitting_size",
    "images_of",
    "patch_sequences",
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
MOST_PATCHES = 2**20  # of an image of 16,384 pixels a side, of 16 each
MOST_CHANNELS = 1_024
FLOAT32 = 4  # bytes


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
        image: one of those that `images_of` yields; a path of a file or,
            as a str, its address, https:// or http://.
        channels: 1 for grey, 3 for colour.
        changes: gets what becomes of the image's colours, see
            `keras_vit.data.image_reader.colour_change`.

    Returns:
        Array of shape (H, W, channels) in [0, 255]: uint8 but for arrays,
        which keep their dtype.

    Raises:
        ValueError: when it is missing, no image, or its values are no pixels.
    """
    changes = [] if changes is None else changes
    if isinstance(image, (str, os.PathLike)):
        return _read_file(os.fspath(image), channels, changes)
    if isinstance(image, np.ndarray):
        return _from_array(image, channels, changes)
    if not hasattr(image, "getbands"):  # of Pillow
        raise ValueError(
            "An image is a path, a Pillow image or an array. Received: a "
            f"{type(image).__name__}."
        )
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
    prepared: Any,
    images: Iterable[Any],
    batch_size: int,
) -> Iterator[tuple[list[tuple[str | int, str | None]], np.ndarray]]:
    """Reads images in threads, one batch at a time, past those that are broken.

    At the end it logs how many got or lost colours for the model, if any.

    Args:
        prepared: a `Classifier` or an `Encoder`, which reads them.
        images: what `images_of` yields, any number.
        batch_size: int, B; 1 where a file resizes images by itself.

    Yields:
        For each image of a batch its name (the path, or its position among
        all images) and None, or why it cannot be read; and those that can as
        an array (B, H, W, C), filled up with zeros; an empty one of none.
    """
    check_several("images", images)
    numbered = enumerate(images)
    rows, changes = 0, []
    if prepared.resizes:  # Images of a batch have one size.
        batch_size = 1

    def read_one(image):
        return prepared.read(image, changes)

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


def check_several(name: str, values: Any) -> None:
    """Refuse one path in the place of several, whose letters would be read."""
    if isinstance(values, (str, bytes, os.PathLike)) or not isinstance(
        values, Iterable
    ):
        raise ValueError(
            f"{name} are several. Received: {name}={values!r}. Put one into a "
            "list, and list a folder by keras_vit.prediction.images_of."
        )


def patch_sequences(
    images: Sequence,
    patch_size: int | tuple[int, int],
    *,
    max_patches: int = 256,
    channels: int = 3,
    mean=None,
    std=None,
    scale: bool = True,
) -> dict[str, np.ndarray]:
    """Makes one batch of images of any size and aspect ratio.

    Each image keeps its aspect ratio as far as whole patches allow, and is
    resized to as many patches as fit into `max_patches`, as for SigLIP 2
    (arXiv:2502.14786, section 2.4.2).

    Args:
        images: paths, Pillow images or arrays (H, W, channels) in [0, 255].
        patch_size: int, or (height, width), of a patch in pixels.
        max_patches: int, N, to which all sequences are padded.
        channels: int, 3 or 1.
        mean: None, or the mean of each channel, 1 for white, that is
            subtracted; None scales to [-1, 1].
        std: None, or the deviation of each channel that it is divided by.
        scale: bool; False leaves the pixels in [0, 255], for a model with
            `include_preprocessing`.

    Returns:
        A dict of arrays: "patches" float32 (B, N, patch height * patch width
        * channels), "coordinates" int32 (B, N, 2) and "valid" bool (B, N).

    Raises:
        ValueError: for what is no image, or less than one patch.

    Example:

    >>> inputs = patch_sequences(["wide.jpg", "tall.jpg"], 16)
    >>> {name: array.shape for name, array in inputs.items()}
    {'patches': (2, 256, 768), 'coordinates': (2, 256, 2), 'valid': (2, 256)}
    """
    check_several("images", images)
    check_kind(bool, scale=scale)
    patch = check_size("patch_size", patch_size)
    _check_number("max_patches", max_patches, MOST_PATCHES)
    _check_number("channels", channels, MOST_CHANNELS)
    _check_statistics(channels, mean, std)
    if mean is not None and not scale:
        raise ValueError(
            "mean and std do nothing with scale=False. Received: "
            f"mean={mean!r}. Leave them out."
        )
    needed = len(images) * max_patches * math.prod(patch) * channels * FLOAT32
    if short := shortage(needed):
        raise ValueError(
            f"{len(images)} sequences of {max_patches:,} patches take {short}. "
            f"Received: max_patches={max_patches!r}. Give fewer, or fewer "
            "images at a time."
        )
    batch = {
        "patches": np.zeros(
            (len(images), max_patches, math.prod(patch) * channels), "float32"
        ),
        "coordinates": np.zeros((len(images), max_patches, 2), "int32"),
        "valid": np.zeros((len(images), max_patches), "bool"),
    }
    for i, image in enumerate(images):
        pixels = read_pixels(image, channels)  # (H, W, channels)
        size = fitting_size(pixels.shape[:2], patch, max_patches)
        pixels = resize(pixels, size, antialias=True, rounding="float32")
        if scale:
            pixels = standardize(pixels, mean, std)
        patches, coordinates = _cut(pixels, patch)
        batch["patches"][i, : len(patches)] = patches
        batch["coordinates"][i, : len(patches)] = coordinates
        batch["valid"][i, : len(patches)] = True
    return batch


def _check_statistics(channels, mean, std):
    given = [np.asarray(x) for x in (mean, std) if x is not None]
    right = [
        is_of(tuple[float, ...], x.tolist()) and x.shape == (channels,)
        for x in given
    ]
    if len(given) == 1 or not all(right) or given and np.min(std) <= 0:
        raise ValueError(
            f"mean and std are a number for each of {channels} channels, and "
            f"std above 0, or both None. Received: mean={mean!r}, std={std!r}."
        )


def _check_number(name, value, most):
    if type(value) is not int or not 1 <= value <= most:
        raise ValueError(
            f"{name} is a whole number of at least 1 and at most {most:,}. "
            f"Received: {name}={value!r}."
        )


def fitting_size(
    size: tuple[int, int], patch_size: tuple[int, int], max_patches: int
) -> tuple[int, int]:
    """Return the largest size of whole patches in an image's proportions.

    Both sides are scaled by one factor and rounded up to whole patches; the
    factor is the largest with no more than `max_patches` patches.
    """
    # A side gets one patch more where factor * side is a whole number of
    # patches, so the largest factors are among these.
    factors = {
        count * patch / side
        for side, patch in zip(size, patch_size, strict=True)
        for count in range(1, max_patches + 1)
    }
    counts = (
        [
            # Rounded errors of a whole number would need one patch more.
            max(1, math.ceil(factor * side / patch - 1e-9))
            for side, patch in zip(size, patch_size, strict=True)
        ]
        for factor in sorted(factors, reverse=True)
    )
    rows, columns = next(x for x in counts if math.prod(x) <= max_patches)
    return rows * patch_size[0], columns * patch_size[1]


def _cut(pixels, patch_size):
    """Patches (N, h * w * channels) of an image, and their places (N, 2)."""
    height, width = patch_size
    rows, columns = pixels.shape[0] // height, pixels.shape[1] // width
    x = pixels.reshape(rows, height, columns, width, -1)
    patches = x.transpose(0, 2, 1, 3, 4).reshape(rows * columns, -1)
    places = np.indices((rows, columns)).reshape(2, -1).T
    return patches, places
