"""Replaces the embeddings of hidden patches, before positions are added.

Axes: B images, N patches, D hidden dimension.
"""

import keras
from keras import ops

from keras_vit.layers.configured_layer import ConfiguredLayer

__all__ = ["CorruptPatches", "hidden_source", "through_hidden"]


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


def hidden_source(hidden):
    """Return the source of `CorruptPatches` that hides patches.

    Args:
        hidden: bool tensor (B, N).

    Returns:
        int32 tensor (B, N), -1 where hidden.
    """
    places = ops.arange(hidden.shape[1], dtype="int32")
    return ops.where(hidden, -1, places[None])


def through_hidden(model, x, source) -> tuple:
    """Return features and patch tokens of views with hidden patches.

    Args:
        model: a `VisionTransformer`.
        x: views (B, H, W, C).
        source: int32 (B, N), see `CorruptPatches`.

    Returns:
        (B, D), and the tokens after the last norm (B, N, D).
    """
    layers = model.layers[1:]
    names = [layer.name for layer in layers]
    first, last = (names.index(y) + 1 for y in ("patch_embed", "encoder_norm"))
    for layer in layers[:first]:
        x = layer(x)
    x = CorruptPatches(dtype=model.dtype_policy, name="corrupt_patches")(
        x, source
    )
    for layer in layers[first:last]:
        x = layer(x)
    tokens = x[:, -source.shape[1] :]
    for layer in layers[last:]:
        x = layer(x)
    return x, tokens
