"""One Vision Transformer for images that grow in the training.

The weights are those of the model at each size: where images are smaller, its
position embeddings are resampled to their patches on the way. So a checkpoint
is one of the whole run, whatever the size.

Axes: B batch, T tokens of the model, S tokens of smaller images, D hidden
dimension.
"""

import dataclasses

import keras
import numpy as np
from keras import ops

from keras_vit.checkpoints.surgery.resample import resize_matrix
from keras_vit.layers import AddPositionEmbedding
from keras_vit.training.architectures import TRANSFORMERS
from keras_vit.variants import VariantConfig

__all__ = [
    "ResampledPositions",
    "at_size",
    "networks",
]

GROWING = (VariantConfig(), VariantConfig(mlp="local"))
METHOD = "linear_aligned"  # as the original resamples weights of another size


def networks(model, image_sizes: tuple[int, ...]) -> list[keras.Model]:
    """The networks of the stages of a training, which share their weights.

    Args:
        model: see `at_size`.
        image_sizes: sides in pixels, the last one of the model.

    Returns:
        A Keras model a size.

    Raises:
        ValueError: when the last size is not that of the model; see `at_size`.

    Example:
        >>> networks(model, (112, 224))[1] is model
        True
    """
    found = [at_size(model, size) for size in image_sizes]
    if found[-1] is not model:
        raise ValueError(
            "Images grow to the size of the model. Received: training."
            f"image_sizes={image_sizes}, model.image_size="
            f"{model.config.image_size}. End with that size."
        )
    return found


def at_size(model, image_size: int) -> keras.Model:
    """The same network for smaller images.

    Args:
        model: a `VisionTransformer` without a ResNet before it, or a
            `VariantTransformer` whose only difference is its MLP.
        image_size: side of the images in pixels, a multiple of the patch.

    Returns:
        A Keras model with the layers of the model; itself for its own size.

    Raises:
        ValueError: for another model, or a size that the patch does not
            divide.

    Example:
        >>> at_size(keras_vit.ViT_B16(weights=None), 160).input_shape
        (None, 160, 160, 3)
    """
    _check(model)
    size = (image_size, image_size)
    if size == model.config.image_size:
        return model
    grid = dataclasses.replace(model.config, image_size=size).grid
    x = image = keras.Input((*size, model.config.channels), name="image")
    for layer in model.layers[1:]:
        if isinstance(layer, AddPositionEmbedding):
            layer = ResampledPositions(
                layer, grid, dtype=layer.dtype_policy, name="resampled"
            )
        x = layer(x)
    return keras.Model(image, x, name=model.name)


def _check(model):
    variant = getattr(model.config, "variant", VariantConfig())
    grows = isinstance(model, TRANSFORMERS) and variant in GROWING
    if not grows or model.config.resnet_units is not None:
        raise ValueError(
            "Images grow in the training of a Vision Transformer, plain or "
            'with variant.mlp="local". Received: training.image_sizes for the '
            f"{type(model).__name__} {model.name!r} with {variant}. Leave them "
            "out, or choose another --model.name."
        )


class ResampledPositions(keras.layers.Layer):
    """Adds the position embeddings of a larger image to those of a smaller.

    Args:
        positions: the `AddPositionEmbedding` of the larger one, built.
        grid: (rows, columns) of the patches of the smaller one.

    Input shape:
        (B, S, D).

    Output shape:
        (B, S, D).

    Example:
        >>> positions = model.get_layer("position_embedding")
        >>> ResampledPositions(positions, (7, 7))(tokens)
    """

    def __init__(self, positions, grid, **kwargs):
        super().__init__(**kwargs)
        self.positions = positions
        prefix = positions.num_prefix_tokens
        rows, columns = (
            resize_matrix(old, new, METHOD)
            for old, new in zip(positions.grid, grid, strict=True)
        )
        patches = np.kron(rows, columns)  # (S - P, T - P)
        matrix = np.zeros(np.add(patches.shape, prefix), "float32")
        matrix[:prefix, :prefix] = np.eye(prefix)
        matrix[prefix:, prefix:] = patches
        self.matrix = matrix  # (S, T)

    def call(self, x):
        table = ops.cast(self.positions.embedding, "float32")[0]  # (T, D)
        return x + ops.cast(ops.matmul(self.matrix, table)[None], x.dtype)

    def compute_output_shape(self, input_shape):
        return input_shape
