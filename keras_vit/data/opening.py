"""Data sets from wherever they are."""

import dataclasses

import numpy as np

from keras_vit.data.config import DataConfig
from keras_vit.data.dataset import Dataset, leave_accelerators
from keras_vit.data.fractal_data import is_fractals, open_fractals
from keras_vit.data.image_files import (
    open_csv,
    open_folder,
    without_broken_images,
)
from keras_vit.data.stateless import order
from keras_vit.data.tfds import open_tfds
from keras_vit.data.vtab import is_vtab, open_vtab_name

__all__ = ["open_dataset"]

OPENERS = {"name": open_tfds, "folder": open_folder, "csv": open_csv}
# Names that tensorflow-datasets does not have.
OWN = ((is_fractals, open_fractals), (is_vtab, open_vtab_name))


def open_dataset(config: DataConfig) -> Dataset:
    """Finds the images and labels that a config names.

    Args:
        config: a `DataConfig`.

    Returns:
        A `Dataset` whose parts are `Examples`, or None where there are none.

    Raises:
        ValueError: when data is missing, empty, of one class, or broken; see
            `DataConfig`.

    Example:
        >>> digits = open_dataset(DataConfig(name="digits"))
        >>> len(digits.train), len(digits.validation), len(digits.test)
        (1258, 180, 359)
    """
    leave_accelerators()
    field = next(field for field in OPENERS if getattr(config, field))
    own = (opener for is_own, opener in OWN if is_own(config.name))
    dataset = next(own, OPENERS[field])(config)
    _check_classes(dataset)
    dataset = without_broken_images(dataset, config.check_images)
    return _shortened(dataset, config)


def _check_classes(dataset: Dataset) -> None:
    labels = dataset.train.labels
    if labels is None or labels.ndim == 2:
        return
    found = np.unique(labels)
    if len(found) < 2:
        raise ValueError(
            "A classifier needs at least two classes: all "
            f"{len(labels)} training images of {dataset.name!r} are "
            f"{dataset.class_names[found[0]]!r}."
        )


def _shortened(dataset: Dataset, config: DataConfig) -> Dataset:
    """Keeps max_examples of each part, any of them."""
    limit = config.max_examples
    parts = {}
    for split in ("train", "validation", "test"):
        examples = getattr(dataset, split)
        if limit is not None and examples is not None and len(examples) > limit:
            chosen = order(config.split_seed, 0, len(examples))[:limit]
            parts[split] = examples.subset(np.sort(chosen))
    return dataclasses.replace(dataset, **parts)
