"""Which fractals are classes, and how the images of a class differ.

After FractalDB (Kataoka et al., "Pre-training without Natural Images",
arXiv:2101.08515), on which Vision Transformers have been pre-trained as well
(Nakashima et al., "Can Vision Transformers Learn without Natural Images?",
arXiv:2103.13023). A class is an iterated function system. Its images differ,
as there, by a factor on one of the six letters of all maps, by the 3x3 brush
that points are drawn with and by being mirrored; here also by the random walk
of the points, which FractalDB does not change.

An image is a function of (seed, class, number in the class) alone, to the last
bit, whatever the machine and the other images.

Axes: N images, H pixels a side, B images of a batch.
"""

import dataclasses
import os
import pathlib
import tempfile
from collections.abc import Sequence

import numpy as np

from keras_vit.checks import check_at_least, check_limits
from keras_vit.data.config import DataConfig
from keras_vit.data.dataset import Dataset, cut
from keras_vit.data.examples import Examples
from keras_vit.data.fractal_systems import (
    LETTERS,
    Systems,
    draw,
    points_of,
    random_words,
    unit_interval,
    walk_shape,
)

__all__ = [
    "FractalConfig",
    "class_systems",
    "filling_rate",
    "fractal_images",
    "fractals",
    "images_of",
    "is_fractals",
    "open_fractals",
]

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


NAME = "fractals"
VERSION = 1  # Of the formula; another one makes other images.
BATCH_PIXELS = 2**21


@dataclasses.dataclass(frozen=True)
class FractalConfig:
    """Which fractals.

    Args:
        num_classes: int.
        images_per_class: int.
        image_size: int, pixels a side, H.
        seed: int in [0, 2**63); other seeds have other classes.

    Raises:
        ValueError: for values out of range.

    Example:
        >>> FractalConfig.of_name("fractals/num_classes=10,seed=3").seed
        3
    """

    num_classes: int = 100
    images_per_class: int = 200
    image_size: int = 32
    seed: int = 0

    def __post_init__(self):
        check_at_least(self, 2, "num_classes")
        check_at_least(self, 1, "images_per_class")
        check_at_least(self, 8, "image_size")
        check_limits(self, 2**63, "seed")

    @classmethod
    def of_name(cls, name: str) -> "FractalConfig":
        """Reads a name of the form "fractals/field=value,...".

        Args:
            name: str; what it leaves out is as by default.

        Returns:
            A `FractalConfig`.

        Raises:
            ValueError: for another name, an unknown field or value.
        """
        base, _, options = name.partition("/")
        fields = [field.name for field in dataclasses.fields(cls)]
        pairs = [option.split("=") for option in options.split(",") if option]
        if base != NAME or not all(
            len(pair) == 2 and pair[0] in fields and pair[1].isdecimal()
            for pair in pairs
        ):
            raise ValueError(
                f"Unknown data set: {name!r}. Fractals are named {NAME!r} or, "
                f'for example, "{NAME}/num_classes=1000,image_size=64"; the '
                f"fields are {', '.join(fields)}, the values whole numbers."
            )
        return cls(**{field: int(value) for field, value in pairs})

    def __len__(self) -> int:
        return self.num_classes * self.images_per_class


def is_fractals(name: str | None) -> bool:
    """Says whether a name is one of fractals.

    Args:
        name: of a data set, or None.

    Returns:
        bool.

    Example:
        >>> is_fractals("fractals/seed=1"), is_fractals("cifar10")
        (True, False)
    """
    return (name or "").split("/")[0] == NAME


