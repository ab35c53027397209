"""A Vision Transformer that says what is in the patches that it does not see.

Axes: B images, N patches, P prefix tokens, T = P + N tokens, D hidden
dimension, M answers for a patch, K colours.
"""

import dataclasses

import keras
from keras import ops

from keras_vit.layers.configured_layer import ConfiguredLayer
from keras_vit.models import VisionTransformer
from keras_vit.training.masked_patch.batches import LEVELS
from keras_vit.training.masked_patch.config import CELLS

__all__ = ["CorruptPatches", "headless", "masked_network"]


@keras.saving.register_keras_serializable("keras_vit")
class CorruptPatches(ConfiguredLayer):
    """Replaces embeddings of patches by a learned one, or by one another.

    Appendix B.1.2 of "An Image Is Worth 16x16 Words" (arXiv:2010.11929), after
    BERT's [mask] token.

    Input shape:
        Embeddings (B, N, D), and source (B, N), the number of the patch whose
        embedding each one gets, or -1 for the learned one.

    Output shape:
        (B, N, D).

    Example:

    >>> embeddings = keras.random.normal((1, 4, 8))
    >>> CorruptPatches()(embeddings, [[0, -1, 3, 3]]).shape
    (1, 4, 8)
    """

    def build(self, embeddings_shape, source_shape=None):
        self.mask = self.add_weight(
            name="mask",
            shape=(1, 1, embeddings_shape[-1]),
            initializer=keras.initializers.RandomNormal(stddev=0.02),
        )

    def call(self, embeddings, source):
        source = ops.expand_dims(source, -1)  # (B, N, 1)
        taken = ops.take_along_axis(
            embeddings, ops.maximum(source, 0), axis=1
        )  # (B, N, D)
        mask = ops.cast(self.mask, taken.dtype)
        return ops.where(source < 0, mask, taken)

    def compute_output_shape(self, embeddings_shape, source_shape=None):
        return embeddings_shape


def headless(model) -> VisionTransformer:
    """The same Vision Transformer without its classification layer.

    Args:
        model: a `VisionTransformer`.

    Returns:
        A `VisionTransformer` from images to features, with weights of its own.

    Example:
        >>> headless(keras_vit.ViT_B16(weights=None)).output_shape
        (None, 768)
    """
    config = dataclasses.replace(
        model.config, num_classes=0, representation_dim=0
    )
    known = {weight.path: weight for weight in model.weights}
    result = VisionTransformer(
        config, name=model.name, dtype=model.dtype_policy
    )
    for weight in result.weights:
        weight.assign(known[weight.path])
    return result


def masked_network(model: VisionTransformer, target: str) -> keras.Model:
    """Lays the path from hidden patches to answers through a model.

    Args:
        model: a `VisionTransformer`, whose layers the network shares; what
            pools its tokens is left out.
        target: see `MaskedPatchConfig`.

    Returns:
        A Keras model from a dictionary of "image" (B, H, W, C) and "source",
        int32 (B, N), to scores of colours (B, N, M, K), or with "pixels" to
        values (B, N, M).

    Example:
        >>> network = masked_network(model, "mean_colour")
        >>> network({"image": images, "source": source}).shape
        (64, 196, 1, 512)
    """
    config = model.config
    patches = config.grid[0] * config.grid[1]
    source = keras.Input((patches,), dtype="int32", name="source")
    corrupt = CorruptPatches(dtype=model.dtype_policy, name="corrupt_patches")
    x = corrupt(model.get_layer("patch_embed").output, source)  # (B, N, D)
    for layer in _after_patches(model):
        x = layer(x)  # (B, T, D)
    x = x[:, config.num_prefix_tokens :]  # (B, N, D)
    shape = _answer_shape(config, target)
    size = shape[0] * (shape[1] if len(shape) > 1 else 1)
    # In float32 under mixed precision, as a classification layer.
    x = keras.layers.Dense(
        size, kernel_initializer="zeros", dtype="float32", name="answers"
    )(x)
    x = keras.layers.Reshape((patches, *shape), dtype="float32")(x)
    inputs = {"image": model.input, "source": source}
    return keras.Model(inputs, x, name="masked")


def _after_patches(model):
    """The layers from embedded patches to all tokens, normalised."""
    names = [layer.name for layer in model.layers]
    last = max(i for i, name in enumerate(names) if name.startswith("block_"))
    encoder = model.layers[names.index("patch_embed") + 1 : last + 1]
    return [*encoder, model.get_layer("encoder_norm")]


def _answer_shape(config, target):
    cells = CELLS[target]
    if cells is not None:
        return cells**2, LEVELS**config.channels  # M, K
    height, width = (
        size // patches
        for size, patches in zip(config.image_size, config.grid, strict=True)
    )
    return (height * width * config.channels,)
