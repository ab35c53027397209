"""All that a page shows of a model's attention, found in one walk.

Axes: B batch, L layers (blocks), H heads, T tokens, R and C rows and columns
of the grid of patches.
"""

import dataclasses
from typing import Any

import numpy as np
from keras import ops

from keras_vit.analysis.attention import (
    check_model,
    on_grid,
    reading_weights,
    walk,
)
from keras_vit.analysis.inspection import Distance
from keras_vit.analysis.pixels import patch_pixels
from keras_vit.analysis.rollout import rollout_of
from keras_vit.models import VisionTransformer, ViTConfig

__all__ = ["AttentionOverview", "attention_overview"]


@dataclasses.dataclass(frozen=True)
class AttentionOverview:
    """What `attention_overview` finds.

    Attributes:
        grids: float32 array of shape (L, B, H, R, C), see `attention_grids`.
        rollout: float32 array of shape (B, R, C), see `attention_rollout`.
        distances: float32 array of shape (L, H), see `attention_distance`.
    """

    grids: np.ndarray
    rollout: np.ndarray
    distances: np.ndarray


def attention_overview(
    model: VisionTransformer,
    images: Any,
    *,
    head_fusion: str = "mean",
    discard_ratio: float = 0.0,
    batch_size: int = 8,
) -> AttentionOverview:
    """Attention of each head, rollout and distance, the model run once.

    Of each layer the rows that the head of the model reads are kept, not the
    (T, T) weights: of H/14 at 224 pixels 0.5 MB an image instead of 135.

    Args:
        model: a `VisionTransformer`.
        images: array (B, height, width, channels), as the model takes them.
        head_fusion: see `attention_rollout`.
        discard_ratio: see `attention_rollout`.
        batch_size: int, images at a time; one block's weights are held.

    Returns:
        An `AttentionOverview`.

    Raises:
        ValueError: see `attention_rollout`.

    Example:
        >>> attention_overview(model, images).grids.shape  # B/16
        (12, 8, 12, 14, 14)
    """
    check_model(model)
    config = model.config
    analyses = Together(
        (
            Read(config),
            rollout_of(model, head_fusion, discard_ratio),
            Distance(
                config.grid, patch_pixels(config), config.num_prefix_tokens
            ),
        )
    )
    found = [
        [np.stack(read, axis=1), rows, np.stack(distances, axis=1)]
        for _, (read, rows, distances) in walk(
            model, images, analyses, batch_size
        )
    ]  # each (B, L, H, T), (B, T), (B, L, H)
    read, rows, distances = map(np.concatenate, zip(*found, strict=True))
    return AttentionOverview(
        np.moveaxis(on_grid(config, read), 1, 0),
        on_grid(config, rows),
        distances.mean(axis=0),
    )


@dataclasses.dataclass(frozen=True)
class Read:
    """Keeps of each layer's weights the rows that the head reads."""

    config: ViTConfig

    def step(self, carry, weights):
        read = reading_weights(self.config)
        rows = ops.einsum("q,bhqk->bhk", read, weights)  # (B, H, T)
        return [*(carry or []), rows]

    def finish(self, carry, x, model):
        return carry


@dataclasses.dataclass(frozen=True)
class Together:
    """Several analyses in one walk."""

    analyses: tuple

    def step(self, carry, weights):
        carries = carry or [None] * len(self.analyses)
        return [
            analysis.step(kept, weights)
            for analysis, kept in zip(self.analyses, carries, strict=True)
        ]

    def finish(self, carry, x, model):
        return [
            analysis.finish(kept, x, model)
            for analysis, kept in zip(self.analyses, carry, strict=True)
        ]
