"""Attention rollout, alone and with all else that a page shows.

Axes: B batch, L layers (blocks), H heads, T tokens, P of them prefix tokens
(such as the class token), R and C rows and columns of the grid of patches.
"""

import dataclasses
from typing import Any

import numpy as np
from keras import ops

from keras_vit.analysis.attention_weights import (
    check_model,
    class_rows,
    on_grid,
    reading_weights,
    walk,
)
from keras_vit.analysis.inspection import distance_of
from keras_vit.io.checks import check_choice, check_limits
from keras_vit.models import VisionTransformer, ViTConfig
from keras_vit.models.options import ATTENTION_POOLINGS

__all__ = [
    "AttentionOverview",
    "Rollout",
    "attention_overview",
    "attention_rollout",
]

# Poolings of models with class attention that take the class token.
OF_CLASS_TOKEN = ("token", "prefix", "prefix_mean", "none")
FUSIONS = {
    "mean": lambda weights: ops.mean(weights, axis=1),
    "max": lambda weights: ops.max(weights, axis=1),
    "min": lambda weights: ops.min(weights, axis=1),
}


def attention_rollout(
    model: VisionTransformer,
    images: Any,
    *,
    head_fusion: str = "mean",
    discard_ratio: float = 0.0,
    batch_size: int = 32,
) -> np.ndarray:
    """Maps which patches the information at the model's head comes from.

    Figures 6 and 14 and appendix D.7 of "An Image Is Worth 16x16 Words"
    (arXiv:2010.11929), after "Quantifying Attention Flow in Transformers"
    (arXiv:2005.00928): the heads of a block are averaged, the identity is
    added for the residual connection, rows are divided by their sum, and
    the matrices of all blocks are multiplied. What is shown is the row of the
    class token; of models that pool the patches, the mean of their rows, with
    attention pooling weighted by what it attends to, and with class attention
    after the blocks by what the class token takes from them. The weights of
    one block are in memory at a time.

    Args:
        model: a `VisionTransformer`, hybrids included.
        images: array (B, height, width, channels), as the model takes them.
        head_fusion: "mean" as in the paper, "max" or "min" of the heads.
        discard_ratio: float in [0, 1), share of the smallest fused weights
            of each image that is set to zero in each block, before the
            identity is added. The rows of the class token and of other prefix
            tokens are kept whole.
        batch_size: int, images at a time.

    Returns:
        float32 array of shape (B, R, C), not negative. With what comes from
        the class token itself an image's values sum to 1; for pictures they
        are divided by their maximum.

    Raises:
        ValueError: for an unknown fusion, a ratio out of range, anything but
            a `VisionTransformer`, or images that it does not take.

    Example:
        >>> attention_rollout(model, images).shape  # B/16, 224 x 112 pixels
        (8, 14, 7)
    """
    rollout = _rollout_of(model, head_fusion, discard_ratio)
    tokens = [
        rows for _, rows in walk(model, images, rollout, batch_size)
    ]  # each (B, T)
    return on_grid(model.config, np.concatenate(tokens))


