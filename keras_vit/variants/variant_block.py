"""The encoder block with other attention than the plain one.

Axes: B batch, T tokens, D hidden dimension, O offsets between two tokens.
"""

import functools

import keras

from keras_vit.layers.base import ConfiguredLayer
from keras_vit.layers.mlp import MLP
from keras_vit.layers.rematerialization import rematerialize
from keras_vit.layers.transformer_block import stochastic_depth
from keras_vit.variants.relative_attention import RelativeSelfAttention

__all__ = ["VariantBlock"]


@keras.saving.register_keras_serializable("keras_vit")
class VariantBlock(ConfiguredLayer):
    """Pre-norm encoder block with attention that knows relative positions.

    Equations 2 and 3 of "An Image Is Worth 16x16 Words" (arXiv:2010.11929)
    with the attention of its appendix D.4.

    Args:
        num_heads: int, attention heads; it divides D.
        mlp_dim: int, hidden size of the MLP.
        dropout_rate: float in [0, 1), see `TransformerBlock`, as the rest.
        attention_dropout_rate: float in [0, 1).
        stochastic_depth_rate: float in [0, 1).
        layer_norm_epsilon: float.
        activation: of the MLP.
        rematerialize: bool.

    Input shape:
        (B, T, D) and the table of `RelativePositionEmbedding`, (O, D).

    Output shape:
        (B, T, D).

    Raises:
        ValueError: when built on a D that num_heads does not divide.

    Example:

    >>> tokens = keras.random.normal((2, 197, 768))
    >>> offsets = RelativePositionEmbedding((14, 14), num_prefix_tokens=1)
    >>> block = VariantBlock(num_heads=12, mlp_dim=3072)
    >>> block(tokens, offsets(tokens)).shape
    (2, 197, 768)
    """

    def __init__(
        self,
        num_heads,
        mlp_dim,
        *,
        dropout_rate=0.0,
        attention_dropout_rate=0.0,
        stochastic_depth_rate=0.0,
        layer_norm_epsilon=1e-6,
        activation="gelu_tanh",
        rematerialize=False,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.num_heads = num_heads
        self.mlp_dim = mlp_dim
        self.dropout_rate = dropout_rate
        self.attention_dropout_rate = attention_dropout_rate
        self.stochastic_depth_rate = stochastic_depth_rate
        self.layer_norm_epsilon = layer_norm_epsilon
        self.activation = activation
        self.rematerialize = rematerialize
        self.attention_norm, self.attention_depth = self._around("attention")
        self.attention = RelativeSelfAttention(
            num_heads,
            attention_dropout_rate=attention_dropout_rate,
            dtype=self.dtype_policy,
            name="attention",
        )
        self.dropout = keras.layers.Dropout(
            dropout_rate, dtype=self.dtype_policy, name="dropout"
        )
        self.mlp_norm, self.mlp_depth = self._around("mlp")
        self.mlp = MLP(
            mlp_dim,
            dropout_rate=dropout_rate,
            activation=activation,
            dtype=self.dtype_policy,
            name="mlp",
        )

    def build(self, x_shape, offsets_shape=None):
        self.attention_norm.build(x_shape)
        self.attention.build(x_shape)
        self.mlp_norm.build(x_shape)
        self.mlp.build(x_shape)

    def call(self, x, offsets, training=None):
        forward = functools.partial(self._forward, training=training)
        if self.rematerialize and training:
            return rematerialize(self, forward, (x, offsets))
        return forward((x, offsets))

    def compute_output_shape(self, x_shape, offsets_shape=None):
        return x_shape

    def _forward(self, inputs, training):
        x, offsets = inputs
        y = self.attention(self.attention_norm(x), offsets, training=training)
        y = self.dropout(y, training=training)
        x = x + self.attention_depth(y, training=training)
        y = self.mlp(self.mlp_norm(x), training=training)
        return x + self.mlp_depth(y, training=training)

    def _around(self, name):
        """The normalisation before a branch and the layer that skips it."""
        norm = keras.layers.LayerNormalization(
            epsilon=self.layer_norm_epsilon,
            dtype=self.dtype_policy,
            name=f"{name}_norm",
        )
        depth = stochastic_depth(
            self.stochastic_depth_rate,
            dtype=self.dtype_policy,
            name=f"{name}_depth",
        )
        return norm, depth
