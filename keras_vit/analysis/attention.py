"""The softmax weights of every block and head.

Axes: B batch, L layers (blocks), H heads, T tokens, R and C rows and columns
of the grid of patches.
"""

import dataclasses
from typing import Any

import numpy as np

from keras_vit.analysis.blocks import check_images, check_model, walk
from keras_vit.analysis.reading import on_grid, reading_weights
from keras_vit.models import VisionTransformer

__all__ = ["attention_grids", "attention_maps"]


def attention_maps(
    model: VisionTransformer, images: Any, *, batch_size: int = 32
) -> np.ndarray:
    """How much each token takes from each other, in every block and head.

    The softmax weights of equation 7 of "An Image Is Worth 16x16 Words"
    (arXiv:2010.11929). The model is neither rebuilt nor slowed: its blocks
    keep their fused attention, the weights are computed beside it.

    Args:
        model: a `VisionTransformer`.
        images: array (B, height, width, channels), as the model takes them.
        batch_size: int, images at a time.

    Returns:
        float32 array of shape (L, B, H, T, T), class token first; the last
        axis (keys) sums to 1. B/16 at 224 pixels has 22 MB an image, at 384
        pixels 192 MB; `attention_rollout` and `attention_distance` do not
        keep them all.

    Raises:
        ValueError: for anything but a `VisionTransformer`, or images that it
            does not take.

    Example:
        >>> maps = attention_maps(model, images)
        >>> maps[-1, 0, :, 0, 1:]  # last block: what the class token sees
    """
    check_model(model)
    images = check_images(model, images)
    config = model.config
    rows, columns = config.grid
    tokens = config.num_prefix_tokens + rows * columns
    shape = (len(images), config.num_heads, tokens, tokens)
    maps = np.empty((config.num_layers, *shape), "float32")
    for part, layers in walk(model, images, KeepAll(), batch_size):
        for i, layer in enumerate(layers):
            maps[i, part] = layer
    return maps


def attention_grids(model: VisionTransformer, maps: Any) -> np.ndarray:
    """What the head of the model sees through each block and head.

    The rows of the class token, as in the pictures of DINO
    (arXiv:2104.14294); where the head reads the mean of the patches, the mean
    of their rows.

    Args:
        model: a `VisionTransformer`.
        maps: array (L, B, H, T, T) from `attention_maps`.

    Returns:
        Array of shape (L, B, H, R, C), not negative; with what goes to the
        class token it sums to 1.

    Raises:
        ValueError: when the maps are not of this model.

    Example:
        >>> grids = attention_grids(model, attention_maps(model, images))
    """
    check_model(model)
    weights = reading_weights(model.config)
    if np.shape(maps)[-2:] != 2 * weights.shape:
        raise ValueError(
            f"The model has {len(weights)} tokens. Received: maps of shape "
            f"{np.shape(maps)}. Give attention_maps(model, images) of the "
            "same model."
        )
    return on_grid(model.config, weights @ maps)


@dataclasses.dataclass(frozen=True)
class KeepAll:
    """Keeps the weights of every layer."""

    def step(self, carry, weights):
        return [*(carry or []), weights]

    def finish(self, carry, x, model):
        return carry
