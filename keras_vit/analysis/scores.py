"""Class scores that are to be explained.

Axes: B batch, T tokens, D hidden dimension, K classes.
"""

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_vit.models import VisionTransformer

__all__ = ["chosen_classes", "class_scores", "tail_of"]


def tail_of(model: VisionTransformer) -> list[keras.layers.Layer]:
    """The layers after the last block, first to last, without the head."""
    last = f"block_{model.config.num_layers - 1}"
    names = [layer.name for layer in model.layers]
    return model.layers[names.index(last) + 1 : names.index("predictions")]


def class_scores(model: VisionTransformer) -> Callable:
    """From the features that the head takes to scores before any activation.

    Behind a softmax, the gradient of a probability that is near 1 is near
    zero, and shows nothing.

    Args:
        model: a `VisionTransformer` with classes.

    Returns:
        A function from features, (B, D) or with pooling "none" (B, T, D), to
        logits (B, K), those of the tokens averaged.

    Raises:
        ValueError: when the model has no classes.
    """
    if not model.config.num_classes:
        raise ValueError(
            "There is no class score to explain. Received: a model with "
            "num_classes=0. Build or load it with its classification layer "
            "(include_top=True)."
        )
    head = model.get_layer("predictions")

    def scores(features):
        if head.activation is keras.activations.linear:
            logits = head(features)
        else:
            kernel = ops.cast(head.kernel, features.dtype)
            logits = ops.matmul(features, kernel) + head.bias
        if len(logits.shape) == 3:
            logits = ops.mean(logits, axis=1)
        return logits  # (B, K)

    return scores


def chosen_classes(
    model: VisionTransformer, images: np.ndarray, classes: Any, batch_size: int
) -> np.ndarray:
    """The class to explain of each image, one-hot.

    Args:
        model: a `VisionTransformer` with K classes.
        images: array (B, height, width, channels).
        classes: None for the most probable class of each image, an int for
            all images, or B ints.
        batch_size: int, images at a time.

    Returns:
        float32 array of shape (B, K).

    Raises:
        ValueError: unless these are classes of the model.
    """
    count = model.config.num_classes
    if classes is None:
        parts = [
            model.predict_on_batch(images[i : i + batch_size])
            for i in range(0, len(images), batch_size)
        ]
        scores = np.concatenate(parts).reshape(len(images), -1, count)
        classes = scores.mean(axis=1).argmax(axis=-1)
    classes = np.asarray(classes)
    whole = np.issubdtype(classes.dtype, np.integer)
    if (
        not whole
        or classes.shape not in ((), (len(images),))
        or (classes < 0).any()
        or (classes >= count).any()
    ):
        raise ValueError(
            f"classes must be one integer from 0 to {count - 1}, or one for "
            f"each of the {len(images)} images. Received: classes={classes}."
        )
    classes = np.broadcast_to(classes, len(images))
    return np.eye(count, dtype="float32")[classes]
