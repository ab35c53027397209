"""Which fractals are classes, and how the images of a class differ.

FractalDB's rules (Kataoka et al., "Pre-training without Natural Images",
arXiv:2101.08515, sections 3.2 and 3.3): a class is a system that fills enough
of its picture; its images differ by a factor on one of the six letters of all
maps, by the 3x3 brush that points are drawn with, and by being mirrored. Here
the random walk of the points differs as well.

Axes: N images, S systems, H pixels a side, P points that move at once.
"""

from collections.abc import Sequence

import numpy as np

from keras_vit.data.synthetic_drawing import draw, points_of, walk_shape
from keras_vit.data.synthetic_systems import (
    LETTERS,
    Systems,
    random_words,
    unit_interval,
)

__all__ = ["class_systems", "filling_rate", "fractal_images", "images_of"]

# Share of its picture that a class fills (FractalDB's filling rate), at so
# many pixels a side; three of ten systems do.
FILLING_RATE, FILLING_SIZE = 0.2, 64
CENTRE = 0b000010000  # The brush of one fine pixel.
LARGEST_CHANGE = 0.2  # Of a letter: factors of 0.8 to 1.2, as in FractalDB.
# Purposes of random words; synthetic_systems.py has 0.
CHANGES, WALKS, FILLINGS = 1, 2, 3
BATCH = 64  # Images, which the cache of a processor holds.


def fractal_images(
    classes, instances, *, seed: int = 0, image_size: int = 32
) -> np.ndarray:
    """Makes single fractals.

    Args:
        classes: ints, N, the class of each.
        instances: ints, N, its number in the class.
        seed: int in [0, 2**64).
        image_size: int, pixels a side, H.

    Returns:
        uint8 array of shape (N, H, H, 1).

    Raises:
        ValueError: unless there is one class an instance, none below 0.

    Example:
        >>> fractal_images([7, 7], [0, 1]).shape
        (2, 32, 32, 1)
    """
    if len(classes) != len(instances) or min(*classes, *instances) < 0:
        raise ValueError(
            "There must be one class and one instance, from 0 on, for each "
            f"image. Received: classes={classes}, instances={instances}."
        )
    numbers, rows = np.unique(classes, return_inverse=True)
    systems = class_systems(seed, numbers.tolist()).subset(rows)
    return images_of(systems, seed, classes, instances, image_size)


def class_systems(seed: int, numbers: Sequence[int]) -> Systems:
    """Draws a system for each class until it fills enough of its picture.

    Args:
        seed: int in [0, 2**64).
        numbers: of the classes, S.

    Returns:
        `Systems`; each is a function of the seed and its number alone.
    """
    maps, choices = [], []
    for start in range(0, len(numbers), BATCH):
        found = _search(seed, np.array(numbers[start : start + BATCH]))
        maps.append(found.maps)
        choices.append(found.choices)
    return Systems(np.concatenate(maps), np.concatenate(choices))


def _search(seed: int, numbers: np.ndarray) -> Systems:
    found = Systems.drawn(seed, numbers.tolist(), attempt=0)
    poor = np.flatnonzero(filling_rate(found, seed, numbers) < FILLING_RATE)
    attempt = 1
    while len(poor):
        others = Systems.drawn(seed, numbers[poor].tolist(), attempt)
        found.maps[poor], found.choices[poor] = others.maps, others.choices
        rates = filling_rate(others, seed, numbers[poor])
        poor = poor[rates < FILLING_RATE]
        attempt += 1
    return found


def filling_rate(systems: Systems, seed: int, numbers) -> np.ndarray:
    """Measures how much of their pictures systems fill.

    Args:
        systems: `Systems`, S.
        seed: int.
        numbers: ints, S, of the classes.

    Returns:
        float array of shape (S,): the share of pixels that are not black.
    """
    draws = _walks(
        seed, numbers, np.zeros_like(numbers), FILLINGS, FILLING_SIZE
    )
    x, y = points_of(systems, draws)
    brushes = np.full(len(systems), CENTRE)
    pixels = draw(x, y, brushes, np.zeros_like(brushes), FILLING_SIZE)
    return np.count_nonzero(pixels, axis=(1, 2)) / FILLING_SIZE**2


def images_of(
    systems: Systems, seed: int, classes, instances, image_size: int
) -> np.ndarray:
    """Makes images of classes whose systems are known.

    Args:
        systems: `Systems`, N, of the class of each image.
        seed: int.
        classes: ints, N.
        instances: ints, N, number of each image in its class.
        image_size: int, H.

    Returns:
        uint8 array of shape (N, H, H, 1).
    """
    changes = np.stack(
        [
            random_words(seed, number, purpose=CHANGES, item=item, size=4)
            for number, item in zip(classes, instances, strict=True)
        ]
    )  # (N, 4)
    letters = (changes[:, 0] % np.uint64(LETTERS)).astype(int)
    factors = 1 + LARGEST_CHANGE * (2 * unit_interval(changes[:, 1]) - 1)
    maps = systems.maps.copy()
    maps[np.arange(len(maps)), :, letters] *= factors[:, None].astype("float32")
    draws = _walks(seed, classes, instances, WALKS, image_size)
    x, y = points_of(Systems(maps, systems.choices), draws)
    brushes = (1 + changes[:, 2] % np.uint64(511)).astype(int)
    flips = (changes[:, 3] % np.uint64(4)).astype(int)
    return draw(x, y, brushes, flips, image_size)[..., None]


def _walks(seed: int, classes, items, purpose: int, image_size: int):
    """Random bytes that choose the maps, uint8 (N, steps, P)."""
    steps, walkers = walk_shape(image_size)
    size = steps * walkers // 8
    words = [
        random_words(seed, number, purpose=purpose, item=item, size=size)
        for number, item in zip(classes, items, strict=True)
    ]
    # The lowest byte of a word comes first, on any machine.
    draws = np.stack(words).astype("<u8").view(np.uint8)
    return draws.reshape(len(words), steps, walkers)
