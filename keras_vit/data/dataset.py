"""What every data source is turned into: three splits and the class names."""

import dataclasses
from typing import Any

__all__ = ["Dataset"]


@dataclasses.dataclass(frozen=True)
class Dataset:
    """A data set, split into what is learned from, chosen on and reported.

    Args:
        train: the images that the weights are fitted to.
        validation: those that choices are made on, or None.
        test: those that are looked at once, for the result, or None.
        class_names: names of the classes; label i is `class_names[i]`.
        name: of the data set.
        skipped: names of the images that were left out because they cannot
            be read.
    """

    train: Any
    validation: Any
    test: Any
    class_names: tuple[str, ...]
    name: str = ""
    skipped: tuple[str, ...] = ()
