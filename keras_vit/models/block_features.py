"""What the blocks of a model give, beside its output.

Axes: B batch, T tokens, D hidden dimension.
"""

import itertools
from collections.abc import Sequence

import keras
from keras import ops

__all__ = ["BlockFeatures", "check_blocks"]

BLOCK = "block_"
# What may follow the last block, and
NORM, NECK, POOL = "encoder_norm", "neck", "pool"
CLASS = ("class_token", "class_block_")  # what reads all patches then.


class BlockFeatures(keras.Model):
    """A network from images to the features after some blocks of a model.

    It shares the layers of the model, which stays as it is. Features are
    treated as the model treats those of its last block: normalised by its
    final layer normalisation, projected by its neck, and pooled as its head
    does, in its own order.
    A model that normalises after pooling leaves single tokens as they are.
    Of a model with class attention the tokens are those of the patches, which
    its class token reads where they are pooled.

    Args:
        model: a model of keras_vit with blocks: a Vision Transformer, a
            variant of it, or a Mixer.
        blocks: numbers of blocks, as `check_blocks` returns them.
        norm: bool, whether the final normalisation and the neck are applied.
        pool: bool, whether tokens are pooled to one vector.

    Input shape:
        That of the model.

    Output shape:
        For each block (B, T, D), or (B, D) if pooled, in float32. Class
        token, distillation token and registers come first.

    Raises:
        ValueError: when a model without pooling is to be pooled.

    Example:

    >>> model = keras_vit.ViT_B16(weights=None)
    >>> [x.shape for x in BlockFeatures(model, [5, 11])(images)]
    [(2, 197, 768), (2, 197, 768)]
    """

    def __init__(
        self,
        model: keras.Model,
        blocks: Sequence[int],
        *,
        norm: bool = True,
        pool: bool = False,
    ):
        super().__init__(name="block_features")
        names = _names_after_blocks(model, pool)
        if pool and POOL not in names:
            raise ValueError(
                f"The model {model.name!r} does not pool its tokens. Received: "
                "pooled features of its blocks. Ask for its tokens."
            )
        if not pool:
            names = list(itertools.takewhile(lambda x: x != POOL, names))
        names = [x for x in names if norm or x not in (NORM, NECK)]
        self.after = [model.get_layer(x) for x in names]
        outputs = [model.get_layer(f"{BLOCK}{i}").output for i in blocks]
        self.states = keras.Model(model.input, outputs)
        # It has no weights of its own: Keras need not try a batch first.
        self.built = True

    def call(self, images):
        return [
            self._finish(x) for x in keras.tree.flatten(self.states(images))
        ]

    def _finish(self, x):
        for layer in self.after:
            x = layer(x)
        return ops.cast(x, "float32")


def _names_after_blocks(model, pool) -> list:
    """The layers of a model that follow its last block, up to the pooling."""
    names = [x.name for x in model.layers]
    last = max(i for i, x in enumerate(names) if x.startswith(BLOCK))
    kept = (NORM, NECK, POOL, *CLASS) if pool else (NORM, NECK, POOL)
    return [x for x in names[last + 1 :] if x.startswith(kept)]


def check_blocks(model: keras.Model, blocks: int | Sequence[int]) -> list[int]:
    """The numbers of blocks from 0; negative ones count from the end.

    Raises:
        ValueError: for a model without blocks, no block, or a number that
            the model has no block of.

    Example:
        >>> check_blocks(keras_vit.ViT_B16(weights=None), [0, -1])
        [0, 11]
    """
    names = {x.name for x in model.layers}
    count = sum(f"{BLOCK}{i}" in names for i in range(len(names)))
    if not count:
        raise ValueError(
            f"A {type(model).__name__} has no transformer blocks. Received: "
            f"the model {model.name!r}. Take a Vision Transformer or a Mixer."
        )
    numbers = [blocks] if isinstance(blocks, int) else list(blocks)
    wrong = [x for x in numbers if not _is_block(x, count)]
    if wrong or not numbers:
        raise ValueError(
            f"The model has {count} blocks. Received: blocks={blocks!r}. Give "
            f"numbers from 0 to {count - 1}, or -1 for the last block."
        )
    return [int(x) % count for x in numbers]


def _is_block(number, count):
    return isinstance(number, int) and -count <= number < count
