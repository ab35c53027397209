"""The MLP of a transformer block.

Axes: B batch, N tokens, D hidden dimension, M MLP dimension.
"""

import functools

import keras
from keras import ops

from keras_vit.layers.base import ConfiguredLayer
from keras_vit.layers.token_dense import TokenDense

__all__ = ["MLP"]

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
