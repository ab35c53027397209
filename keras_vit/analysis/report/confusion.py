"""The confusion matrix of a report: a table, or a picture of many classes.

Axes: N images, K classes, P classes that are met.
"""

import numpy as np

from keras_vit.analysis.report import pictures

__all__ = ["confusion"]

MAX_TABLE = 20  # classes; a larger table fits no screen.
MAX_PAIRS = 15


def confusion(labels, predicted, names, answers=None) -> dict:
    """Counts which class was taken for which.

    Args:
        labels: integer array of shape (N,), the true classes.
        predicted: integer array of shape (N,).
        names: K names.
        answers: dict from a row of the N images to what the page shows of it,
            of the images that were kept.

    Returns:
        Dict of "names", the P classes that are true or predicted anywhere;
        "rows", for each of them its cells (count, share of the row, anchor),
        empty where they are many; "picture", a data URI then, else None;
        "pairs", the most frequent mistakes (true, predicted, count, anchor);
        "right" and "total", numbers of images; "behind", of each of these
        cells that has images its "anchor", "truth", "guess", "count" and
        "answers". An anchor is None where no image was kept.

    Example:
        >>> confusion([0, 1, 1], [0, 1, 0], ["cat", "dog"])["pairs"]
        [('dog', 'cat', 1, None)]
    """
    met, cells = np.unique([labels, predicted], return_inverse=True)
    rows, columns = cells.reshape(2, -1)
    matrix = np.zeros((len(met), len(met)), int)  # (P, P)
    np.add.at(matrix, (rows, columns), 1)
    shares = matrix / np.maximum(matrix.sum(axis=1, keepdims=True), 1)
    small = len(met) <= MAX_TABLE
    kept = [names[k] for k in met]
    behind = _behind(answers or {}, rows, columns)
    pairs = _pairs(matrix)
    every = range(len(kept))
    linked = behind if small else {cell: behind.get(cell) for cell in pairs}
    return {
        "names": kept,
        "rows": [
            (name, [_cell(matrix, shares, behind, i, j) for j in every])
            for i, name in enumerate(kept)
            if small
        ],
        "picture": None if small else pictures.heat_map(shares),
        "pairs": [
            (kept[i], kept[j], int(matrix[i, j]), _anchor(behind, i, j))
            for i, j in pairs
        ],
        "right": int(np.trace(matrix)),
        "total": int(matrix.sum()),
        "behind": [
            {
                "anchor": _anchor(behind, i, j),
                "truth": kept[i],
                "guess": kept[j],
                "count": int(matrix[i, j]),
                "answers": found,
            }
            for (i, j), found in sorted(linked.items())
            if found
        ],
    }


def _cell(matrix, shares, behind, i, j):
    return int(matrix[i, j]), float(shares[i, j]), _anchor(behind, i, j)


def _anchor(behind, i, j):
    return f"cell-{i}-{j}" if (i, j) in behind else None


def _behind(answers, rows, columns):
    """Cell (i, j) of the matrix -> the answers that were counted in it."""
    cells: dict = {}
    for row, answer in answers.items():
        cell = int(rows[row]), int(columns[row])
        cells.setdefault(cell, []).append(answer)
    return cells


def _pairs(matrix):
    """Cells of the most frequent mistakes."""
    mistakes = matrix.copy()
    np.fill_diagonal(mistakes, 0)
    order = np.argsort(-mistakes, axis=None, kind="stable")[:MAX_PAIRS]
    places = zip(*np.unravel_index(order, mistakes.shape), strict=True)
    return [(int(i), int(j)) for i, j in places if mistakes[i, j]]
