"""Facts of image files, and the files that are unlike the others.

Axes: N images, S the side of a small picture.
"""

import io
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np

from keras_vit.auditing.near_duplicates import SIDE
from keras_vit.data.pillow_images import BROKEN, as_seen, in_channels
from keras_vit.io.checks import check_regular

__all__ = ["Facts", "odd_images", "read_facts"]

THREADS = 8
LARGE = 256  # pixels of the longer side, above which an image is scaled down
ROUNDING = 20 / 12  # variance that levels of whole numbers give a Laplacian
# Photographs have 0.2 to 1; blurred with a radius of 3 pixels 0.13 at most.
BLURRED = 0.13
FLAT = 1.0  # levels of 255; less deviation is one colour
FEW = 0.05  # share of the images that are odd in one way, at most


class Facts(NamedTuple):
    """What is known of an image.

    Args:
        error: why it cannot be read, else "".
        size: bytes of the file.
        kind: of the file, as "JPEG".
        mode: of the pixels, as "RGB", "L" or "RGBA".
        width: pixels.
        height: pixels.
        frames: how many pictures the file has.
        brightness: mean level, 0 to 255.
        contrast: deviation of the levels.
        sharpness: of fine detail relative to that of four times the size.
    """

    error: str = ""
    size: int = 0
    kind: str = ""
    mode: str = ""
    width: int = 0
    height: int = 0
    frames: int = 1
    brightness: float = 0.0
    contrast: float = 0.0
    sharpness: float = 0.0


def read_facts(paths: Sequence[str]) -> Iterator[tuple[Facts, np.ndarray]]:
    """Read image files in threads.

    Yields:
        For each, in order, its facts and its small picture, uint8 array of
        shape (S, S, 3); black where the file cannot be read.
    """
    pool = ThreadPoolExecutor(THREADS)
    try:
        yield from pool.map(_read, paths)
    finally:
        # Whoever ends the program does not wait for the rest.
        pool.shutdown(cancel_futures=True)


def _read(path: str) -> tuple[Facts, np.ndarray]:
    from PIL import Image

    size = 0
    try:
        check_regular(path)
        with open(path, "rb") as file:
            content = file.read()
        size = len(content)
        with warnings.catch_warnings():
            # Pillow's, of large images and of odd EXIF data.
            warnings.simplefilter("ignore")
            with Image.open(io.BytesIO(content)) as image:
                return _facts_of(image, size)
    except Image.UnidentifiedImageError:
        error = "it is no image" if size else "it is empty"
    except (*BROKEN, Image.DecompressionBombError) as found:
        error = str(found)
    return Facts(error, size), np.zeros((SIDE, SIDE, 3), "uint8")


def _facts_of(image, size: int) -> tuple[Facts, np.ndarray]:
    from PIL import Image

    kind, mode = image.format or "", image.mode
    width, height = image.size
    frames = getattr(image, "n_frames", 1)
    # A JPEG is decoded at a fraction of its size, in a fraction of the time.
    image.draft(None, (LARGE, LARGE))
    colours = in_channels(as_seen(image), 3)
    small = colours.resize(
        (SIDE, SIDE), Image.Resampling.BICUBIC, reducing_gap=3.0
    )
    colours.thumbnail((LARGE, LARGE), Image.Resampling.BICUBIC)
    levels = np.asarray(colours.convert("L"), "float32")
    facts = Facts(
        size=size,
        kind=kind,
        mode=mode,
        width=width,
        height=height,
        frames=frames,
        brightness=float(levels.mean()),
        contrast=float(levels.std()),
        sharpness=_sharpness(levels),
    )
    return facts, np.asarray(small)


