"""Cutting a data set into what is learned from, chosen on and reported."""

import numpy as np

__all__ = ["stratified_split"]


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
        validation_fraction: float in (0, 1), share of the N images.
        test_fraction: float in (0, 1), share of the N images.
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
    from sklearn.model_selection import train_test_split

    labels = np.asarray(labels)
    num_validation = round(validation_fraction * len(labels))
    num_test = round(test_fraction * len(labels))
    rest, test = train_test_split(
        np.arange(len(labels)),
        test_size=num_test,
        stratify=labels,
        random_state=seed,
    )
    train, validation = train_test_split(
        rest,
        test_size=num_validation,
        stratify=labels[rest],
        random_state=seed,
    )
    return np.sort(train), np.sort(validation), np.sort(test)
