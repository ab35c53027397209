"""The handwritten digits of scikit-learn, which need no download.

"Optical Recognition of Handwritten Digits" (Alpaydin and Kaynak, UCI Machine
Learning Repository, 1998): 1797 images by 13 people, 8x8 pixels of 17 grey
levels, bright ink on black.
"""

import re

import numpy as np

from keras_vit.data.config import DataConfig
from keras_vit.data.dataset import Dataset, Examples, complete
from keras_vit.io.checks import check_installed

__all__ = ["open_digits"]

BRIGHTEST = 16  # Of the 17 grey levels, 0 to 16.
# A part of the only split, as tensorflow-datasets writes it.
SPLIT = re.compile(r"train(\[(?P<start>-?\d+%?)?:(?P<stop>-?\d+%?)?\])?")


def open_digits(config: DataConfig) -> Dataset:
    """Open the digits, in the order of scikit-learn.

    Args:
        config: a `DataConfig`, whose splits are parts of "train" such as
            "train[:90%]", "train[-100:]" or "train[:80%]+train[90%:]"; or else
            its fractions.

    Returns:
        A `Dataset` of `Examples`, uint8 (N, 8, 8, 1).

    Raises:
        ValueError: for another split, or without scikit-learn.
    """
    check_installed("The data set 'digits'", "sklearn")
    from sklearn.datasets import load_digits

    source = load_digits()
    levels = source.images * (255 / BRIGHTEST)
    digits = Examples(
        np.rint(levels).astype(np.uint8)[..., None],
        source.target.astype(np.int32),
        source="digits:train",
        on_broken_image=config.on_broken_image,
    )
    splits = (config.train_split, config.validation_split, config.test_split)
    limit = config.max_examples
    if any(splits):
        parts = [split and _part(digits, split, limit) for split in splits]
    else:
        first = _part(digits, "train", limit)
        parts = complete([first, None, None], config)
    names = tuple(map(str, source.target_names))
    return Dataset(*parts, class_names=names, name="digits")


def _part(digits: Examples, split: str, limit: int | None) -> Examples:
    """Return the images of a split, the first `limit` of them."""
    kept = [_indices(part, len(digits)) for part in split.split("+")]
    if not all(map(len, kept)):
        raise ValueError(
            "A split of the digits is a part of their 1797 images, as "
            "'train[:90%]' or 'train[-100:]', or several joined by '+'. "
            f"Received: {split!r}."
        )
    return digits.subset(np.concatenate(kept)[:limit])


def _indices(part: str, size: int) -> range:
    """Return the indices of a part, none for what is not a part."""
    found = SPLIT.fullmatch(part)
    if not found:
        return range(0)
    bounds = [_place(found[x], size) for x in ("start", "stop")]
    return range(size)[slice(*bounds)]


def _place(bound: str | None, size: int) -> int | None:
    if bound is None:
        return None
    if not bound.endswith("%"):
        return int(bound)
    return round(int(bound[:-1]) * size / 100)
