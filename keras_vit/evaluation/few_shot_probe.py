"""A linear classifier in closed form, and the few images it is fitted to.

The probe of "An Image Is Worth 16x16 Words" (arXiv:2010.11929, section 4.1,
"few-shot"), with the constants of big_vision's `evaluators/fewshot_lsr.py`.

Axes: N images, D features, K classes.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np

__all__ = ["Probe", "choose_shots", "fit_probe"]

TINY = 1e-5  # Added to each standard deviation.


@dataclasses.dataclass(frozen=True)
class Probe:
    """A linear classifier.

    Args:
        kernel: float64 array of shape (D, K).
        bias: float64 array of shape (K,).

    Example:
        >>> probe = fit_probe(features, labels, num_classes=10)
        >>> classes = probe.scores(other_features).argmax(axis=1)
    """

    kernel: np.ndarray
    bias: np.ndarray

    def scores(self, features: np.ndarray) -> np.ndarray:
        """Scores each class, -1 for no and 1 for yes.

        Args:
            features: float array of shape (N, D).

        Returns:
            float64 array of shape (N, K).
        """
        return features.astype(np.float64) @ self.kernel + self.bias


def fit_probe(
    features: np.ndarray,
    labels: np.ndarray,
    num_classes: int,
    *,
    l2: float = 1024.0,
    constant: float = 100.0,
) -> Probe:
    """Fits a linear classifier by regularised least squares.

    Features are whitened one by one with their mean and standard deviation,
    a constant feature is added, large so that it is hardly regularised, and
    the targets are 1 for the class and -1 for all others. Of the two equal
    forms of the solution, (X'X + l2 I)^-1 X'Y and X'(XX' + l2 I)^-1 Y, the one
    with the smaller matrix is solved, in float64.

    Args:
        features: float array of shape (N, D).
        labels: int array of shape (N,).
        num_classes: int, K.
        l2: float, strength of the regularisation, above 0.
        constant: float, value of the constant feature.

    Returns:
        A `Probe` of the features as they were given.

    Raises:
        ValueError: when there are no images, features and labels do not
            fit, a label is no class, or l2 is not above 0.

    Example:
        >>> features = np.array([[0.0], [1.0]])
        >>> probe = fit_probe(features, np.array([0, 1]), 2, l2=1.0)
        >>> probe.scores(features).argmax(axis=1).tolist()
        [0, 1]
    """
    _check(features, labels, num_classes, l2)
    features = features.astype(np.float64)
    mean, deviation = features.mean(axis=0), features.std(axis=0) + TINY
    x = (features - mean) / deviation
    x = np.pad(x, ((0, 0), (0, 1)), constant_values=constant)  # (N, D + 1)
    targets = 2.0 * np.eye(num_classes)[labels] - 1.0  # (N, K)
    images, width = x.shape
    if images >= width:
        solved = np.linalg.solve(x.T @ x + l2 * np.eye(width), x.T @ targets)
    else:
        solved = x.T @ np.linalg.solve(x @ x.T + l2 * np.eye(images), targets)
    kernel = solved[:-1] / deviation[:, None]  # (D, K)
    return Probe(kernel, constant * solved[-1] - mean @ kernel)


def _check(features, labels, num_classes: int, l2: float) -> None:
    if features.ndim != 2 or labels.shape != features.shape[:1]:
        raise ValueError(
            "There must be a row of features and a label for each image. "
            f"Received: features of shape {features.shape}, labels of shape "
            f"{labels.shape}."
        )
    if not len(labels) or labels.min() < 0 or labels.max() >= num_classes:
        raise ValueError(
            f"There must be labels, from 0 to {num_classes - 1}. Received: "
            f"{np.unique(labels).tolist()}."
        )
    if not l2 > 0:
        raise ValueError(f"l2 must be above 0. Received: l2={l2}.")
    if not np.isfinite(features).all():
        raise ValueError(
            "The model gives features that are not finite. See the weights "
            "and the images."
        )


def choose_shots(
    labels: np.ndarray, num_classes: int, *, shots: Sequence[int], seed: int
) -> list[np.ndarray]:
    """Chooses images of each class at random, as big_vision does.

    More shots contain fewer shots: all are the first ones of the same order.

    Args:
        labels: int array of shape (N,).
        num_classes: int, K.
        shots: images of each class to choose; a class that has fewer gives
            all it has.
        seed: int.

    Returns:
        For each number of shots the numbers of the images, an int array,
        class after class.

    Raises:
        ValueError: when a number of shots is not above 0.

    Example:
        >>> labels = np.array([0, 1, 0, 1])
        >>> [len(images) for images in choose_shots(
        ...     labels, 2, shots=[1, 2], seed=0)]
        [2, 4]
    """
    if min(shots, default=0) < 1:
        raise ValueError(
            f"shots must be numbers above 0. Received: shots={list(shots)}."
        )
    random = np.random.default_rng(seed)
    counts = np.bincount(labels, minlength=num_classes)
    by_class = np.split(np.argsort(labels, kind="stable"), np.cumsum(counts))
    orders = [random.permutation(images) for images in by_class[:num_classes]]
    return [
        np.concatenate([order[:count] for order in orders]) for count in shots
    ]
