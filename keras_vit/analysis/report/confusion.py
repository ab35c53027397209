"""The confusion matrix of a report: a table, or a picture of many classes.

Axes: N images, K classes, P classes that are met.
"""

import numpy as np

from keras_vit.analysis.report import pictures

__all__ = ["confusion"]

MAX_TABLE = 20  # classes; a larger table fits no screen.
MAX_PAIRS = 15


def confusion(labels, predicted, names) -> dict:
    """Counts which class was taken for which.

    Args:
        labels: integer array of shape (N,), the true classes.
        predicted: integer array of shape (N,).
        names: K names.

    Returns:
        Dict of "names", the P classes that are true or predicted anywhere;
        "rows", for each of them its cells (count, share of the row), empty
        where they are many; "picture", a data URI then, else None; "pairs",
        the most frequent mistakes (true, predicted, count); "right" and
        "total", numbers of images.

    Example:
        >>> confusion([0, 1, 1], [0, 1, 0], ["cat", "dog"])["pairs"]
        [('dog', 'cat', 1)]
    """
    met, places = np.unique([labels, predicted], return_inverse=True)
    rows, columns = places.reshape(2, -1)
    matrix = np.zeros((len(met), len(met)), int)  # (P, P)
    np.add.at(matrix, (rows, columns), 1)
    shares = matrix / np.maximum(matrix.sum(axis=1, keepdims=True), 1)
    small = len(met) <= MAX_TABLE
    kept = [names[k] for k in met]
    cells = np.stack([matrix, shares], axis=-1).tolist()
    return {
        "names": kept,
        "rows": [
            (name, [(int(count), share) for count, share in row])
            for name, row in zip(kept, cells, strict=True)
            if small
        ],
        "picture": None if small else pictures.heat_map(shares),
        "pairs": _pairs(matrix, kept),
        "right": int(np.trace(matrix)),
        "total": int(matrix.sum()),
    }


def _pairs(matrix, names):
    mistakes = matrix.copy()
    np.fill_diagonal(mistakes, 0)
    order = np.argsort(-mistakes, axis=None, kind="stable")[:MAX_PAIRS]
    places = zip(*np.unravel_index(order, mistakes.shape), strict=True)
    return [
        (names[i], names[j], int(mistakes[i, j]))
        for i, j in places
        if mistakes[i, j]
    ]
