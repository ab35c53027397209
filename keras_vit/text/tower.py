"""The tower of texts: token embedding, transformer, pooling and projection.

Axes: B batch, L context length, D hidden dimension, P projection dimension.
"""

import dataclasses
import functools
import math

import keras
from keras import ops

from keras_vit.io.checks import (
    check_choice,
    check_fraction,
    check_heads,
    check_types,
)
from keras_vit.layers import (
    AddPositionEmbedding,
    SelfAttention,
    TransformerBlock,
)
from keras_vit.layers.common import ConfiguredLayer
from keras_vit.layers.pooling import mean_of
from keras_vit.models.configured_model import ConfiguredModel
from keras_vit.models.options import (
    RECORD,
    TENSORS,
    check_options,
    count,
    option,
    positive,
)

__all__ = ["TextConfig", "TextPooling", "TextTransformer"]


def at(x, positions):
    """Take one token (B, D) of each row of (B, L, D)."""
    chosen = ops.one_hot(positions, x.shape[1], dtype=x.dtype)  # (B, L)
    return ops.einsum("bld,bl->bd", x, chosen)


def first_with(ids, wanted):
    """Return the first position (B,) of an id in each row of (B, L)."""
    return ops.argmax(ops.cast(ops.equal(ids, wanted), "int32"), axis=1)


POOLINGS = {
    "first_id": lambda x, ids, at_id, valid: at(x, first_with(ids, at_id)),
    "largest_id": lambda x, ids, at_id, valid: at(x, ops.argmax(ids, axis=1)),
    "first": lambda x, ids, at_id, valid: x[:, 0],
    "last": lambda x, ids, at_id, valid: x[:, -1],
    "mean": lambda x, ids, at_id, valid: mean_of(x, 0, valid),
}


@dataclasses.dataclass(frozen=True)
class TextConfig:
    """Everything that defines a tower of texts; the defaults are CLIP's.

    Args:
        vocabulary_size: int, ids of tokens.
        context_length: int, L, tokens of a text with its padding.
        hidden_dim: int, D, size of a token.
        num_layers: int, number of blocks.
        mlp_dim: int, hidden size of the MLPs.
        num_heads: int, attention heads.
        causal: bool, whether a token reads those before it alone.
        masked_id: None, or the id of padding that no token reads, as in
            TIPSv2. Others read their padding as they were trained to.
        position_embedding: "learned", or "sincos1d" for fixed sines and
            cosines.
        scale_embedding: bool, whether embeddings are multiplied by sqrt(D).
        pooling: the token that stands for the text: the "first_id" that is
            `pooled_id`, the one with the "largest_id", the "first" or "last",
            or the "mean" of all that are not masked.
        pooled_id: int, the end of the text, for "first_id".
        projection_dim: int, P, size of the embedding; 0 without projection.
        embedding_bias: bool, whether that projection has a bias.
        layer_norm_epsilon: float, added to the variance.
        layer_scale_init: float that `LayerScale` starts at, or None.
        activation: of the MLPs, as in `keras_vit.models.ViTConfig`.

    Raises:
        ValueError: for values that do not fit together.
    """

    vocabulary_size: int = option(49408, TENSORS, check=positive)
    context_length: int = option(77, TENSORS, check=positive)
    hidden_dim: int = option(512, TENSORS, check=positive)
    num_layers: int = option(12, TENSORS, check=positive)
    mlp_dim: int = option(2048, TENSORS, check=positive)
    num_heads: int = option(8, RECORD, check=positive)
    causal: bool = option(True, RECORD)
    masked_id: int | None = option(None, RECORD, check=count)
    position_embedding: str = option(
        "learned", TENSORS, choices=("learned", "sincos1d")
    )
    scale_embedding: bool = option(False, RECORD)
    pooling: str = option("first_id", RECORD, choices=tuple(POOLINGS))
    pooled_id: int = option(49407, RECORD, check=count, idle="others have none")
    projection_dim: int = option(512, TENSORS, check=count)
    embedding_bias: bool = option(False, TENSORS, idle="it may have none")
    layer_norm_epsilon: float = option(1e-5, RECORD, check=check_fraction)
    layer_scale_init: float | None = option(None, TENSORS)
    activation: str = option("quick_gelu", RECORD)

    def __post_init__(self):
        check_types(self)
        check_options(self)
        check_heads(self.hidden_dim, self.num_heads)
        read = ["masked_id"] if self.masked_id is not None else []
        read += ["pooled_id"] if self.pooling == "first_id" else []
        for name in read:
            if getattr(self, name) >= self.vocabulary_size:
                raise ValueError(
                    f"{name} is the id of a token, below vocabulary_size. "
                    f"Received: {name}={getattr(self, name)}, vocabulary_size="
                    f"{self.vocabulary_size}. Change one of the two."
                )


