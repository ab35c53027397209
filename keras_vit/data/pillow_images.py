"""Pixels of Pillow's images: as they are seen, in grey or in colour.

Axes: H and W height and width, C channels.
"""

import io

import numpy as np

__all__ = ["BROKEN", "as_seen", "from_pillow", "in_channels", "is_coloured"]

# What Pillow raises for broken files; SyntaxError is that of PNG.
BROKEN = (OSError, SyntaxError, ValueError)
COLOURED = 32  # of 255; JPEG makes smaller differences of grey
ORIENTATION = 0x0112  # its number in EXIF
STRIP = 512  # rows that are converted at a time
MODES = {1: "L", 3: "RGB"}  # Pillow's name for an image of so many channels


def from_pillow(image, channels: int) -> np.ndarray:
    """The pixels of a Pillow image as it is seen.

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
    """A Pillow image turned as its EXIF data says."""
    from PIL import ImageOps

    image.load()  # Some kinds have their EXIF data at the end.
    if image.getexif().get(ORIENTATION, 1) != 1:
        return ImageOps.exif_transpose(image)
    return image


def in_channels(image, channels: int):
    """A Pillow image as grey or in colour, without transparency."""
    from PIL import Image

    if image.mode.startswith("I;16"):  # Pillow would clip it at 255.
        image = Image.fromarray((np.asarray(image) // 257).astype(np.uint8))
    if "transparency" in image.info:  # Pillow warns of other ways to drop it.
        image = image.convert("RGBA")
    return image.convert(MODES[channels])


def is_coloured(examples, count: int = 8) -> bool:
    """Whether one of the first images has colours.

    Grey photographs in files of three channels have none. Of images that
    cannot be read, or whose contents are not at hand, nothing is known.
    """
    contents = getattr(examples, "contents", None)
    if contents is None:
        return False
    from PIL import Image

    for content in contents[:count]:
        if examples.kind == "array":
            pixels = content
        else:
            try:
                if examples.kind == "record":
                    content = examples.records.read(int(content))
                is_bytes = isinstance(content, bytes)
                source = io.BytesIO(content) if is_bytes else content
                with Image.open(source) as image:
                    pixels = from_pillow(image, 3)
            except BROKEN:
                continue
        if pixels.shape[-1] == 3 and _spread(pixels) > COLOURED:
            return True
    return False


def _spread(pixels) -> int:
    """The largest difference of the channels of a pixel."""
    return int((pixels.max(axis=-1) - pixels.min(axis=-1)).max())