def _sharpness(levels) -> float:
    """Return how much finer detail there is than detail of four times the size.

    Images without detail, as of a sky, have noise, which is finest: they are
    not taken for blurred ones.
    """
    rows, columns = (x // 4 for x in levels.shape)
    if min(rows, columns) < 4:
        return 1.0  # Too small to tell.
    blocks = levels[: 4 * rows, : 4 * columns].reshape(rows, 4, columns, 4)
    fine, coarse = _curvature(levels), _curvature(blocks.mean(axis=(1, 3)))
    return float(np.sqrt(max(fine - ROUNDING, 0.0) / max(coarse, ROUNDING)))


def _curvature(levels) -> float:
    """Return the variance of the Laplacian."""
    around = levels[:-2, 1:-1] + levels[2:, 1:-1]
    around = around + levels[1:-1, :-2] + levels[1:-1, 2:]
    return float((around - 4 * levels[1:-1, 1:-1]).var())


def odd_images(facts: Sequence[Facts]) -> list[tuple[str, int, str]]:
    """Find the images that are unlike the others.

    Returns:
        Tuples of the kind, a key of `ODD`, the number of the image, and what
        is odd in words; by kinds in their order.

    Example:
        >>> odd_images([Facts(error="it is empty")])
        [('unreadable', 0, 'it is empty')]
    """
    found = [("unreadable", i, x.error) for i, x in enumerate(facts) if x.error]
    rows = [i for i, x in enumerate(facts) if not x.error]
    if not rows:
        return found
    readable = [facts[i] for i in rows]
    columns = {
        name: np.array([getattr(x, name) for x in readable])
        for name in Facts.__annotations__
    }
    for kind, (is_odd, text) in ODD.items():
        for place in np.flatnonzero(is_odd(columns)):
            words = text.format(**readable[place]._asdict())
            found.append((kind, rows[place], words))
    return found


def _tiny(x) -> np.ndarray:
    shorter = np.minimum(x["width"], x["height"])
    return shorter < np.median(shorter) / 4


def _elongated(x) -> np.ndarray:
    ratio = np.maximum(x["width"], x["height"])
    ratio = ratio / np.minimum(x["width"], x["height"])
    return ratio >= np.maximum(3, 2 * np.median(ratio))


def _flat(x) -> np.ndarray:
    return x["contrast"] < FLAT


def _dark(x) -> np.ndarray:
    less = x["brightness"] < np.median(x["brightness"]) / 2
    return _few(~_flat(x) & less & (x["brightness"] < 40))


def _bright(x) -> np.ndarray:
    darkness = 255 - x["brightness"]
    less = darkness < np.median(darkness) / 2
    return _few(~_flat(x) & less & (darkness < 40))


def _blurred(x) -> np.ndarray:
    return _few(~_flat(x) & (x["sharpness"] < BLURRED))


def _small_file(x) -> np.ndarray:
    """Return which files are far smaller than others of their kind."""
    found = np.zeros(len(x["size"]), bool)
    share = x["size"] / (x["width"] * x["height"])
    for kind in np.unique(x["kind"]):
        same = x["kind"] == kind
        found[same] = share[same] < np.median(share[same]) / 8
    return _few(found & ~_flat(x))


def _rare_mode(x) -> np.ndarray:
    modes, place, counts = np.unique(
        x["mode"], return_inverse=True, return_counts=True
    )
    return counts[place] <= FEW * len(place)


def _animated(x) -> np.ndarray:
    return x["frames"] > 1


def _few(found) -> np.ndarray:
    """Return what was found, or nothing where that is usual in the folder."""
    return found & (found.sum() <= max(1, FEW * len(found)))


# Kind of an image that is unlike the others -> which they are, of the columns
# of `Facts`, and in words of one of them.
ODD: dict[str, tuple[Callable[[dict], np.ndarray], str]] = {
    "one colour": (_flat, "every pixel has the level {brightness:.0f}"),
    "tiny": (_tiny, "{width}x{height} pixels"),
    "elongated": (_elongated, "{width}x{height} pixels"),
    "dark": (_dark, "mean level {brightness:.0f} of 255"),
    "bright": (_bright, "mean level {brightness:.0f} of 255"),
    "blurred": (_blurred, "sharpness {sharpness:.2f}"),
    "small file": (_small_file, "{size} bytes for {width}x{height} pixels"),
    "rare mode": (_rare_mode, "{mode} pixels in a file of {kind}"),
    "several frames": (_animated, "{frames} pictures; the first one is used"),
}
