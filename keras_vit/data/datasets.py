"""Data sets by name."""

from keras_vit.data.dataset import Dataset
from keras_vit.data.digits import digits

__all__ = ["load"]

# Each takes image_size, channels, validation_fraction, test_fraction and
# split_seed by keyword and returns a `Dataset`.
SOURCES = {"digits": digits}


def load(name: str, **options) -> Dataset:
    """Loads a data set by its name.

    Args:
        name: one of `SOURCES`.
        **options: `image_size`, `channels`, `validation_fraction`,
            `test_fraction` and `split_seed`, see `digits`.

    Returns:
        A `Dataset`.

    Raises:
        ValueError: for an unknown name, with the known ones.

    Example:
        >>> load("digits", image_size=(8, 8)).class_names[:3]
        ('0', '1', '2')
    """
    if name not in SOURCES:
        raise ValueError(
            f"Unknown data set: {name!r}. Expected one of "
            f"{', '.join(map(repr, SOURCES))}."
        )
    return SOURCES[name](**options)
