"""What every data source is turned into: three splits and the class names.

Axes: N images, H and W height and width, C channels.
"""

import dataclasses
from typing import Any

import numpy as np

__all__ = ["Dataset", "Split"]


@dataclasses.dataclass(frozen=True)
class Split:
    """Images and labels that belong together.

    Args:
        images: uint8 array of shape (N, H, W, C).
        labels: integer array of shape (N,), indices into the class names.

    Raises:
        ValueError: when the images are not uint8 of four axes, or there is
            not one label an image.

    Example:
        >>> images = np.zeros((2, 8, 8, 1), "uint8")
        >>> len(Split(images, labels=np.array([0, 1])))
        2
    """

    images: np.ndarray
    labels: np.ndarray

    def __post_init__(self):
        if self.images.ndim != 4 or self.images.dtype != np.uint8:
            raise ValueError(
                "images must be a uint8 array of shape (N, height, width, "
                f"channels). Received: {self.images.dtype} of shape "
                f"{self.images.shape}."
            )
        if self.labels.shape != self.images.shape[:1]:
            raise ValueError(
                "There must be one integer label an image. Received: labels "
                f"of shape {self.labels.shape} for {len(self.images)} images."
            )

    def __len__(self) -> int:
        return len(self.images)


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
