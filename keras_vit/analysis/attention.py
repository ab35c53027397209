"""A Vision Transformer walked block by block, its attention seen on the way.

Axes: B batch, L layers (blocks), H heads, T tokens, R and C rows and columns
of the grid of patches.

Axes: T tokens, P of them prefix tokens (such as the class token), R and C
rows and columns of the grid of patches.
"""

import dataclasses
from collections.abc import Callable, Hashable, Iterator
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_vit.models import VisionTransformer, ViTConfig

__all__ = [
    "attention_grids",
    "attention_maps",
    "blocks_of",
    "check_block",
    "check_images",
    "check_model",
    "kept_with",
    "on_grid",
    "reading_weights",
    "walk",
]


def walk(
    model: VisionTransformer, images: Any, analysis: Any, batch_size: int = 32
) -> Iterator[tuple[slice, Any]]:
    """Runs an analysis of the attention over batches of images.

    Only what the analysis keeps of a layer outlives that layer, so that the
    memory of one that keeps little grows with one layer, not with all. The
    compiled walk stays with the model and serves further calls.

    Args:
        model: a `VisionTransformer`.
        images: array (B, height, width, channels), as the model takes them.
        analysis: a hashable object with `step(carry, weights)`, from what is
            kept so far (None before the first block) and a float32 tensor
            (B, H, T, T) to what is kept now, and `finish(carry, x, model)`,
            from that and the tokens (B, T, D) after the last block to the
            result, a tensor (B, ...) or a list of them.
        batch_size: int, images at a time.

    Yields:
        (slice of the images, result as NumPy arrays), in order.

    Raises:
        ValueError: for anything but a `VisionTransformer`, or images that it
            does not take.
    """
    check_model(model)
    images = check_images(model, images)
    walker = kept_with(model, analysis, lambda: _Walker(model, analysis))
    for start in range(0, len(images), batch_size):
        part = slice(start, start + batch_size)
        found = walker.predict_on_batch(images[part])
        # Under tf.distribute every replica answers for the whole batch.
        yield part, _first(found, len(images[part]))


def _first(arrays, count):
    return keras.tree.map_structure(lambda array: array[:count], arrays)


class _Walker(keras.Model):
    """The model with an analysis on the way."""

    def __init__(self, model, analysis):
        super().__init__(name="walker")
        self.stem = keras.Model(model.input, model.get_layer("block_0").input)
        self.blocks = blocks_of(model)
        self.model = model
        self.analysis = analysis
        # It has no weights of its own: Keras need not try a batch first.
        self.built = True

    def call(self, images):
        x = self.stem(images)  # (B, T, D)
        carry = None
        for block in self.blocks:
            weights = block.attention.attention_weights(
                block.attention_norm(x)
            )  # (B, H, T, T)
            carry = self.analysis.step(carry, ops.cast(weights, "float32"))
            x = block(x)  # (B, T, D)
        return self.analysis.finish(carry, x, self.model)


def kept_with(
    model: VisionTransformer, key: Hashable, make: Callable[[], Any]
) -> Any:
    """What was made, and compiled, for a model by an earlier call, or now.

    All is made anew when quantisation or LoRA has changed the variables:
    TensorFlow's compiled functions would go on with the old ones.

    Args:
        model: a `VisionTransformer`.
        key: what it is, with its options.
        make: makes it.

    Returns:
        What `make` returned first.
    """
    variables = tuple((v.path, v.dtype) for v in model.variables)
    # Not an attribute by assignment: Keras would take what is kept for layers
    # of the model and save them.
    since, kept = model.__dict__.get("_analysis_kept", (None, {}))
    if since != variables:
        kept = {}
        model.__dict__["_analysis_kept"] = (variables, kept)
    if key not in kept:
        kept[key] = make()
    return kept[key]


def blocks_of(model: VisionTransformer) -> list[keras.layers.Layer]:
    """The transformer blocks of a model, first to last."""
    return [
        model.get_layer(f"block_{i}") for i in range(model.config.num_layers)
    ]


def check_block(model: VisionTransformer, block: int) -> int:
    """The index of a block, counted from 0; negative ones from the end.

    Args:
        model: a `VisionTransformer` of L blocks.
        block: int in -L..L-1.

    Returns:
        int in 0..L-1.

    Raises:
        ValueError: when there is no such block.
    """
    count = model.config.num_layers
    if not -count <= block < count:
        raise ValueError(
            f"The model has {count} blocks. Received: block={block}. Give a "
            f"number from 0 to {count - 1}, or -1 for the last block."
        )
    return block % count


def check_model(model: Any) -> None:
    """Raises a ValueError unless the model is a `VisionTransformer`."""
    if not isinstance(model, VisionTransformer):
        raise ValueError(
            "The analysis needs a VisionTransformer. Received: "
            f"{type(model).__name__}. Build or load one with keras_vit; where "
            "it is a layer of another model, take it with get_layer."
        )


def check_images(model: VisionTransformer, images: Any) -> np.ndarray:
    """Images as an array, checked against what the model takes.

    Args:
        model: a `VisionTransformer`.
        images: array, tensor or nested lists.

    Returns:
        float32 array (B, height, width, channels).

    Raises:
        ValueError: unless there is at least one image of the model's size.
    """
    if keras.ops.is_tensor(images):
        images = ops.convert_to_numpy(images)
    images = np.asarray(images, "float32")
    wanted = (*model.config.image_size, model.config.channels)
    if images.shape[1:] != wanted or not len(images):
        raise ValueError(
            f"The model takes batches of shape (batch, {wanted[0]}, "
            f"{wanted[1]}, {wanted[2]}) (height, width, channels). Received: "
            f"images of shape {images.shape}. Resize the images, or build the "
            "model with their input_shape; of one image make a batch with "
            "images[np.newaxis]."
        )
    return images


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