@keras.saving.register_keras_serializable("keras_vit")
class TextPooling(ConfiguredLayer):
    """Takes the token of a text that stands for all of it.

    Args:
        pooling: see `TextConfig`; this and all others.
        pooled_id: int.
        masked_id: int, or None.

    Input shape:
        Tokens (B, L, D) and their ids (B, L).

    Output shape:
        (B, D).

    Raises:
        ValueError: for an unknown pooling.
    """

    def __init__(self, pooling="first_id", pooled_id=0, masked_id=None, **kw):
        super().__init__(**kw)
        check_choice("pooling", pooling, POOLINGS)
        self.pooling = pooling
        self.pooled_id = pooled_id
        self.masked_id = masked_id

    def call(self, x, ids):
        masked = self.masked_id
        valid = None if masked is None else ops.not_equal(ids, masked)
        return POOLINGS[self.pooling](x, ids, self.pooled_id, valid)  # (B, D)

    def compute_output_shape(self, x_shape, ids_shape):
        return (x_shape[0], x_shape[-1])


@keras.saving.register_keras_serializable("keras_vit")
class TextTransformer(ConfiguredModel):
    """Tower of texts as a functional Keras model of the blocks of the images.

    The text encoder of "Learning Transferable Visual Models From Natural
    Language Supervision" (arXiv:2103.00020, section 2.4) and of its
    successors.

    Args:
        config: a `TextConfig`, which defines the whole model.
        name: str, name of the model.
        dtype: dtype policy of all layers, for example "mixed_bfloat16".
        trainable: bool, whether training changes the weights.

    Input shape:
        (B, L), ids of tokens, integers.

    Output shape:
        (B, P), or (B, D) without projection; not normalised.

    Example:

    >>> tower = TextTransformer(TextConfig(vocabulary_size=1000, pooled_id=999))
    >>> tower.output_shape
    (None, 512)
    """

    config_class = TextConfig
    config: TextConfig

    @staticmethod
    def input_of(config):
        shape = (config.context_length,)
        return keras.Input(shape, name="token_ids", dtype="int32")

    def check_shape(self, shape):
        if len(shape) == 2 and shape[1] not in (None, self.input_shape[1]):
            raise ValueError(
                f"The tower takes texts of {self.input_shape[1]} tokens with "
                f"their padding. Received: ids of shape {tuple(shape)}. Pad "
                "or cut them, or give texts to `encode_texts`."
            )

    @staticmethod
    def outputs_of(config, images, dtype=None):
        ids = images
        x = keras.layers.Embedding(
            config.vocabulary_size,
            config.hidden_dim,
            dtype=dtype,
            name="token_embedding",
        )(ids)  # (B, L, D)
        if config.scale_embedding:
            x = x * math.sqrt(config.hidden_dim)
        x = AddPositionEmbedding(
            (1, config.context_length),
            kind=config.position_embedding,
            dtype=dtype,
            name="position_embedding",
        )(x)
        valid = ()
        if config.masked_id is not None:
            valid = (ops.not_equal(ids, config.masked_id),)  # (B, L)
        for i in range(config.num_layers):
            attention = functools.partial(
                SelfAttention.from_fields, config, dtype=dtype, name="attention"
            )
            x = TransformerBlock.from_fields(
                config, attention=attention, dtype=dtype, name=f"block_{i}"
            )(x, *valid)
        x = keras.layers.LayerNormalization(
            epsilon=config.layer_norm_epsilon, dtype=dtype, name="encoder_norm"
        )(x)
        x = TextPooling.from_fields(config, dtype=dtype, name="pool")(x, ids)
        if not config.projection_dim:
            return x
        return keras.layers.Dense(
            config.projection_dim,
            use_bias=config.embedding_bias,
            dtype=dtype,
            name="projection",
        )(x)  # (B, P)
