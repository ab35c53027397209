"""From a sequence of tokens to one vector of features.

Axes: B batch, T tokens, H heads, d head dimension, D = H * d hidden dimension.
"""

from collections.abc import Callable

import keras
from keras import ops

from keras_vit.io.checks import check_choice, check_heads
from keras_vit.layers.attention import projection_initializer
from keras_vit.layers.common import (
    ConfiguredLayer,
    TokenDense,
    merge_heads,
    softmax_weights,
)
from keras_vit.layers.transformer_block import MLP, TransformerBlock

__all__ = [
    "AttentionPooling",
    "ClassAttention",
    "ClassAttentionBlock",
    "TokenPooling",
]

POOLINGS = {
    "token": lambda x, prefix, valid: x[:, 0],
    "prefix": lambda x, prefix, valid: ops.reshape(
        x[:, :prefix], (-1, prefix * x.shape[-1])
    ),
    "prefix_mean": lambda x, prefix, valid: ops.mean(x[:, :prefix], axis=1),
    "mean": lambda x, prefix, valid: mean_of(x, prefix, valid),
    "max": lambda x, prefix, valid: max_of(x, prefix, valid),
    "token_and_mean": lambda x, prefix, valid: ops.concatenate(
        [x[:, 0], mean_of(x, prefix, valid)], axis=-1
    ),
}


def mean_of(x, prefix, valid):
    """The mean of the tokens behind the prefix that are valid."""
    x = x[:, prefix:]
    if valid is None:
        return ops.mean(x, axis=1)
    share = ops.cast(valid[:, prefix:], x.dtype)[..., None]  # (B, N, 1)
    return ops.sum(x * share, axis=1) / ops.sum(share, axis=1)


def max_of(x, prefix, valid):
    """The maximum of the tokens behind the prefix that are valid."""
    x = x[:, prefix:]
    if valid is not None:
        x = ops.where(valid[:, prefix:, None], x, float("-inf"))
    return ops.max(x, axis=1)


@keras.saving.register_keras_serializable("keras_vit")
class TokenPooling(ConfiguredLayer):
    """Takes the class token, or the mean or maximum of the patch tokens.

    Equation 4 of "An Image Is Worth 16x16 Words" (arXiv:2010.11929) for the
    class token, appendix D.3 for the mean.

    Args:
        pooling: "token", "mean", "max", "prefix" for all prefix tokens one
            after the other (a head on them is the average of DeiT's two
            heads), "prefix_mean" for their mean (DeiT's features in timm), or
            "token_and_mean" for the class token and the mean one after the
            other (the linear head of DINOv2, arXiv:2304.07193).
        num_prefix_tokens: int, tokens in front of the patches (the class
            token), left out of mean and maximum.

    Input shape:
        (B, T, D), and None or a bool tensor (B, T) that is False for tokens
        that mean and maximum leave out: padding.

    Output shape:
        (B, D), (B, P * D) with "prefix", or (B, 2 * D) with "token_and_mean".

    Raises:
        ValueError: for an unknown pooling.

    Example:

    >>> tokens = keras.random.normal((2, 197, 768))
    >>> TokenPooling("mean", num_prefix_tokens=1)(tokens).shape
    (2, 768)
    """

    def __init__(
        self, pooling: str = "token", *, num_prefix_tokens: int = 0, **kwargs
    ):
        super().__init__(**kwargs)
        check_choice("pooling", pooling, POOLINGS)
        self.pooling = pooling
        self.num_prefix_tokens = num_prefix_tokens

    def call(self, x, valid=None):
        prefix = self.num_prefix_tokens
        return POOLINGS[self.pooling](x, prefix, valid)  # (B, D)

    def compute_output_shape(self, x_shape, valid_shape=None):
        parts = {"prefix": self.num_prefix_tokens, "token_and_mean": 2}
        vectors = parts.get(self.pooling, 1)
        return (x_shape[0], vectors * x_shape[-1])


