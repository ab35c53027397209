"""Labels that are probably wrong, by confident learning.

Northcutt, Jiang and Chuang, "Confident Learning: Estimating Uncertainty in
Dataset Labels" (arXiv:1911.00068): an image is counted for the class that it
is confidently predicted to be of by a classifier that has not seen it.

Axes: N images, D features, K classes.
"""

from typing import NamedTuple

import numpy as np

from keras_vit.data.dataset import folds_by_content
from keras_vit.evaluation.probes import fit_neighbours

__all__ = ["LabelError", "confident_classes", "label_errors", "out_of_sample"]

FOLDS = 5
NEIGHBOURS = 10
# The votes of neighbours to this power are the probabilities: of an image of
# which nine of ten neighbours are cats more than nine of ten are cats.
# Measured: docs/decisions/audit.md.
SHARPENING = 3


class LabelError(NamedTuple):
    """An image whose label is probably wrong.

    Args:
        image: int, its number.
        label: int, the class that it is given.
        suggested: int, the class that it is confidently predicted to be of.
        probability: float, of the suggested class.
        margin: float, by how much this is above that of the given class.
    """

    image: int
    label: int
    suggested: int
    probability: float
    margin: float


def out_of_sample(
    features: np.ndarray, labels: np.ndarray, contents: list[str]
) -> np.ndarray:
    """Predict the classes of all images, each by those of other folds.

    Args:
        features: float array of shape (N, D).
        labels: int array of shape (N,), of K classes from 0, each with two
            different contents at least.
        contents: N texts, the same for images that stay in one fold.

    Returns:
        Probabilities, float array of shape (N, K).

    Raises:
        ValueError: see `folds_by_content`.
    """
    num_classes = int(labels.max()) + 1
    folds = min(FOLDS, len(set(contents)))
    fold = folds_by_content(contents, labels, folds=folds, seed=0)
    votes = np.zeros((len(labels), num_classes))
    for number in range(folds):
        held_out = fold == number
        neighbours = fit_neighbours(
            features[~held_out],
            labels[~held_out],
            num_classes,
            num_neighbours=NEIGHBOURS,
        )
        votes[held_out] = neighbours.scores(features[held_out])
    # Relative to the largest: exp(similarity / temperature) to the third.
    votes = (votes / votes.max(axis=1, keepdims=True)) ** SHARPENING
    return votes / votes.sum(axis=1, keepdims=True)


def confident_classes(
    probabilities: np.ndarray, labels: np.ndarray
) -> np.ndarray:
    """Return the class that each image is confidently of, or -1.

    Equations 2 and 1 of the paper: t_j, the expected self-confidence of class
    j, is the mean probability of j of the images labelled j; an image is
    counted for the most probable of the classes j whose probability is at
    least t_j. Where that is not its label, it lies off the diagonal of the
    confident joint.

    Args:
        probabilities: out of sample, float array of shape (N, K).
        labels: int array of shape (N,), each class at least once.

    Returns:
        int array of shape (N,).

    Example:
        >>> confident_classes(np.array([[0.9, 0.1], [0.8, 0.2]]), np.arange(2))
        array([0, 1])
    """
    classes = np.arange(probabilities.shape[1])
    thresholds = [probabilities[labels == j, j].mean() for j in classes]
    confident = probabilities >= np.array(thresholds)
    found = np.where(confident, probabilities, -1.0).argmax(axis=1)
    return np.where(confident.any(axis=1), found, -1)


def label_errors(
    probabilities: np.ndarray, labels: np.ndarray
) -> list[LabelError]:
    """Find the labels that are probably wrong, the surest first.

    Args:
        probabilities: see `confident_classes`.
        labels: see `confident_classes`.
    """
    suggested = confident_classes(probabilities, labels)
    rows = np.flatnonzero((suggested >= 0) & (suggested != labels))
    chosen = probabilities[rows, suggested[rows]]
    margins = chosen - probabilities[rows, labels[rows]]
    return [
        LabelError(
            int(rows[i]),
            int(labels[rows[i]]),
            int(suggested[rows[i]]),
            float(chosen[i]),
            float(margins[i]),
        )
        for i in np.argsort(-margins, kind="stable")
    ]
