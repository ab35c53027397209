"""The MLP of a transformer block.

Axes: B batch, N tokens, D hidden dimension.
"""

import functools

import keras
from keras import ops

from keras_vit.layers.attention import SelfAttention
from keras_vit.layers.configured_layer import ConfiguredLayer
from keras_vit.layers.kernels import TokenDense, TokenNormalization
from keras_vit.workarounds import rematerialize

__all__ = ["MLP", "TransformerBlock"]

# The originals use the tanh form of GELU; Hugging Face and timm the exact one.
GELUS = {
    "gelu_tanh": functools.partial(ops.gelu, approximate=True),
    "gelu": functools.partial(ops.gelu, approximate=False),
}


@keras.saving.register_keras_serializable("keras_vit")
class MLP(ConfiguredLayer):
    """Two dense layers with a GELU between, applied to each token alone.

    The MLP of equation 3 in "An Image Is Worth 16x16 Words"
    (arXiv:2010.11929), with dropout after each dense layer.

    Args:
        mlp_dim: int, size M of the hidden layer.
        dropout_rate: float in [0, 1).
        activation: "gelu_tanh" as in the original code, "gelu" for the exact
            form, or any activation of Keras by name.

    Input shape:
        (B, N, D), or any shape that ends with D.

    Output shape:
        That of the input.

    Example:

    >>> tokens = keras.random.normal((2, 197, 768))
    >>> MLP(mlp_dim=3072)(tokens).shape
    (2, 197, 768)
    """

    def __init__(
        self, mlp_dim, *, dropout_rate=0.0, activation="gelu_tanh", **kwargs
    ):
        super().__init__(**kwargs)
        self.mlp_dim = mlp_dim
        self.dropout_rate = dropout_rate
        self.activation = activation
        self._activate = GELUS.get(activation) or keras.activations.get(
            activation
        )
        self.dropout = keras.layers.Dropout(
            dropout_rate, dtype=self.dtype_policy, name="dropout"
        )
        self.dropout_1 = keras.layers.Dropout(
            dropout_rate, dtype=self.dtype_policy, name="dropout_1"
        )

    def build(self, input_shape):
        # The GELU is in the layer: TensorFlow makes one operation of product,
        # bias and GELU of matrices, and between the layers it has a reshape.
        self.dense = self._dense(self.mlp_dim, "dense", self._activate)
        self.dense_1 = self._dense(input_shape[-1], "dense_1")
        self.dense.build(input_shape)
        self.dense_1.build((*input_shape[:-1], self.mlp_dim))

    def call(self, x, training=None):
        x = self.dense(x)  # (B, N, M)
        x = self.dropout(x, training=training)
        x = self.dense_1(x)  # (B, N, D)
        return self.dropout_1(x, training=training)

    def compute_output_shape(self, input_shape):
        return input_shape

    def _dense(self, units, name, activation=None):
        return TokenDense(
            units,
            activation,
            kernel_initializer="glorot_uniform",
            bias_initializer=keras.initializers.RandomNormal(stddev=1e-6),
            dtype=self.dtype_of(name),
            name=name,
        )


@keras.saving.register_keras_serializable("keras_vit")
class TransformerBlock(ConfiguredLayer):
    """Pre-norm encoder block: self-attention, then an MLP, each a residual.

    Equations 2 and 3 of "An Image Is Worth 16x16 Words" (arXiv:2010.11929).

    Args:
        num_heads: int, attention heads; it divides D.
        mlp_dim: int, hidden size of the MLP.
        dropout_rate: float in [0, 1), after the attention and after each
            dense layer of the MLP.
        attention_dropout_rate: float in [0, 1), on the softmax weights.
        stochastic_depth_rate: float in [0, 1), probability that a sample
            skips a residual branch in training; what remains is divided by
            the probability to stay ("Deep Networks with Stochastic Depth",
            arXiv:1603.09382).
        layer_norm_epsilon: float, added to the variance.
        activation: of the MLP: "gelu_tanh" as in the original code, "gelu"
            for the exact form, or any activation of Keras by name.
        flash_attention: None takes a fused kernel where it can be used, True
            demands one, False forbids it.
        rematerialize: bool; True keeps only the block's input for the
            backward pass and computes the rest again: less memory, about a
            third more time.

    Input shape:
        (B, N, D).

    Output shape:
        (B, N, D).

    Raises:
        ValueError: when built on a D that num_heads does not divide.

    Example:

    >>> tokens = keras.random.normal((2, 197, 768))
    >>> TransformerBlock(num_heads=12, mlp_dim=3072)(tokens).shape
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
        flash_attention=None,
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
        self.flash_attention = flash_attention
        self.rematerialize = rematerialize
        self._make_attention()
        self._make_mlp()

    def _make_attention(self):
        policy = self.dtype_policy
        self.attention_norm = TokenNormalization(
            epsilon=self.layer_norm_epsilon, dtype=policy, name="attention_norm"
        )
        self.attention = SelfAttention(
            self.num_heads,
            attention_dropout_rate=self.attention_dropout_rate,
            flash_attention=self.flash_attention,
            dtype=policy,
            name="attention",
        )
        self.dropout = keras.layers.Dropout(
            self.dropout_rate, dtype=policy, name="dropout"
        )
        self.attention_depth = stochastic_depth(
            self.stochastic_depth_rate, dtype=policy, name="attention_depth"
        )

    def _make_mlp(self):
        policy = self.dtype_policy
        self.mlp_norm = TokenNormalization(
            epsilon=self.layer_norm_epsilon, dtype=policy, name="mlp_norm"
        )
        self.mlp = MLP(
            self.mlp_dim,
            dropout_rate=self.dropout_rate,
            activation=self.activation,
            dtype=policy,
            name="mlp",
        )
        self.mlp_depth = stochastic_depth(
            self.stochastic_depth_rate, dtype=policy, name="mlp_depth"
        )

    def build(self, input_shape):
        self.attention_norm.build(input_shape)
        self.attention.build(input_shape)
        self.mlp_norm.build(input_shape)
        self.mlp.build(input_shape)

    def call(self, x, training=None):
        forward = functools.partial(self._forward, training=training)
        if self.rematerialize and training:
            return rematerialize(self, forward, x)
        return forward(x)

    def compute_output_shape(self, input_shape):
        return input_shape

    def _forward(self, x, training):
        y = self.attention(self.attention_norm(x), training=training)
        y = self.dropout(y, training=training)
        x = x + self.attention_depth(y, training=training)
        y = self.mlp(self.mlp_norm(x), training=training)
        return x + self.mlp_depth(y, training=training)


def stochastic_depth(rate: float, **kwargs) -> keras.layers.Dropout:
    """Dropout of whole samples of a (B, N, D) tensor, rescaled.

    Args:
        rate: float in [0, 1), probability that a sample is set to zero.
        **kwargs: `dtype` and `name` of the layer.

    Returns:
        A Keras layer.
    """
    return keras.layers.Dropout(rate, noise_shape=(None, 1, 1), **kwargs)
