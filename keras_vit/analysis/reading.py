"""Which token a head reads, and so whose attention shows what it saw.

Axes: T tokens, P of them prefix tokens (such as the class token), R and C
rows and columns of the grid of patches.
"""

from typing import Any

import numpy as np

from keras_vit.models import ViTConfig

__all__ = ["on_grid", "reading_weights"]


def reading_weights(config: ViTConfig) -> np.ndarray:
    """How much the pooling of a model takes from each token.

    The class token's row with pooling "token" (and with "none", where there
    is a class token), all prefix tokens alike with "prefix", otherwise all
    patch tokens alike: exact for "mean", and for "max" and "map" what can be
    said without an image.

    Args:
        config: a `ViTConfig`.

    Returns:
        float32 array of shape (T,), with sum 1.

    Example:
        >>> reading_weights(model.config) @ attention  # (..., T, T)
    """
    rows, columns = config.grid
    prefix = config.num_prefix_tokens
    read = {
        "token": slice(0, 1),
        "prefix": slice(0, prefix),
        "none": slice(0, 1) if prefix else slice(None),
    }.get(config.pooling, slice(prefix, None))
    weights = np.zeros(prefix + rows * columns, "float32")
    weights[read] = 1
    return weights / weights.sum()


def on_grid(config: ViTConfig, tokens: Any) -> np.ndarray:
    """The patch tokens, laid out as the patches are in the image.

    Args:
        config: a `ViTConfig`.
        tokens: array of shape (..., T), prefix tokens first.

    Returns:
        Array of shape (..., R, C).
    """
    patches = np.asarray(tokens)[..., config.num_prefix_tokens :]
    return patches.reshape(*patches.shape[:-1], *config.grid)
