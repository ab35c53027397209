"""Attention rollout: what of the image reaches the head through all blocks.

Axes: B batch, H heads, T tokens, P of them prefix tokens (such as the class
token), R and C rows and columns of the grid of patches.
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
from keras_vit.checks import check_choice
from keras_vit.models import VisionTransformer

__all__ = ["FUSIONS", "attention_rollout", "rollout_of"]

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
    """Where in the image the information at the head comes from.

    Figures 6 and 14 and appendix D.7 of "An Image Is Worth 16x16 Words"
    (arXiv:2010.11929), after "Quantifying Attention Flow in Transformers"
    (arXiv:2005.00928): the heads of a block are averaged, the identity is
    added for the residual connection, rows are divided by their sum, and
    the matrices of all blocks are multiplied. What is shown is the row of the
    class token; of models that pool the patches, the mean of their rows, with
    pooling "map" weighted by what the pooling attends to.

    One block's weights are held at a time.

    Args:
        model: a `VisionTransformer`.
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
    rollout = rollout_of(model, head_fusion, discard_ratio)
    tokens = [
        rows for _, rows in walk(model, images, rollout, batch_size)
    ]  # each (B, T)
    return on_grid(model.config, np.concatenate(tokens))


def rollout_of(
    model: VisionTransformer, head_fusion: str, discard_ratio: float
) -> "Rollout":
    """The analysis that `attention_rollout` walks with.

    Args:
        model: a `VisionTransformer`.
        head_fusion: see `attention_rollout`.
        discard_ratio: see `attention_rollout`.

    Returns:
        A `Rollout`.

    Raises:
        ValueError: for an unknown fusion, a ratio out of range, or anything
            but a `VisionTransformer`.
    """
    check_choice("head_fusion", head_fusion, FUSIONS)
    if not 0 <= discard_ratio < 1:
        raise ValueError(
            "discard_ratio is the share of weights to drop and must be at "
            f"least 0 and below 1. Received: discard_ratio={discard_ratio!r}."
        )
    check_model(model)
    return Rollout(head_fusion, discard_ratio, model.config.num_prefix_tokens)


@dataclasses.dataclass(frozen=True)
class Rollout:
    """Multiplies the matrices of the blocks as they come."""

    head_fusion: str
    discard_ratio: float
    num_prefix_tokens: int

    def step(self, carry, weights):
        fused = FUSIONS[self.head_fusion](weights)  # (B, T, T)
        fused = discard(fused, self.discard_ratio, self.num_prefix_tokens)
        fused = fused + ops.eye(fused.shape[-1])
        fused = fused / ops.sum(fused, axis=-1, keepdims=True)
        return fused if carry is None else ops.matmul(fused, carry)

    def finish(self, carry, x, model):
        if model.config.pooling != "map":
            read = reading_weights(model.config)
            return ops.einsum("q,bqk->bk", read, carry)  # (B, T)
        if not model.config.norm_after_pooling:
            x = model.get_layer("encoder_norm")(x)
        pool = model.get_layer("pool").attention_weights(x)  # (B, H, 1, T)
        read = FUSIONS[self.head_fusion](pool)[:, 0]  # (B, T)
        read = ops.cast(read, "float32")
        read = read / ops.sum(read, axis=-1, keepdims=True)
        return ops.einsum("bq,bqk->bk", read, carry)  # (B, T)


def discard(fused, ratio: float, num_prefix_tokens: int):
    """Sets the smallest weights of each image to zero.

    Args:
        fused: tensor (B, T, T), not negative.
        ratio: float in [0, 1), share of the weights below the prefix rows.
        num_prefix_tokens: int, P, rows that are kept whole.

    Returns:
        Tensor (B, T, T); of equal weights at the limit none is dropped.
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
