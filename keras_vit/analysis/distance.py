"""How far across the image each head looks.

Axes: B batch, L layers (blocks), H heads, T tokens, P of them prefix tokens,
N = T - P patches, R and C rows and columns of their grid.
"""

import dataclasses
from typing import Any

import numpy as np
from keras import ops

from keras_vit.analysis.blocks import check_model, walk
from keras_vit.analysis.pixels import patch_pixels
from keras_vit.models import VisionTransformer

__all__ = ["attention_distance", "patch_distances"]


def attention_distance(
    model: VisionTransformer, images: Any, *, batch_size: int = 32
) -> np.ndarray:
    """Mean distance, in pixels, between a patch and what it attends to.

    Figures 7 (right) and 11 of "An Image Is Worth 16x16 Words"
    (arXiv:2010.11929), by the authors' definition (vision_transformer#162):
    class token left out as query and as key, the weights among the patches
    not normalised again; distances between patch centres weighted by them,
    summed over the keys, averaged over queries and images. It is the size of
    a receptive field in a convolutional network. The paper uses 128 images.

    Args:
        model: a `VisionTransformer`.
        images: array (B, height, width, channels), as the model takes them.
        batch_size: int, images at a time; one block's weights are held.

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
    config = model.config
    analysis = Distance(
        config.grid, patch_pixels(config), config.num_prefix_tokens
    )
    parts = [
        np.stack(layers, axis=1)
        for _, layers in walk(model, images, analysis, batch_size)
    ]  # each (B, L, H)
    return np.concatenate(parts).mean(axis=0)


def patch_distances(grid: tuple, patch: tuple) -> np.ndarray:
    """Distances between the centres of all patches.

    Args:
        grid: (rows, columns) of the patches.
        patch: (height, width) of a patch in pixels.

    Returns:
        float32 array of shape (N, N), in pixels, patches row by row.

    Example:
        >>> patch_distances((1, 3), (16, 16))[0]
        array([ 0., 16., 32.], dtype=float32)
    """
    centres = np.indices(grid).reshape(2, -1).T * patch  # (N, 2)
    apart = centres[:, None] - centres  # (N, N, 2)
    return np.linalg.norm(apart, axis=-1).astype("float32")


@dataclasses.dataclass(frozen=True)
class Distance:
    """Keeps one number a head of each layer's weights."""

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
