"""Features: image embeddings, their projection, patches after each block.

Axes: B batch, L layers (blocks), T tokens, P of them prefix tokens, R and C
rows and columns of the grid of patches, D hidden dimension, K components.
"""

from typing import Any

import keras
import numpy as np

from keras_vit.analysis.attention_weights import (
    blocks_of,
    check_block,
    check_images,
    check_model,
    reading_weights,
)
from keras_vit.io.checks import check_choice, check_installed
from keras_vit.models import VisionTransformer

__all__ = ["embeddings", "evolution", "projection"]


def embeddings(
    model: VisionTransformer,
    images: Any,
    *,
    block: int = -1,
    batch_size: int = 32,
) -> np.ndarray:
    """Computes one vector per image, the output of a block.

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
    images = check_images(model, images)
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
    """Projects vectors onto a plane, by scikit-learn.

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
    vectors = np.asarray(vectors, "float32")
    if vectors.ndim != 2 or min(vectors.shape) < 2 or len(vectors) < 3:
        raise ValueError(
            "A projection needs 3 or more vectors of 2 or more numbers. "
            f"Received: an array of shape {vectors.shape}, expected (number "
            "of vectors, their size). Give embeddings of more images."
        )
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
    """Computes how the patches of an image change from block to block.

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
    images = check_images(model, images)
    config = model.config
    available = min(config.hidden_dim, config.grid[0] * config.grid[1] - 1)
    if not 1 <= num_components <= available:
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
