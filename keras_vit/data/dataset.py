"""What every data source is turned into: three splits and the class names."""

import dataclasses
from typing import Any

import keras
import numpy as np

__all__ = [
    "Dataset",
    "cut",
    "leave_accelerators",
    "stratified_split",
]


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


def stratified_split(
    labels,
    *,
    validation_fraction: float,
    test_fraction: float,
    seed: int,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Splits at random, each part with the same share of every class.

    Args:
        labels: integer array of shape (N,).
        validation_fraction: float in [0, 1), share of the N images.
        test_fraction: float in [0, 1), share of the N images.
        seed: int; the same seed gives the same split.

    Returns:
        Indices of the training, validation and test images: three sorted
        integer arrays that hold each of 0 to N - 1 once.

    Raises:
        ValueError: by scikit-learn, when a part is too small to hold every
            class.

    Example:
        >>> labels = np.repeat([0, 1], 50)
        >>> train, validation, test = stratified_split(
        ...     labels, validation_fraction=0.1, test_fraction=0.2, seed=0
        ... )
        >>> len(train), len(validation), len(test)
        (70, 10, 20)
    """
    labels = np.asarray(labels)
    num_validation = round(validation_fraction * len(labels))
    num_test = round(test_fraction * len(labels))
    everything = np.arange(len(labels))
    rest, test = _cut_off(everything, labels, num_test, seed)
    train, validation = _cut_off(rest, labels, num_validation, seed)
    return np.sort(train), np.sort(validation), np.sort(test)


def _cut_off(indices, labels, size: int, seed: int):
    from sklearn.model_selection import train_test_split

    if not size:
        return indices, indices[:0]
    return train_test_split(
        indices, test_size=size, stratify=labels[indices], random_state=seed
    )


def cut(
    examples,
    *,
    validation_fraction: float,
    test_fraction: float,
    seed: int,
) -> tuple:
    """Cuts validation and test images off, each class with its share.

    Args:
        examples: an `Examples`; or a `StreamedExamples`, whose last images
            are cut off.
        validation_fraction: float in [0, 1), 0 for none.
        test_fraction: float in [0, 1), 0 for none.
        seed: int; the same seed gives the same cut.

    Returns:
        Training, validation and test images; None where the fraction is 0.

    Raises:
        ValueError: when a class has too few images.
    """
    if not (validation_fraction or test_fraction):
        return examples, None, None
    if examples.labels is None:
        return _cut_by_position(examples, validation_fraction, test_fraction)
    try:
        parts = stratified_split(
            examples.labels,
            validation_fraction=validation_fraction,
            test_fraction=test_fraction,
            seed=seed,
        )
    except ValueError as error:
        raise ValueError(
            f"The {len(examples)} images of {examples.source} cannot be cut "
            f"with validation_fraction={validation_fraction} and "
            f"test_fraction={test_fraction}: {error} Add images, choose other "
            "fractions, or give the parts yourself."
        ) from error
    train, validation, test = (
        examples.subset(part) if len(part) else None for part in parts
    )
    return train, validation, test


def _cut_by_position(
    examples, validation_fraction: float, test_fraction: float
):
    size = len(examples)
    num_test = round(test_fraction * size)
    num_train = size - num_test - round(validation_fraction * size)
    bounds = [(0, num_train), (num_train, size - num_test)]
    bounds.append((size - num_test, size))
    train, validation, test = (
        examples.between(start, stop) if stop > start else None
        for start, stop in bounds
    )
    return train, validation, test


def leave_accelerators() -> None:
    """Keeps TensorFlow, where another backend computes, to the processors.

    It would take the memory of the GPUs as soon as it starts. Where it has
    started, it is left as it is.

    Example:
        >>> leave_accelerators()  # before the first tensor of TensorFlow
    """
    if keras.backend.backend() == "tensorflow":
        return
    import tensorflow as tf

    try:
        tf.config.set_visible_devices([], "GPU")
    except RuntimeError:
        pass  # Its devices cannot be changed after the start.