def open_fractals(config: DataConfig) -> Dataset:
    """Makes the fractals that a config names, and cuts them into parts.

    Args:
        config: a `DataConfig` with a name as `FractalConfig.of_name` reads,
            whose fractions and split_seed are used. With a data_dir the
            images are kept there.

    Returns:
        A `Dataset` of `Examples`.

    Raises:
        ValueError: for a wrong name or splits by name, or when there are too
            few images of a class to cut.

    Example:
        >>> config = DataConfig(name="fractals/num_classes=10")
        >>> len(open_fractals(config).train)
        1400
    """
    if config.train_split or config.validation_split or config.test_split:
        raise ValueError(
            "Fractals are cut by data.validation_fraction and "
            "data.test_fraction. Received: train_split="
            f"{config.train_split!r}, validation_split="
            f"{config.validation_split!r}, test_split={config.test_split!r}."
        )
    wanted = FractalConfig.of_name(config.name or NAME)
    parts = cut(
        fractals(wanted, cache_dir=config.data_dir),
        validation_fraction=config.validation_fraction,
        test_fraction=config.test_fraction,
        seed=config.split_seed,
    )
    digits = len(str(wanted.num_classes - 1))
    names = [f"fractal_{i:0{digits}}" for i in range(wanted.num_classes)]
    return Dataset(*parts, class_names=tuple(names), name=config.name or NAME)


def fractals(
    config: FractalConfig, *, cache_dir: str | os.PathLike | None = None
) -> Examples:
    """Makes fractals, or reads those that were made before.

    A second of one core makes 9800 images of 32x32, 2200 of 64x64 or 130 of
    224x224; N images take N * H * H bytes of memory.

    Args:
        config: a `FractalConfig`.
        cache_dir: folder to keep the images in; None keeps none. The file is
            mapped, so that only what is used of it takes memory.

    Returns:
        `Examples` of grey images, bright on black, class after class.

    Raises:
        ValueError: when the cached file is not what it should be.

    Example:
        >>> fractals(FractalConfig(num_classes=10)).contents.shape
        (2000, 32, 32, 1)
    """
    labels = np.arange(config.num_classes, dtype=np.int32)
    labels = labels.repeat(config.images_per_class)
    if cache_dir is None:
        side = config.image_size
        images = np.empty((len(config), side, side, 1), np.uint8)
        _fill(images, config)
    else:
        images = _cached(config, pathlib.Path(cache_dir))
    return Examples(images, labels, source=NAME)


def _fill(images: np.ndarray, config: FractalConfig) -> None:
    systems = class_systems(config.seed, range(config.num_classes))
    # Few large images at a time: each takes 16 times its pixels while drawn.
    batch = min(BATCH, max(BATCH_PIXELS // config.image_size**2, 1))
    for start in range(0, len(images), batch):
        some = np.arange(start, min(start + batch, len(images)))
        classes, instances = np.divmod(some, config.images_per_class)
        images[start : some[-1] + 1] = images_of(
            systems.subset(classes),
            config.seed,
            classes,
            instances,
            config.image_size,
        )


def _cached(config: FractalConfig, folder: pathlib.Path) -> np.ndarray:
    shape = (len(config), config.image_size, config.image_size, 1)
    path = folder / (
        f"{NAME}-{VERSION}-seed{config.seed}-{config.num_classes}x"
        f"{config.images_per_class}-{config.image_size}.npy"
    )
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        # A name of its own: several processes may do the same.
        with tempfile.TemporaryDirectory(dir=folder) as temporary:
            partial = pathlib.Path(temporary, path.name)
            _fill(
                np.lib.format.open_memmap(
                    partial, mode="w+", dtype=np.uint8, shape=shape
                ),
                config,
            )
            os.replace(partial, path)
    try:
        images = np.load(path, mmap_mode="r", allow_pickle=False)
    except (EOFError, OSError, ValueError) as error:
        raise ValueError(_spoilt(path, error)) from error
    if images.shape != shape or images.dtype != np.uint8:
        found = f"{images.dtype} of shape {images.shape}"
        raise ValueError(_spoilt(path, found))
    return images


def _spoilt(path, found) -> str:
    return (
        f"The file {os.fspath(path)!r} does not hold the fractals that were "
        f"written to it: {found}. Remove it, and they are made again."
    )
