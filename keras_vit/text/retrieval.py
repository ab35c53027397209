"""How well images find their texts, and texts their images.

Axes: N images, T texts, P embedding dimension.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

__all__ = ["retrieval_recall"]

ROWS = 1024  # of similarities at a time


def retrieval_recall(
    images: Any,
    texts: Any,
    image_of_text: Any = None,
    *,
    at: Sequence[int] = (1, 5, 10),
) -> dict[str, float]:
    """Compute recall at k, from texts to images and from images to texts.

    An image with several texts counts as found where one of them is among its
    first k. Of equal similarities those with smaller numbers come first.

    Args:
        images: float array (N, P), embeddings of length 1.
        texts: float array (T, P), likewise.
        image_of_text: T numbers of images; None for text i of image i.
        at: the numbers k.

    Returns:
        Dict of "image_recall_at_k", the share of texts whose image is found,
        and "text_recall_at_k", that of images that have texts.

    Raises:
        ValueError: for arrays of other shapes, and numbers of no image.

    Example:
        >>> retrieval_recall(np.eye(3), np.eye(3), at=(1,))
        {'image_recall_at_1': 1.0, 'text_recall_at_1': 1.0}
    """
    images, texts = (np.asarray(x, "float32") for x in (images, texts))
    owner = np.arange(len(texts)) if image_of_text is None else image_of_text
    owner = np.asarray(owner)
    wrong = (
        images.ndim != 2
        or texts.shape[1:] != images.shape[1:]
        or owner.shape != texts.shape[:1]
        or owner.dtype.kind not in "iu"
        or not len(texts)
    )
    if wrong or owner.min() < 0 or owner.max() >= len(images):
        raise ValueError(
            "Expected embeddings (N, P) and (T, P), and for each text the "
            f"number of its image. Received: {images.shape}, {texts.shape} and "
            f"{owner.dtype} of shape {owner.shape}."
        )
    if any(k < 1 for k in at):
        raise ValueError(f"Recall is at 1 or more. Received: at={at!r}.")
    places = _places(texts, images, np.arange(len(images)), owner)
    # For an image the first of its texts.
    first = np.full(len(images), np.iinfo("int64").max)
    named = np.unique(owner)
    first[named] = _places(images[named], texts, owner, named)
    return {
        **{f"image_recall_at_{k}": float(np.mean(places < k)) for k in at},
        **{f"text_recall_at_{k}": float(np.mean(first[named] < k)) for k in at},
    }


def _places(queries, known, groups, wanted):
    """Return the place of the first of the wanted group for each query."""
    found = []
    for start in range(0, len(queries), ROWS):
        part = slice(start, start + ROWS)
        similarity = queries[part] @ known.T  # (Q, N)
        order = np.argsort(-similarity, axis=1, kind="stable")
        hits = groups[order] == wanted[part, None]  # (Q, N)
        found.append(hits.argmax(axis=1))
    return np.concatenate(found)
