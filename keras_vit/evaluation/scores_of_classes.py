"""Metrics that weigh all classes alike, as scikit-learn computes them.

They are computed once per split, in float64, from the answers for all of its
images: means over batches are other numbers.

Axes: N images, K classes.
"""

import numpy as np

from keras_vit.io.checks import check_classes, numbers_of

__all__ = [
    "CLASS_METRICS",
    "average_precision",
    "class_metrics",
    "roc_auc",
]

# Share from which a class of several is an answer.
THRESHOLD = 0.5
# Names in result.json, and behind "val_" in a training.
CLASS_METRICS = (
    *("balanced_accuracy", "macro_f1"),
    *("auc", "average_precision"),
)


def class_metrics(labels, probabilities) -> dict[str, float | int]:
    """Compute the metrics that weigh all classes alike.

    Those of scikit-learn 1.9 by other names: `balanced_accuracy_score`,
    `f1_score(average="macro")`, `roc_auc_score(average="macro",
    multi_class="ovr")` and `average_precision_score(average="macro")` of
    one-hot labels; of several classes per image `accuracy_score` (all classes
    of an image right), and the mean over the classes of
    `balanced_accuracy_score`. There, a class is an answer from a probability
    of 0.5.

    The AUC of a class without images, or without others, is not defined: such
    classes are left out of "auc" and of "average_precision", and counted.

    Args:
        labels: integer array of shape (N,), or of shape (N, K) and above 0
            where the image has the class.
        probabilities: array of shape (N, K).

    Returns:
        Dict of "accuracy", "balanced_accuracy", "macro_f1", "auc" and
        "average_precision", the last two where they are defined, and
        "num_classes_left_out" of them where there are some.

    Example:
        >>> class_metrics([0, 1, 1], [[0.9, 0.1], [0.8, 0.2], [0.3, 0.7]])
        {'accuracy': 0.666..., 'balanced_accuracy': 0.75, ...}
    """
    probabilities = numbers_of("probabilities", probabilities, "float64")
    if probabilities.ndim != 2 or not np.isfinite(probabilities).all():
        raise ValueError(
            "probabilities are finite numbers (N, K). Received: an array of "
            f"shape {probabilities.shape}, or with NaN."
        )
    num_classes = probabilities.shape[1]
    labels = numbers_of("labels", labels, None)
    if labels.shape not in (probabilities.shape, probabilities.shape[:1]):
        raise ValueError(
            "labels are classes (N,), or a number for each (N, K). Received: "
            f"an array of shape {labels.shape} with probabilities of shape "
            f"{probabilities.shape}."
        )
    if labels.ndim == 1:
        check_classes(num_classes, labels=labels)
        found = of_answers(labels, probabilities.argmax(axis=1), num_classes)
        truth = labels[:, None] == np.arange(num_classes)  # (N, K)
    else:
        truth = labels > 0
        found = _of_several(truth, probabilities >= THRESHOLD)
    return {**found, **_of_rankings(truth, probabilities)}


def of_answers(labels, answers, num_classes: int) -> dict[str, float]:
    """Return the metrics of one class per image and one answer, (N,) each."""
    right = np.bincount(labels[labels == answers], minlength=num_classes)
    images = np.bincount(labels, minlength=num_classes)
    given = np.bincount(answers, minlength=num_classes)
    used = images + given > 0
    return {
        "accuracy": float(right.sum() / len(labels)),
        "balanced_accuracy": float(
            (right[images > 0] / images[images > 0]).mean()
        ),
        "macro_f1": float((2 * right[used] / (images + given)[used]).mean()),
    }


def _of_several(truth, answers) -> dict[str, float]:
    """Return the metrics of any number of classes per image, (N, K) each."""
    right = (truth & answers).sum(axis=0)  # (K,)
    images, given = truth.sum(axis=0), answers.sum(axis=0)
    others = len(truth) - images
    kept_out = others - (answers & ~truth).sum(axis=0)
    # Of a class that all images have, or none, one of them is not defined.
    shares = np.stack([_share(right, images), _share(kept_out, others)])
    return {
        "accuracy": float((truth == answers).all(axis=1).mean()),
        "balanced_accuracy": float(np.nanmean(shares, axis=0).mean()),
        # A class that no image has and none was given counts as 0.
        "macro_f1": float((2 * right / np.maximum(images + given, 1)).mean()),
    }


def _share(count, total):
    return np.where(total > 0, count / np.maximum(total, 1), np.nan)


def _of_rankings(truth, probabilities) -> dict[str, float | int]:
    images = truth.sum(axis=0)  # (K,)
    defined = np.flatnonzero((images > 0) & (images < len(truth)))
    left_out = truth.shape[1] - len(defined)
    counted = {"num_classes_left_out": left_out} if left_out else {}
    if not len(defined):
        return counted
    found = {
        name: np.mean(
            [metric(truth[:, k], probabilities[:, k]) for k in defined]
        )
        for name, metric in RANKINGS.items()
    }
    return {**{name: float(x) for name, x in found.items()}, **counted}


def roc_auc(positive, scores) -> float:
    """Compute the area under the ROC curve of one class.

    The share of pairs of an image of the class and another one in which the
    first has the higher score; equal scores are half a pair.

    Args:
        positive: boolean array of shape (N,), some True and some not.
        scores: array of shape (N,).

    Returns:
        float in [0, 1].

    Example:
        >>> roc_auc(np.array([True, False, False]), np.array([0.5, 0.5, 0.1]))
        0.75
    """
    _, places, counts = np.unique(
        scores, return_inverse=True, return_counts=True
    )
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[places]  # from 1
    count = int(positive.sum())
    pairs = ranks[positive].sum() - count * (count + 1) / 2
    return float(pairs / (count * (len(scores) - count)))


def average_precision(positive, scores) -> float:
    """Compute the precision at each recall, weighted by its increase.

    Args:
        positive: boolean array of shape (N,), some True.
        scores: array of shape (N,).

    Returns:
        float in [0, 1].

    Example:
        >>> average_precision(
        ...     np.array([True, False, True]), np.array([0.9, 0.8, 0.7])
        ... )  # 1/2 at a precision of 1, and 1/2 at 2/3
        0.8333333333333333
    """
    order = np.argsort(-scores, kind="stable")
    # Equal scores are one threshold.
    ends = np.flatnonzero(np.diff(scores[order], append=-np.inf))
    found = np.cumsum(positive[order])[ends]
    increases = np.diff(found, prepend=0) / found[-1]
    return float((increases * found / (ends + 1)).sum())


RANKINGS = {"auc": roc_auc, "average_precision": average_precision}