@keras.saving.register_keras_serializable("keras_vit")
class AttentionPooling(ConfiguredLayer):
    """Pools tokens by a learned query that attends to all of them.

    The MAP head of "Scaling Vision Transformers" (arXiv:2106.04560) as
    big_vision computes it: the query reads the tokens by multi-head
    attention; an MLP on the layer-normalised result is added to it.

    Args:
        num_heads: int, H; it divides D.
        mlp_dim: int, hidden size of the MLP; None for neither norm nor MLP.
        project_query: bool; False takes the learned query as it is, as AIMv2
            does (arXiv:2411.14402).
        key_value_bias: bool, whether key and value have biases.
        layer_norm_epsilon: float, added to the variance.
        activation: of the MLP, see `MLP`.
        num_prefix_tokens: int, tokens in front of the patches, which are not
            read (as in timm).

    Input shape:
        (B, T, D), and None or a bool tensor (B, T) that is False for tokens
        that are not read: padding.

    Output shape:
        (B, D).

    Raises:
        ValueError: when built on a D that num_heads does not divide.

    Example:

    >>> tokens = keras.random.normal((2, 196, 768))
    >>> AttentionPooling(num_heads=12, mlp_dim=3072)(tokens).shape
    (2, 768)
    """

    def __init__(
        self,
        num_heads: int,
        mlp_dim: int | None,
        *,
        project_query: bool = True,
        key_value_bias: bool = True,
        layer_norm_epsilon: float = 1e-6,
        activation: str | Callable | None = "gelu_tanh",
        num_prefix_tokens: int = 0,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.num_heads = num_heads
        self.mlp_dim = mlp_dim
        self.project_query = project_query
        self.key_value_bias = key_value_bias
        self.layer_norm_epsilon = layer_norm_epsilon
        self.activation = activation
        self.num_prefix_tokens = num_prefix_tokens
        self.query = keras.activations.linear  # Returns its input.
        if mlp_dim is not None:
            self.norm = keras.layers.LayerNormalization(
                epsilon=layer_norm_epsilon, dtype=self.dtype_policy, name="norm"
            )
            self.mlp = MLP(
                mlp_dim,
                activation=activation,
                dtype=self.dtype_policy,
                name="mlp",
            )

    def build(self, x_shape, valid_shape=None):
        dim = x_shape[-1]
        check_heads(dim, self.num_heads)
        limit = (6 / (1 + dim)) ** 0.5  # Xavier uniform of a (1, D) matrix
        self.probe = self.add_weight(
            name="probe",
            shape=(1, 1, dim),
            initializer=keras.initializers.RandomUniform(-limit, limit),
        )
        if self.project_query:
            self.query = self._projection(dim, "query")
            self.query.build(x_shape)
        self.key_value = self._projection(
            2 * dim, "key_value", self.key_value_bias
        )
        self.out = self._projection(dim, "out")
        for layer in (self.key_value, self.out):
            layer.build(x_shape)
        if self.mlp_dim is not None:
            self.norm.build((x_shape[0], 1, dim))
            self.mlp.build((x_shape[0], 1, dim))

    def call(self, x, valid=None):
        query, key, value = self._project(x)
        if valid is not None:
            valid = valid[:, self.num_prefix_tokens :]
        weights = softmax_weights(query, key, valid)  # (B, H, 1, T)
        value = ops.cast(value, weights.dtype)  # Keras narrows float64.
        y = ops.einsum("bhnm,bmhd->bnhd", weights, value)  # (B, 1, H, d)
        y = self.out(merge_heads(y))  # (B, 1, D)
        if self.mlp_dim is not None:
            y = y + self.mlp(self.norm(y))
        return y[:, 0]  # (B, D)

    def attention_weights(self, x):
        """How much the learned query takes from each token.

        Args:
            x: tokens of shape (B, T, D).

        Returns:
            Tensor of shape (B, H, 1, T); the last axis sums to 1, and prefix
            tokens have 0.
        """
        query, key, _ = self._project(x)
        weights = softmax_weights(query, key)
        return ops.pad(weights, [(0, 0)] * 3 + [(self.num_prefix_tokens, 0)])

    def compute_output_shape(self, x_shape, valid_shape=None):
        return (x_shape[0], x_shape[-1])

    def _project(self, x):
        if self.num_prefix_tokens:
            x = x[:, self.num_prefix_tokens :]
        batch, _, dim = ops.shape(x)
        probe = ops.broadcast_to(self.probe, (batch, 1, dim))  # (B, 1, D)
        return query_key_value(self, probe, x)

    def _projection(self, units, name, use_bias=True):
        dim = self.probe.shape[-1]
        return keras.layers.Dense(
            units,
            use_bias=use_bias,
            kernel_initializer=projection_initializer(dim),
            bias_initializer="zeros",
            dtype=self.dtype_of(name),
            name=name,
        )


def query_key_value(layer, token, x):
    """The query of one token (B, 1, D), keys and values of all (B, T, D).

    Returns:
        (query of shape (B, 1, H, d), key and value of shape (B, T, H, d)).
    """
    batch, tokens, dim = ops.shape(x)
    heads, head_dim = layer.num_heads, x.shape[-1] // layer.num_heads
    query = ops.reshape(
        layer.query(token), (batch, 1, heads, head_dim)
    )  # (B, 1, H, d)
    pair = ops.reshape(
        layer.key_value(x), (batch, tokens, heads, 2, head_dim)
    )  # (B, T, H, 2, d)
    return query, pair[..., 0, :], pair[..., 1, :]


@keras.saving.register_keras_serializable("keras_vit")
class ClassAttention(ConfiguredLayer):
    """Attention whose only query is the class token.

    Equations 5 to 7 of "Going deeper with Image Transformers"
    (arXiv:2103.17239): the class token reads itself and all patches, which
    stay as they are.

    Args:
        num_heads: int, H; it divides D.
        attention_dropout_rate: float in [0, 1), dropout on the softmax
            weights.
        qkv_bias: bool, whether query, key and value have biases.
        projection_bias: bool, whether the last projection has a bias.

    Input shape:
        (B, T, D), the class token first.

    Output shape:
        (B, 1, D).

    Raises:
        ValueError: when built on a D that num_heads does not divide.

    Example:

    >>> tokens = keras.random.normal((2, 197, 768))
    >>> ClassAttention(num_heads=12)(tokens).shape
    (2, 1, 768)
    """

    def __init__(
        self,
        num_heads: int,
        *,
        attention_dropout_rate: float = 0.0,
        qkv_bias: bool = True,
        projection_bias: bool = True,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.num_heads = num_heads
        self.attention_dropout_rate = attention_dropout_rate
        self.qkv_bias = qkv_bias
        self.projection_bias = projection_bias
        self.dropout = keras.layers.Dropout(
            attention_dropout_rate, dtype=self.dtype_policy, name="dropout"
        )

    def build(self, input_shape):
        dim = input_shape[-1]
        check_heads(dim, self.num_heads)
        self.query = self._projection(dim, "query", self.qkv_bias)
        self.key_value = self._projection(2 * dim, "key_value", self.qkv_bias)
        self.out = self._projection(dim, "out", self.projection_bias)
        for layer in (self.query, self.key_value, self.out):
            layer.build((*input_shape[:-1], dim))

    def call(self, x, training=None):
        query, key, value = query_key_value(self, x[:, :1], x)
        weights = softmax_weights(query, key)  # (B, H, 1, T)
        weights = self.dropout(weights, training=training)
        value = ops.cast(value, weights.dtype)  # Keras narrows float64.
        y = ops.einsum("bhnm,bmhd->bnhd", weights, value)  # (B, 1, H, d)
        return self.out(merge_heads(y))  # (B, 1, D)

    def attention_weights(self, x):
        """How much the class token takes from each token.

        Args:
            x: tokens of shape (B, T, D), the class token first.

        Returns:
            Tensor of shape (B, H, 1, T); the last axis sums to 1.
        """
        query, key, _ = query_key_value(self, x[:, :1], x)
        return softmax_weights(query, key)

    def compute_output_shape(self, input_shape):
        return (input_shape[0], 1, input_shape[-1])

    def _projection(self, units, name, use_bias):
        # As the fused projection of `SelfAttention` is initialised.
        dim = self.num_heads * (units // self.num_heads)
        return TokenDense(
            units,
            use_bias=use_bias,
            kernel_initializer=projection_initializer(dim),
            bias_initializer="zeros",
            dtype=self.dtype_of(name),
            name=name,
        )


@keras.saving.register_keras_serializable("keras_vit")
class ClassAttentionBlock(TransformerBlock):
    """Block that changes the class token alone, which reads all tokens.

    A layer of the class-attention stage of "Going deeper with Image
    Transformers" (arXiv:2103.17239, section 3.2): `ClassAttention`, then an
    MLP on the class token.

    Args:
        num_heads: int, attention heads; it divides D.
        mlp_dim: int, hidden size of the MLP.
        attention: layer in place of `ClassAttention`, with its own options;
            this and all others as in `TransformerBlock`.

    Input shape:
        (B, T, D), the class token first.

    Output shape:
        (B, T, D); all but the first token as they were.

    Raises:
        ValueError: when built on a D that num_heads does not divide.

    Example:

    >>> tokens = keras.random.normal((2, 197, 768))
    >>> ClassAttentionBlock(num_heads=12, mlp_dim=3072)(tokens).shape
    (2, 197, 768)
    """

    attention_class = ClassAttention

    def _forward(self, inputs, training):
        (x,) = inputs
        normalized = self.attention_norm(x)  # (B, T, D)
        token = self.after_norm(
            x[:, :1], normalized, training=training
        )  # (B, 1, D)
        return ops.concatenate([token, x[:, 1:]], axis=1)  # (B, T, D)