@dataclasses.dataclass(frozen=True)
class AttentionOverview:
    """What `attention_overview` finds.

    Attributes:
        grids: float32 array of shape (L, B, H, R, C), see `attention_grids`;
            of a model with class attention (L + K, B, H, R, C), the rows of
            the class token in its K last blocks.
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
    """Compute attention of each head, rollout and distance in one pass.

    Of each layer the rows that the model's head reads are kept, not the
    (T, T) weights: of H/14 at 224 pixels 0.5 MB per image instead of 135.

    Args:
        model: a `VisionTransformer`, hybrids included.
        images: array (B, height, width, channels), as the model takes them.
        head_fusion: see `attention_rollout`.
        discard_ratio: see `attention_rollout`.
        batch_size: int, images at a time.

    Raises:
        ValueError: see `attention_rollout`.

    Example:
        >>> attention_overview(model, images).grids.shape  # B/16
        (12, 8, 12, 14, 14)
    """
    check_model(model)
    config = model.config
    analyses = _Together(
        (
            _Rows(config),
            _rollout_of(model, head_fusion, discard_ratio),
            distance_of(config),
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


def _rollout_of(model, head_fusion, discard_ratio):
    check_model(model)
    return Rollout(head_fusion, discard_ratio, model.config.num_prefix_tokens)


@dataclasses.dataclass(frozen=True)
class Rollout:
    """Multiplies the matrices of the blocks."""

    head_fusion: str
    discard_ratio: float
    num_prefix_tokens: int

    def __post_init__(self):
        check_choice("head_fusion", self.head_fusion, FUSIONS)
        check_limits(self, 1, "discard_ratio")

    def step(self, carry, weights):
        fused = FUSIONS[self.head_fusion](weights)  # (B, T, T)
        fused = _discard(fused, self.discard_ratio, self.num_prefix_tokens)
        fused = fused + ops.eye(fused.shape[-1])
        fused = fused / ops.sum(fused, axis=-1, keepdims=True)
        return fused if carry is None else ops.matmul(fused, carry)

    def finish(self, carry, x, model):
        config = model.config
        if config.class_attention_layers and config.pooling in OF_CLASS_TOKEN:
            read = self._read_by_class(class_rows(model, x))  # (B, T)
            return ops.einsum("bq,bqk->bk", read, carry)  # (B, T)
        if config.pooling not in ATTENTION_POOLINGS:
            read = reading_weights(config)
            return ops.einsum("q,bqk->bk", read, carry)  # (B, T)
        names = [layer.name for layer in model.layers]
        before = names[: names.index("pool")]
        for name in ("encoder_norm", "neck"):
            if name in before:
                x = model.get_layer(name)(x)
        pool = model.get_layer("pool").attention_weights(x)  # (B, H, 1, T)
        read = FUSIONS[self.head_fusion](pool)[:, 0]  # (B, T)
        read = ops.cast(read, "float32")
        read = read / ops.sum(read, axis=-1, keepdims=True)
        return ops.einsum("bq,bqk->bk", read, carry)  # (B, T)

    def _read_by_class(self, layers):
        """Return the weights of patches in a class token after the blocks."""
        read = None
        for rows in layers:  # (B, H, 1 + T)
            fused = FUSIONS[self.head_fusion](rows)  # (B, 1 + T)
            own, taken = fused[:, :1] + 1, fused[:, 1:]
            total = ops.sum(fused, axis=-1, keepdims=True) + 1
            before = 0 if read is None else own * read
            read = (before + taken) / total  # (B, T)
        return read


def _discard(fused, ratio, num_prefix_tokens):
    """Set the smallest weights (B, T, T) of each image to zero.

    Prefix rows are kept whole; of equal weights at the limit none is dropped.
    """
    rows = fused[:, num_prefix_tokens:]  # (B, T - P, T)
    count = rows.shape[1] * rows.shape[2]
    dropped = int(ratio * count)
    if not dropped:
        return fused
    ordered = ops.sort(ops.reshape(rows, (-1, count)), axis=-1)
    limit = ordered[:, dropped][:, None, None]  # (B, 1, 1)
    rows = ops.where(rows < limit, 0.0, rows)
    return ops.concatenate([fused[:, :num_prefix_tokens], rows], axis=1)


@dataclasses.dataclass(frozen=True)
class _Rows:
    """Keeps of each layer's weights the rows that the head reads."""

    config: ViTConfig

    def step(self, carry, weights):
        read = reading_weights(self.config)
        rows = ops.einsum("q,bhqk->bhk", read, weights)  # (B, H, T)
        return [*(carry or []), rows]

    def finish(self, carry, x, model):
        if not self.config.class_attention_layers:
            return carry
        return [*carry, *(rows[..., 1:] for rows in class_rows(model, x))]


@dataclasses.dataclass(frozen=True)
class _Together:
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
