"""Images of any size as sequences of patches, for `NaFlexTransformer`.

Axes: B images, N patches of the longest sequence.
"""

import math
from collections.abc import Sequence

import numpy as np

from keras_vit.data.resizing import resize
from keras_vit.io.checks import check_size
from keras_vit.prediction.images import read_pixels
from keras_vit.preprocessing import standardize
from keras_vit.runtime.memory import shortage

__all__ = ["fitting_size", "patch_sequences"]

MOST_PATCHES = 2**20  # of an image of 16,384 pixels a side, of 16 each
MOST_CHANNELS = 1_024
FLOAT32 = 4  # bytes


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
    patch = check_size("patch_size", patch_size)
    _check_number("max_patches", max_patches, MOST_PATCHES)
    _check_number("channels", channels, MOST_CHANNELS)
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
