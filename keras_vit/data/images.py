"""From image files and arrays to the size and channels of a model.

One resampling for training data and for the user's own images: what a model
is shown when it is used is made as what it was trained on.
"""

import os

import numpy as np

__all__ = ["read_image", "resize"]

# Pillow's name for an image of so many channels.
MODES = {1: "L", 3: "RGB"}


def read_image(
    path: str | os.PathLike, *, image_size: tuple[int, int], channels: int
) -> np.ndarray:
    """Reads an image file of any kind that Pillow opens.

    The orientation that a camera noted is applied; the sides are scaled
    independently, so that the whole image is seen.

    Args:
        path: the file.
        image_size: (height, width) of the result.
        channels: 1 for grey, 3 for colour.

    Returns:
        uint8 array of shape (height, width, channels).

    Raises:
        ValueError: when the file is missing or is no image, with the reason.

    Example:
        >>> read_image("digit.png", image_size=(16, 16), channels=1).shape
        (16, 16, 1)
    """
    from PIL import Image, ImageOps

    try:
        with Image.open(path) as image:
            return resize(ImageOps.exif_transpose(image), image_size, channels)
    except FileNotFoundError:
        raise ValueError(f"There is no file {os.fspath(path)!r}.") from None
    except (
        OSError,
        SyntaxError,  # Pillow's, for a broken PNG.
        ValueError,
        Image.DecompressionBombError,
    ) as error:
        raise ValueError(
            f"{os.fspath(path)!r} cannot be read as an image: {error}"
        ) from None


def resize(image, image_size: tuple[int, int], channels: int) -> np.ndarray:
    """Brings an image to the size and the channels of a model.

    Args:
        image: a Pillow image, or a uint8 array of shape (H, W) or (H, W, 3).
        image_size: (height, width) of the result; bicubic, averaging over
            all pixels when it is smaller.
        channels: 1 for grey, 3 for colour.

    Returns:
        uint8 array of shape (height, width, channels).
    """
    from PIL import Image

    if isinstance(image, np.ndarray):
        image = Image.fromarray(image)
    if image.mode.startswith("I;16"):  # Pillow would clip it at 255.
        image = Image.fromarray((np.asarray(image) // 257).astype(np.uint8))
    height, width = image_size
    image = image.convert(MODES[channels])
    image = image.resize((width, height), Image.Resampling.BICUBIC)
    return np.asarray(image).reshape(height, width, channels)
