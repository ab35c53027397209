"""Features: maps of patches after blocks, image embeddings, their projections.

Axes: B batch, L layers (blocks), T tokens, P of them prefix tokens (class and
distillation token, registers), R and C rows and columns of the grid of
patches, D hidden dimension, K components.
"""

import itertools
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np

from keras_vit.analysis.attention_weights import (
    blocks_of,
    cached,
    check_block,
    check_images,
    check_model,
    reading_weights,
)
from keras_vit.io.checks import (
    check_choice,
    check_finite,
    check_installed,
    check_kind,
    check_whole,
    numbers_of,
)
from keras_vit.models import VisionTransformer
from keras_vit.models.configured_model import BlockFeatures, check_blocks

TINY = float(np.finfo("float32").tiny)

__all__ = [
    "embeddings",
    "evolution",
    "features",
    "patch_pca",
    "same_colours",
    "projection",
]


def features(
    model: VisionTransformer,
    images: Any,
    *,
    blocks: int | Sequence[int] = (-1,),
    norm: bool = True,
    prefix_tokens: bool = False,
    batch_size: int = 32,
) -> list:
    """Compute a map of features after each of some blocks, for dense tasks.

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
    check_kind(bool, norm=norm, prefix_tokens=prefix_tokens)
    images = check_images(model, images, batch_size)
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
    """Project patch features onto three components, for red, green and blue.

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
    maps = numbers_of("maps", maps)
    if maps.ndim != 4 or maps.shape[-1] < 3 or np.prod(maps.shape[:3]) < 4:
        raise ValueError(
            "maps must have the shape (batch, rows, columns, D), with 4 "
            "patches and 3 features at least. Received: an array of shape "
            f"{maps.shape}. Give one array of keras_vit.features."
        )
    check_finite(maps=maps)
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


def same_colours(colours: np.ndarray) -> np.ndarray:
    """Exchange and invert the colours of some times so that they stay the same.

    The components of a model that learns change their order and signs. Those
    of each time are ordered as they correlate most with the time before.

    Args:
        colours: float array (S, ..., 3) in [0, 1], of `patch_pca` at S times.

    Returns:
        An array of the same shape.

    Example:
        >>> first = np.random.default_rng(0).random((4, 2, 2, 3))
        >>> found = same_colours(np.stack([first, 1 - first[..., ::-1]]))
        >>> np.allclose(found[1], first)
        True
    """
    found = [colours[0]]
    for now in colours[1:]:
        x, y = (z.reshape(-1, 3) for z in (found[-1], now))
        x, y = x - x.mean(axis=0), y - y.mean(axis=0)
        alike = x.T @ y / np.maximum(np.linalg.norm(y, axis=0), TINY)  # (3, 3)
        order = max(
            itertools.permutations(range(3)),
            key=lambda order: np.abs(alike[range(3), order]).sum(),
        )
        signs = alike[range(3), order] < 0
        found.append(np.where(signs, 1 - now[..., order], now[..., order]))
    return np.stack(found)


def _object(shape, points, threshold):
    """Test which points are above a share of the first component."""
    check_kind(float, threshold=threshold)
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


def embeddings(
    model: VisionTransformer,
    images: Any,
    *,
    block: int = -1,
    batch_size: int = 32,
) -> np.ndarray:
    """Compute one vector per image, the output of a block.

    The class token after the block, as it stands in the residual stream;
    where the head reads the patches instead, their mean.

    Args:
        model: a `VisionTransformer`, hybrids included.
        images: array (B, height, width, channels), as the model takes them.
        block: int, counted from 0; negative numbers from the end.
        batch_size: int, images at a time.

    Returns:
        float32 array of shape (B, D).

    Raises:
        ValueError: for a block that the model does not have, or images that
            it does not take.

    Example:
        >>> points = projection(embeddings(model, images), method="tsne")
    """
    check_model(model)
    images = check_images(model, images, batch_size)
    layer = model.get_layer(f"block_{check_block(model, block)}")
    tokens = keras.Model(model.input, layer.output)
    read = reading_weights(model.config)
    parts = [
        read @ _float32(tokens.predict_on_batch(images[i : i + batch_size]))
        for i in range(0, len(images), batch_size)
    ]
    return np.concatenate(parts)


