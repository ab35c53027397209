"""Which images to look at, and getting them out of the batches again.

Axes: N images, B images in a batch, H and W height and width, C channels, M
images that are looked at.
"""

from collections.abc import Iterable

import numpy as np

from keras_vit.evaluation.predictions import Predictions

__all__ = ["images_at", "of_cells", "worst"]

RIGHT_SHARE = 4  # One of so many images may be left to right answers.


def worst(predictions: Predictions, count: int) -> np.ndarray:
    """The images that tell most of what a model gets wrong.

    The most confident mistakes come first; where there are fewer than count,
    the least confident of the right predictions follow. Images without a
    label are left out.

    Args:
        predictions: `Predictions` of N images.
        count: int, how many to choose at most.

    Returns:
        Integer array of shape (M,) of numbers from 0 to N-1, M <= count.

    Example:
        >>> rows = worst(predictions, count=24)
    """
    right = predictions.right[:, 0]
    confidence = predictions.probabilities[:, 0]
    # Mistakes first; among them the confident, among the others the unsure.
    order = np.lexsort((np.where(right, confidence, -confidence), right))
    return order[predictions.labelled[order]][:count]


def of_cells(
    predictions: Predictions, count: int, *, per_cell: int = 4
) -> np.ndarray:
    """Some images of each cell of the confusion matrix.

    The cells of the most frequent mistakes come first, of each the most
    confident answers. Should there be too many, a quarter of the images are
    right answers all the same.

    Args:
        predictions: `Predictions` of N images with one label each.
        count: int, how many to choose at most.
        per_cell: int, how many of a cell at most.

    Returns:
        Integer array of shape (M,) of numbers from 0 to N-1, M <= count.

    Example:
        >>> rows = of_cells(predictions, count=400)
    """
    right = predictions.right[:, 0]
    cells = predictions.labels * predictions.num_classes
    cells = cells + predictions.classes[:, 0]
    order = np.lexsort((-predictions.probabilities[:, 0], cells))
    _, places, sizes = np.unique(
        cells[order], return_inverse=True, return_counts=True
    )
    ranks = np.arange(len(order)) - (np.cumsum(sizes) - sizes)[places]
    kept = ranks < per_cell
    order, sizes = order[kept], sizes[places][kept]
    order = order[np.argsort(-sizes, kind="stable")]
    mistakes, others = order[~right[order]], order[right[order]]
    reserved = min(len(others), -(-count // RIGHT_SHARE))
    return np.concatenate([mistakes[: count - reserved], others])[:count]


def images_at(batches: Iterable, rows: Iterable[int]) -> np.ndarray:
    """Reads some images of a split again, one batch at a time.

    Args:
        batches: the padded batches of (images, labels, mask) that the
            predictions were made on, in the same order, with values in [0,
            255].
        rows: M numbers of images, counted from 0 and without padding.

    Returns:
        uint8 array of shape (M, H, W, C), in the order of rows.

    Raises:
        ValueError: there are fewer images than a row asks for.

    Example:
        >>> images_at(batches, worst(predictions, count=24))
    """
    rows = [int(row) for row in rows]
    wanted = set(rows)
    found, begin = {}, 0
    for images, _, mask in batches:
        if len(found) == len(wanted):
            break
        images = np.asarray(images)[np.asarray(mask)]
        here = wanted.intersection(range(begin, begin + len(images)))
        found |= {row: images[row - begin] for row in here}
        begin += len(images)
    if missing := wanted - found.keys():
        raise ValueError(
            f"There are {begin} images. Received: rows {sorted(missing)}. Give "
            "the batches that the predictions were made on."
        )
    chosen = [found[row] for row in rows]
    return np.clip(np.rint(chosen), 0, 255).astype(np.uint8)
