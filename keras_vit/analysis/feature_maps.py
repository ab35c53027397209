"""Feature maps: the patch tokens after blocks, on the grid of patches.

Axes: B batch, R and C rows and columns of the grid of patches, P prefix tokens
(class and distillation token, registers), D hidden dimension.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from keras_vit.analysis.attention_weights import (
    cached,
    check_images,
    check_model,
)
from keras_vit.models import VisionTransformer
from keras_vit.models.block_features import BlockFeatures, check_blocks

__all__ = ["features", "patch_pca"]


def features(
    model: VisionTransformer,
    images: Any,
    *,
    blocks: int | Sequence[int] = (-1,),
    norm: bool = True,
    prefix_tokens: bool = False,
    batch_size: int = 32,
) -> list:
    """Computes a map of features after each of some blocks, for dense tasks.

    Segmentation and depth read the patch tokens of several blocks: DINOv2
    (arXiv:2304.07193, section 7.4) those of the last block, or of four.

    Args:
        model: a `VisionTransformer`: any image size, hybrids, registers.
        images: array (B, height, width, channels), as the model takes them.
        blocks: numbers of blocks from 0; negative ones count from the end.
        norm: bool, whether the final layer normalisation of the model is
            applied to the tokens of each block. A model that normalises
            after pooling has none for tokens.
        prefix_tokens: bool, whether the tokens before the patches are
            returned as well.
        batch_size: int, images at a time.

    Returns:
        For each block a float32 array (B, R, C, D); with prefix_tokens a pair
        of it and an array (B, P, D).

    Raises:
        ValueError: for anything but a `VisionTransformer`, a block that it
            does not have, or images that it does not take.

    Example:
        >>> low, high = keras_vit.features(model, images, blocks=[5, 11])
        >>> high.shape  # B/16
        (8, 14, 14, 768)
    """
    check_model(model)
    images = check_images(model, images)
    numbers = tuple(check_blocks(model, blocks))
    network = cached(
        model,
        ("features", numbers, norm),
        lambda: BlockFeatures(model, numbers, norm=norm),
    )
    parts = []
    for i in range(0, len(images), batch_size):
        part = images[i : i + batch_size]
        found = network.predict_on_batch(part)
        # Under tf.distribute every replica answers for the whole batch.
        parts.append([tokens[: len(part)] for tokens in found])
    tokens = [np.concatenate(x) for x in zip(*parts, strict=True)]
    return [_split(model.config, x, prefix_tokens) for x in tokens]


def _split(config, tokens, prefix_tokens):
    """Maps (B, R, C, D) of tokens (B, P + R * C, D), and the first P."""
    count = config.num_prefix_tokens
    patches = tokens[:, count:]  # (B, R * C, D)
    maps = patches.reshape(len(tokens), *config.grid, -1)  # (B, R, C, D)
    return (maps, tokens[:, :count]) if prefix_tokens else maps


def patch_pca(
    maps: Any, *, threshold: float | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Projects patch features onto three components, for red, green and blue.

    The pictures of DINOv2 (arXiv:2304.07193, Figure 1): the principal
    components of the patches of all images together, so that one colour is
    the same thing in all of them. With a threshold the first component tells
    the object from the background, and the colours are the components of the
    object's patches alone.

    Args:
        maps: array (B, R, C, D) from `features`.
        threshold: None, or a share in (0, 1) of the range of the first
            component, above which a patch is of the object. Which side of it
            is the background, a component does not tell: the side that most
            patches at the edges of the images are on.

    Returns:
        float32 array (B, R, C, 3) in [0, 1], 0 on the background, and a
        boolean array (B, R, C), which patches are of the object: all without
        a threshold.

    Raises:
        ValueError: for an array of another number of axes, too few patches or
            features, or a threshold that is no such share or leaves fewer
            than 4 patches.

    Example:
        >>> (maps,) = keras_vit.features(model, images)
        >>> colours, is_object = patch_pca(maps, threshold=0.5)
    """
    maps = np.asarray(maps, "float32")
    if maps.ndim != 4 or maps.shape[-1] < 3 or np.prod(maps.shape[:3]) < 4:
        raise ValueError(
            "maps must have the shape (batch, rows, columns, D), with 4 "
            "patches and 3 features at least. Received: an array of shape "
            f"{maps.shape}. Give one array of keras_vit.features."
        )
    points = maps.reshape(-1, maps.shape[-1])  # (B * R * C, D)
    chosen = np.ones(len(points), bool)
    if threshold is not None:
        chosen = _object(maps.shape[:3], points, threshold)
    found = _in_range(_components(points[chosen], 3))
    colours = np.zeros((len(points), 3), "float32")
    colours[chosen] = found
    return (
        colours.reshape(*maps.shape[:3], 3),
        chosen.reshape(maps.shape[:3]),
    )


def _object(shape, points, threshold):
    """Which points are above a share of the range of the first component."""
    if not 0 < threshold < 1:
        raise ValueError(
            "threshold is a share of the range of the first component, above "
            f"0 and below 1. Received: threshold={threshold!r}."
        )
    first = _in_range(_components(points, 1))[:, 0]  # (B * R * C,)
    edges = np.ones(shape, bool)
    edges[:, 1:-1, 1:-1] = False
    above = first > threshold
    if np.mean(above[edges.ravel()]) > 0.5:
        first, above = 1 - first, 1 - first > threshold
    if above.sum() < 4:
        raise ValueError(
            f"{above.sum()} of {len(points)} patches are above the threshold, "
            f"and 4 are needed. Received: threshold={threshold}. Lower it."
        )
    return above


def _components(points, count):
    """Coordinates (N, K) of points (N, D) in their first K directions.

    A direction points to where its largest coefficient is positive, as in
    scikit-learn.
    """
    centred = points - points.mean(axis=0)
    _, _, directions = np.linalg.svd(centred, full_matrices=False)
    directions = directions[:count]  # (K, D)
    largest = np.abs(directions).argmax(axis=1)[:, None]
    signs = np.sign(np.take_along_axis(directions, largest, axis=1))
    return centred @ (signs * directions).T  # (N, K)


def _in_range(x):
    """Each column from 0 to 1."""
    low, high = x.min(axis=0), x.max(axis=0)
    return (x - low) / np.maximum(high - low, np.finfo("float32").tiny)
