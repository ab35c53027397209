"""Data sets from wherever they are."""

from keras_vit.data.config import DataConfig
from keras_vit.data.csv_files import open_csv
from keras_vit.data.dataset import Dataset
from keras_vit.data.folders import open_folder
from keras_vit.data.tfds_source import open_tfds

__all__ = ["open_dataset"]

OPENERS = {"name": open_tfds, "folder": open_folder, "csv": open_csv}


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
    field = next(field for field in OPENERS if getattr(config, field))
    return OPENERS[field](config)
