"""Grad-CAM: which patches speak for a class.

Axes: B batch, T tokens, P of them prefix tokens, D hidden dimension, R and C
rows and columns of the grid of patches, K classes.
"""

from typing import Any

import keras
import numpy as np
from keras import ops

from keras_vit.analysis.blocks import (
    blocks_of,
    check_block,
    check_images,
    check_model,
    kept_with,
)
from keras_vit.analysis.gradients import gradient_function
from keras_vit.analysis.reading import on_grid
from keras_vit.analysis.scores import chosen_classes, class_scores, tail_of
from keras_vit.models import VisionTransformer

__all__ = ["gradient_cam"]


def gradient_cam(
    model: VisionTransformer,
    images: Any,
    classes: Any = None,
    *,
    block: int = -1,
    batch_size: int = 8,
) -> np.ndarray:
    """Where in the image the evidence for a class is.

    Grad-CAM (arXiv:1610.02391, equations 1 and 2) on the layer where it works
    for a ViT: the normalised tokens that the attention of the last block
    takes. After that block the class token alone is read, the gradient of
    all patches is zero and the map is blank. The class token is left out of
    the map and of the mean of the gradients.

    Args:
        model: a `VisionTransformer` with classes.
        images: array (B, height, width, channels), as the model takes them.
        classes: None for the most probable class of each image, an int for
            all images, or B ints.
        block: int, the block whose attention's input is taken.
        batch_size: int, images at a time.

    Returns:
        float32 array of shape (B, R, C), not negative, in the units of the
        score times the gradient; for pictures divided by its maximum. An
        image with no evidence for the class has a map of zeros.

    Raises:
        ValueError: for a model without classes, classes or a block that it
            does not have, images that it does not take.

    Example:
        >>> gradient_cam(model, images, classes=281).shape  # tabby cat
        (8, 14, 14)
    """
    check_model(model)
    images = check_images(model, images)
    block = check_block(model, block)
    gradient = kept_with(
        model,
        ("gradient_cam", block),
        lambda: gradient_function(model, _score_after_norm(model, block)),
    )
    one_hot = chosen_classes(model, images, classes, batch_size)
    layer = model.get_layer(f"block_{block}")
    stem = keras.Model(model.input, layer.input)
    maps = []
    for i in range(0, len(images), batch_size):
        x = stem.predict_on_batch(images[i : i + batch_size])  # (B, T, D)
        tokens = layer.attention_norm(x)  # (B, T, D)
        slopes = gradient(tokens, x, one_hot[i : i + batch_size])
        maps.append(class_activation(model, tokens, slopes))
    return np.concatenate(maps)


def class_activation(model, tokens, slopes):
    """Equations 1 and 2: tokens weighted by the mean of their gradients.

    Args:
        model: a `VisionTransformer`.
        tokens: tensor (B, T, D).
        slopes: array (B, T, D), the gradient of the score with respect to
            the tokens.

    Returns:
        float32 array of shape (B, R, C), negative values set to zero.
    """
    prefix = model.config.num_prefix_tokens
    tokens = np.asarray(ops.convert_to_numpy(tokens), "float32")
    importance = slopes[:, prefix:].mean(axis=1)  # (B, D)
    values = np.einsum("btd,bd->bt", tokens, importance)  # (B, T)
    return on_grid(model.config, np.maximum(values, 0))


def _score_after_norm(model, index):
    """From the normalised tokens of a block to the score of a class."""
    scores = class_scores(model)
    block, *blocks = blocks_of(model)[index:]
    layers = [*blocks, *tail_of(model)]

    def score(normalized, x, one_hot):
        # Equations 2 and 3 of the paper, from inside the block on.
        x = x + block.attention(normalized)  # (B, T, D)
        x = x + block.mlp(block.mlp_norm(x))  # (B, T, D)
        for layer in layers:
            x = layer(x)
        return ops.sum(scores(x) * one_hot, axis=-1)  # (B,)

    return score