def projection(
    vectors: Any, *, method: str = "pca", seed: int = 0
) -> np.ndarray:
    """Project vectors onto a plane, by scikit-learn.

    Args:
        vectors: array of shape (B, D), B at least 3.
        method: "pca", the plane of largest variance, or "tsne"
            (t-distributed stochastic neighbour embedding), which keeps near
            neighbours together; its perplexity is 30, or a third of B where
            that is less.
        seed: int, of the random numbers of t-SNE.

    Returns:
        float32 array of shape (B, 2).

    Raises:
        ValueError: for an unknown method or too few vectors.

    Example:
        >>> projection(embeddings(model, images)).shape
        (100, 2)
    """
    check_choice("method", method, PROJECTIONS)
    check_whole(0, seed=seed)
    vectors = numbers_of("vectors", vectors)
    if vectors.ndim != 2 or min(vectors.shape) < 2 or len(vectors) < 3:
        raise ValueError(
            "A projection needs 3 or more vectors of 2 or more numbers. "
            f"Received: an array of shape {vectors.shape}, expected (number "
            "of vectors, their size). Give embeddings of more images."
        )
    check_finite(vectors=vectors)
    return _float32(PROJECTIONS[method](vectors, seed))


def _pca(vectors, seed):
    check_installed("PCA", "sklearn")
    from sklearn.decomposition import PCA

    return PCA(2, svd_solver="full").fit_transform(vectors)


def _tsne(vectors, seed):
    check_installed("t-SNE", "sklearn")
    from sklearn.manifold import TSNE

    perplexity = min(30, len(vectors) / 3)
    model = TSNE(2, perplexity=perplexity, init="pca", random_state=seed)
    return model.fit_transform(vectors)


PROJECTIONS = {"pca": _pca, "tsne": _tsne}


def evolution(
    model: VisionTransformer,
    images: Any,
    *,
    num_components: int = 3,
    batch_size: int = 32,
) -> np.ndarray:
    """Compute how the patches of an image change from block to block.

    The patch tokens of an image before the first block and after each block,
    each time along the directions in which the patches of that image differ
    most (principal components). As red, green and blue, patches of one colour
    are alike to the model.

    Args:
        model: a `VisionTransformer`, hybrids included.
        images: array (B, height, width, channels), as the model takes them.
        num_components: int, K, at most D and less than the patches.
        batch_size: int, images at a time.

    Returns:
        float32 array of shape (L + 1, B, R, C, K), the largest component
        first, each with mean 0 over the patches. Signs mean nothing; they are
        chosen so that a map correlates with that of the block before.

    Raises:
        ValueError: when there are not that many components, or for images
            that the model does not take.

    Example:
        >>> evolution(model, images).shape  # B/16
        (13, 8, 14, 14, 3)
    """
    check_model(model)
    images = check_images(model, images, batch_size)
    config = model.config
    available = min(config.hidden_dim, config.grid[0] * config.grid[1] - 1)
    check_whole(1, num_components=num_components)
    if num_components > available:
        raise ValueError(
            f"The patches of an image have {available} components. Received: "
            f"num_components={num_components}."
        )
    blocks = blocks_of(model)
    tensors = [blocks[0].input, *(block.output for block in blocks)]
    states = keras.Model(model.input, tensors)
    parts = []
    for i in range(0, len(images), batch_size):
        layers = states.predict_on_batch(images[i : i + batch_size])
        parts.append(_principal_maps(config, layers, num_components))
    return np.concatenate(parts, axis=1)


def _principal_maps(config, layers, num_components):
    maps = []
    for tokens in layers:
        patches = _float32(tokens)[:, config.num_prefix_tokens :]
        found = _principal_components(patches, num_components)  # (B, R * C, K)
        if maps:
            same = np.sum(found * maps[-1], axis=1, keepdims=True) >= 0
            found = np.where(same, found, -found)
        maps.append(found)
    maps = np.moveaxis(np.stack(maps), -1, 2)  # (L + 1, B, K, R * C)
    maps = maps.reshape(*maps.shape[:-1], *config.grid)
    return np.moveaxis(maps, 2, -1)  # (L + 1, B, R, C, K)


def _principal_components(points, count):
    """Coordinates (B, N, K) of points (B, N, D) in their first K directions."""
    centred = points - points.mean(axis=1, keepdims=True)
    left, lengths, _ = np.linalg.svd(centred, full_matrices=False)
    return left[..., :count] * lengths[:, None, :count]


def _float32(x):
    return np.asarray(x, "float32")
