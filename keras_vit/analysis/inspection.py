"""Filters, positions and attention distance, Figure 7 of the ViT paper.

Axes: B batch, L layers (blocks), H heads, T tokens, P of them prefix tokens,
N = T - P patches, R and C rows and columns of their grid, D hidden dimension.
"""

import dataclasses
from typing import Any

import numpy as np
from keras import ops

from keras_vit.analysis.attention_weights import (
    check_model,
    patch_pixels,
    walk,
)
from keras_vit.models import VisionTransformer, ViTConfig

__all__ = [
    "attention_distance",
    "distance_of",
    "patch_distances",
    "patch_filters",
    "has_positions",
    "position_similarity",
]


SHOWN = 28  # components in Figure 7 of the paper


def patch_filters(
    model: VisionTransformer, num_components: int | None = None
) -> np.ndarray:
    """Compute the principal components of the patch embedding's filters.

    Figure 7 (left) of "An Image Is Worth 16x16 Words" (arXiv:2010.11929),
    where 28 of L/32 are shown: the D filters are points in the space of
    pixels; their mean is taken off, and the directions of the largest
    variance are returned, the largest first. They look like a basis for the
    fine structure inside a patch.

    Of a hybrid the filters of its root convolution are taken, as its patch
    embedding sees no pixels.

    Args:
        model: a `VisionTransformer`, hybrids included.
        num_components: int, K, at most D and at most h * w * C; by default
            28, or all of a model that has fewer.

    Returns:
        float32 array of shape (K, h, w, C), each of length 1. The sign, which
        means nothing, makes the largest value of each positive.

    Raises:
        ValueError: when there are not that many components.

    Example:
        >>> patch_filters(keras_vit.ViT_L32(weights=None)).shape
        (28, 32, 32, 3)
    """
    check_model(model)
    kernel = np.asarray(ops.convert_to_numpy(_first(model).kernel), "float32")
    filters = kernel.reshape(-1, kernel.shape[-1]).T  # (D, h * w * C)
    available = min(filters.shape)
    if num_components is None:
        num_components = min(SHOWN, available)
    if not 1 <= num_components <= available:
        raise ValueError(
            f"There are {available} components: the model has "
            f"{filters.shape[0]} filters of {filters.shape[1]} weights. "
            f"Received: num_components={num_components}."
        )
    filters = filters - filters.mean(axis=0)
    _, _, components = np.linalg.svd(filters, full_matrices=False)
    components = components[:num_components]  # (K, h * w * C)
    peaks = np.abs(components).argmax(axis=1)[:, None]
    components *= np.sign(np.take_along_axis(components, peaks, axis=1))
    return components.reshape(num_components, *kernel.shape[:-1])


def _first(model):
    """Return the convolution that reads the image."""
    if model.config.resnet_units is not None:
        return model.get_layer("root_conv")
    if model.config.patch_stem:
        return model.get_layer("stem_conv1")
    return model.get_layer("patch_embed").projection


def position_similarity(model: VisionTransformer) -> np.ndarray:
    """Compute the cosine similarity of each position embedding with all.

    Figures 7 (centre) and 10 of "An Image Is Worth 16x16 Words"
    (arXiv:2010.11929): close patches, and those of one row or column, tend to
    have similar embeddings. Those of the class token and other prefix tokens
    are left out.

    Args:
        model: a `VisionTransformer`, hybrids included.

    Returns:
        float32 array of shape (R, C, R, C) with values in [-1, 1]: [i, j] is
        the map of similarities of the patch in row i and column j.

    Raises:
        ValueError: for anything but a `VisionTransformer`, and for one
            without position embeddings, see `has_positions`.

    Example:
        >>> position_similarity(model)[0, 0, 0, 0]  # with itself
        1.0
    """
    check_model(model)
    config = model.config
    if not has_positions(model):
        raise ValueError(f"{model.name!r} {NO_POSITIONS}")
    table = model.get_layer("position_embedding").embedding  # (1, T, D)
    table = np.asarray(ops.convert_to_numpy(table)[0], "float32")
    table = table[config.num_prefix_tokens :]  # (R * C, D)
    lengths = np.linalg.norm(table, axis=-1, keepdims=True)
    table = table / np.maximum(lengths, np.finfo("float32").tiny)
    return (table @ table.T).reshape(*config.grid, *config.grid)


NO_POSITIONS = (
    "has no position embeddings to compare: its attention places the patches "
    "by rotary or relative positions, or not at all."
)


def has_positions(model: VisionTransformer) -> bool:
    """Return whether a model adds an embedding of its position to a patch."""
    added = any(layer.name == "position_embedding" for layer in model.layers)
    return added and model.config.position_embedding != "none"


def attention_distance(
    model: VisionTransformer, images: Any, *, batch_size: int = 32
) -> np.ndarray:
    """Compute the mean distance between a patch and what it attends to.

    Figures 7 (right) and 11 of "An Image Is Worth 16x16 Words"
    (arXiv:2010.11929), by the authors' definition (vision_transformer#162):
    class token left out as query and as key, the weights among the patches
    not normalised again; distances between patch centres weighted by them,
    summed over the keys, averaged over queries and images. It is the size of
    a receptive field in a convolutional network. The paper uses 128 images.

    Args:
        model: a `VisionTransformer`, hybrids included.
        images: array (B, height, width, channels), as the model takes them.
        batch_size: int, images at a time; the weights of one block are in
            memory.

    Returns:
        float32 array of shape (L, H), in pixels of the input image.

    Raises:
        ValueError: for anything but a `VisionTransformer`, or images that it
            does not take.

    Example:
        >>> attention_distance(model, images).shape  # B/16
        (12, 12)
    """
    check_model(model)
    analysis = distance_of(model.config)
    parts = [
        np.stack(layers, axis=1)
        for _, layers in walk(model, images, analysis, batch_size)
    ]  # each (B, L, H)
    return np.concatenate(parts).mean(axis=0)


def distance_of(config: ViTConfig) -> "Distance":
    """Return the analysis that `attention_distance` walks with."""
    return Distance(config.grid, patch_pixels(config), config.num_prefix_tokens)


def patch_distances(grid: tuple, patch: tuple) -> np.ndarray:
    """Distances (N, N) between the centres of the patches, row by row.

    Args:
        grid: (rows, columns) of the patches.
        patch: (height, width) of a patch in pixels.
    """
    centres = np.indices(grid).reshape(2, -1).T * patch  # (N, 2)
    apart = centres[:, None] - centres  # (N, N, 2)
    return np.linalg.norm(apart, axis=-1).astype("float32")


@dataclasses.dataclass(frozen=True)
class Distance:
    """Keeps one number per head of each layer's weights."""

    grid: tuple
    patch: tuple
    num_prefix_tokens: int

    def step(self, carry, weights):
        prefix = self.num_prefix_tokens
        weights = weights[:, :, prefix:, prefix:]  # (B, H, N, N)
        distances = patch_distances(self.grid, self.patch)  # (N, N)
        summed = ops.sum(ops.multiply(weights, distances), axis=-1)  # (B, H, N)
        return [*(carry or []), ops.mean(summed, axis=-1)]

    def finish(self, carry, x, model):
        return carry
