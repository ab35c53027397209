"""The block of the Vision Transformer, and its parts.

Axes: B batch, N tokens, D hidden dimension.
"""

import functools
from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from keras_vit.io.checks import NORM_PLACEMENTS, check_choice
from keras_vit.layers.attention import SelfAttention, output_spec
from keras_vit.layers.common import (
    NORMALIZATIONS,
    ConfiguredLayer,
    TokenDense,
    first_tokens,
)
from keras_vit.runtime.platforms import WIDE_MLP, optimization_barrier
from keras_vit.runtime.workarounds import rematerialize

__all__ = [
    "GatedMLP",
    "LayerScale",
    "MLP",
    "ParallelBlock",
    "TransformerBlock",
]


@keras.saving.register_keras_serializable("keras_vit")
def gelu_tanh(x):
    """GELU with tanh for the error function, as the originals have it."""
    return ops.gelu(x, approximate=True)


@keras.saving.register_keras_serializable("keras_vit")
def quick_gelu(x):
    """GELU by a sigmoid, as the first models of CLIP (arXiv:2103.00020)."""
    return x * ops.sigmoid(1.702 * x)


# "gelu" is the exact one, of Hugging Face and timm.
GELUS: dict[Any, Callable] = {
    "gelu_tanh": gelu_tanh,
    "gelu": keras.activations.gelu,
    "quick_gelu": quick_gelu,
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
            form, "quick_gelu" as in CLIP, or any activation of Keras by name.
        projection_bias: bool, whether the dense layers have biases.
        output_bias: bool, whether the last of them has, if so.
        mlp_inner_norm: bool, whether the hidden layer is normalised, as in
            EVA-02 (arXiv:2303.11331) and BEiT-3 (arXiv:2208.10442).
        normalization: "layer_norm" or "rms_norm", for that.
        layer_norm_epsilon: float, added to the variance by that.

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
        self,
        mlp_dim: int,
        *,
        dropout_rate: float = 0.0,
        activation: str | Callable | None = "gelu_tanh",
        projection_bias: bool = True,
        output_bias: bool = True,
        mlp_inner_norm: bool = False,
        normalization: str = "layer_norm",
        layer_norm_epsilon: float = 1e-6,
        **kwargs,
    ):
        check_choice("normalization", normalization, NORMALIZATIONS)
        super().__init__(**kwargs)
        self.mlp_dim = mlp_dim
        self.dropout_rate = dropout_rate
        self.activation = activation
        self.projection_bias = projection_bias
        self.output_bias = output_bias
        self.mlp_inner_norm = mlp_inner_norm
        self.normalization = normalization
        self.layer_norm_epsilon = layer_norm_epsilon
        self.inner_norm = keras.activations.linear  # Returns its input.
        if mlp_inner_norm:
            self.inner_norm = NORMALIZATIONS[normalization](
                epsilon=layer_norm_epsilon,
                dtype=self.dtype_policy,
                name="inner_norm",
            )
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
        self._build(
            input_shape, self._dense(self.mlp_dim, "dense", self._activate)
        )

    def call(self, x, training=None):
        return self._projected(self.dense(x), training)  # (B, N, D)

    def _projected(self, x, training):
        """From the hidden layer (B, N, M)."""
        x = self.inner_norm(self.dropout(x, training=training))
        if not training and self.dense_1.units > WIDE_MLP:
            x = optimization_barrier(x)
        x = self.dense_1(x)  # (B, N, D)
        return self.dropout_1(x, training=training)

    def _build(self, input_shape, first):
        hidden_shape = (*input_shape[:-1], self.mlp_dim)
        self.dense = first
        self.dense_1 = self._dense(
            input_shape[-1], "dense_1", use_bias=self.output_bias
        )
        self.dense.build(input_shape)
        self.dense_1.build(hidden_shape)
        if self.mlp_inner_norm:
            self.inner_norm.build(hidden_shape)

    def _dense(self, units, name, activation=None, use_bias=True):
        return TokenDense(
            units,
            activation,
            use_bias=self.projection_bias and use_bias,
            kernel_initializer="glorot_uniform",
            bias_initializer=keras.initializers.RandomNormal(stddev=1e-6),
            dtype=self.dtype_of(name),
            name=name,
        )


@keras.saving.register_keras_serializable("keras_vit")
class GatedMLP(MLP):
    """An MLP whose hidden layer is multiplied by a gate.

    With activation="silu" the SwiGLU of "GLU Variants Improve Transformer"
    (arXiv:2002.05202). One dense layer makes gates and values, the M gates
    first.

    Args:
        mlp_dim: int, size M of the hidden layer; this and all others as in
            `MLP`. The activation is that of the gates.

    Input shape:
        (B, N, D), or any shape that ends with D.

    Output shape:
        That of the input.

    Example:

    >>> tokens = keras.random.normal((2, 197, 768))
    >>> GatedMLP(mlp_dim=2048, activation="silu")(tokens).shape
    (2, 197, 768)
    """

    def build(self, input_shape):
        self._build(input_shape, self._dense(2 * self.mlp_dim, "dense"))

    def call(self, x, training=None):
        gates, values = ops.split(self.dense(x), 2, axis=-1)  # (B, N, M) each
        return self._projected(self._activate(gates) * values, training)


@keras.saving.register_keras_serializable("keras_vit")
class LayerScale(ConfiguredLayer):
    """Multiplies each feature by a learned factor.

    "Going deeper with Image Transformers" (arXiv:2103.17239) scales each
    residual branch by it; it starts close to zero, so that each block starts
    close to the identity.

    Args:
        initial_value: float that all factors start at.

    Input shape:
        (B, N, D), or any shape that ends with D.

    Output shape:
        That of the input.

    Example:

    >>> tokens = keras.random.normal((2, 197, 768))
    >>> LayerScale(1e-5)(tokens).shape
    (2, 197, 768)
    """

    def __init__(self, initial_value: float = 1e-5, **kwargs):
        super().__init__(**kwargs)
        self.initial_value = initial_value

    def build(self, input_shape):
        self.gamma = self.add_weight(
            name="gamma",
            shape=(input_shape[-1],),
            initializer=keras.initializers.Constant(self.initial_value),
        )

    def call(self, x):
        return x * ops.cast(self.gamma, x.dtype)


@keras.saving.register_keras_serializable("keras_vit")
class TransformerBlock(ConfiguredLayer):
    """Encoder block: self-attention, then an MLP, each a residual.

    Equations 2 and 3 of "An Image Is Worth 16x16 Words" (arXiv:2010.11929).

    Args:
        num_heads: int, attention heads; it divides D.
        mlp_dim: int, hidden size of the MLP.
        attention: layer in place of `SelfAttention`, with its own options, or
            a function that makes it.
        mlp: likewise, in place of `MLP`.
        dropout_rate: float in [0, 1), after the attention and after each
            dense layer of the MLP.
        attention_dropout_rate: float in [0, 1), on the softmax weights.
        stochastic_depth_rate: float in [0, 1), probability that a sample
            skips a residual branch in training; what remains is divided by
            the probability to stay ("Deep Networks with Stochastic Depth",
            arXiv:1603.09382).
        layer_norm_epsilon: float, added to the variance.
        layer_scale_init: float that the factors of `LayerScale` on both
            residual branches start at; None for no `LayerScale`.
        mlp_layer_scale: bool, whether the branch of the MLP has them too.
        qkv_bias: bool, whether query, key and value have biases.
        normalization: "layer_norm", or "rms_norm" for `TokenRMSNormalization`.
        norm_placement: "before" normalises what attention and MLP read,
            "after" what they return.
        activation: of the MLP: "gelu_tanh" as in the original code, "gelu"
            for the exact form, "quick_gelu" as in CLIP, or any activation of
            Keras by name.
        flash_attention: None takes a fused kernel where it can be used, True
            demands one, False forbids it.
        rematerialize: bool; True keeps only the block's input for the
            backward pass and computes the rest again: less memory, about a
            third more time.

    Input shape:
        (B, N, D), and what else the attention takes, such as the table of
        `keras_vit.variants.RelativeSelfAttention`.

    Output shape:
        (B, N, D); with the argument `queries`, Q, of the call (B, Q, D): the
        first Q tokens, which read all.

    Raises:
        ValueError: when built on a D that num_heads does not divide.

    Example:

    >>> tokens = keras.random.normal((2, 197, 768))
    >>> block = TransformerBlock(num_heads=12, mlp_dim=3072)
    >>> block(tokens).shape
    (2, 197, 768)
    >>> block(tokens, queries=1).shape
    (2, 1, 768)
    """

    attention_class = SelfAttention
    mlp_options: dict = {}
    left_out: tuple = ()

    def __init__(
        self,
        num_heads: int,
        mlp_dim: int,
        *,
        attention: Callable | None = None,
        mlp: Callable | None = None,
        dropout_rate: float = 0.0,
        attention_dropout_rate: float = 0.0,
        stochastic_depth_rate: float = 0.0,
        layer_norm_epsilon: float = 1e-6,
        layer_scale_init: float | None = None,
        mlp_layer_scale: bool = True,
        qkv_bias: bool = True,
        normalization: str = "layer_norm",
        norm_placement: str = "before",
        activation: str | Callable | None = "gelu_tanh",
        flash_attention: bool | None = None,
        rematerialize: bool = False,
        **kwargs,
    ):
        super().__init__(**kwargs)
        check_choice("normalization", normalization, NORMALIZATIONS)
        check_choice("norm_placement", norm_placement, NORM_PLACEMENTS)
        self.num_heads = num_heads
        self.mlp_dim = mlp_dim
        self.dropout_rate = dropout_rate
        self.attention_dropout_rate = attention_dropout_rate
        self.stochastic_depth_rate = stochastic_depth_rate
        self.layer_norm_epsilon = layer_norm_epsilon
        self.layer_scale_init = layer_scale_init
        self.mlp_layer_scale = mlp_layer_scale
        self.qkv_bias = qkv_bias
        self.normalization = normalization
        self.norm_placement = norm_placement
        self.activation = activation
        self.flash_attention = flash_attention
        self.rematerialize = rematerialize
        if not mlp_layer_scale:
            self.left_out = (*self.left_out, "mlp_scale")
        self._handed = [
            name
            for name, part in {"attention": attention, "mlp": mlp}.items()
            if part is not None
        ]
        self.attention_norm, self.attention_end = self._norms("attention_norm")
        self.attention = made(attention) or self.attention_class.from_fields(
            vars(self), dtype=self.dtype_policy, name="attention"
        )
        self.dropout = keras.layers.Dropout(
            dropout_rate, dtype=self.dtype_policy, name="dropout"
        )
        self.attention_scale = self._scale("attention_scale")
        self.attention_depth = self._depth("attention_depth")
        self.mlp_norm, self.mlp_end = self._norms("mlp_norm")
        self.mlp = made(mlp) or MLP.from_fields(
            vars(self), **self.mlp_options, dtype=self.dtype_policy, name="mlp"
        )
        self.mlp_scale = self._scale("mlp_scale")
        self.mlp_depth = self._depth("mlp_depth")

    def build(self, x_shape, context_shape=None):
        placed = self.norm_placement == "before"
        (self.attention_norm if placed else self.attention_end).build(x_shape)
        self.attention.build(x_shape)
        (self.mlp_norm if placed else self.mlp_end).build(x_shape)
        self.mlp.build(x_shape)
        if self.layer_scale_init is not None:
            self.attention_scale.build(x_shape)
            if "mlp_scale" not in self.left_out:
                self.mlp_scale.build(x_shape)

    def call(self, x, context=None, training=None, queries=None):
        first = query_kwargs(queries)
        forward = functools.partial(self._forward, training=training, **first)
        inputs = (x,) if context is None else (x, context)
        if self.rematerialize and training:
            return rematerialize(self, forward, inputs)
        return forward(inputs)

    def compute_output_spec(self, x, context=None, training=None, queries=None):
        return output_spec(x, queries, self.compute_dtype)

    def get_config(self):
        config = super().get_config()
        own = {"attention", "mlp"} - set(self._handed)
        return config | dict.fromkeys(own)

    def _forward(self, inputs, training, **first):
        x, *context = inputs
        normalized = self.attention_norm(x)  # (B, N, D)
        return self.after_norm(
            x, normalized, *context, training=training, **first
        )

    def after_norm(self, x, normalized, *context, training=None, queries=None):
        """Computes the block from its input and that input normalised."""
        x = first_tokens(x, queries)  # (B, Q, D)
        first = query_kwargs(queries)
        y = self.attention(normalized, *context, training=training, **first)
        y = self.attention_end(self.dropout(y, training=training))
        x = x + self.attention_depth(self.attention_scale(y), training=training)
        y = self.mlp_end(self.mlp(self.mlp_norm(x), training=training))
        return x + self.mlp_depth(self.mlp_scale(y), training=training)

    def _norms(self, name):
        """The norm before a layer and that after it, one of which is none."""
        none = keras.activations.linear  # Returns its input.
        if name in self.left_out:
            return none, none
        norm = NORMALIZATIONS[self.normalization](
            epsilon=self.layer_norm_epsilon, dtype=self.dtype_policy, name=name
        )
        pair = (norm, none)
        return pair if self.norm_placement == "before" else pair[::-1]

    def _scale(self, name):
        if self.layer_scale_init is None or name in self.left_out:
            return keras.activations.linear  # Returns its input.
        return LayerScale(
            self.layer_scale_init, dtype=self.dtype_policy, name=name
        )

    def _depth(self, name):
        return stochastic_depth(
            self.stochastic_depth_rate, dtype=self.dtype_policy, name=name
        )


@keras.saving.register_keras_serializable("keras_vit")
class ParallelBlock(TransformerBlock):
    """Encoder block whose attention and MLP stand beside each other.

    "Scaling Vision Transformers to 22 Billion Parameters" (arXiv:2302.05442,
    section 2.1): both read the same normalised tokens, and their sum is one
    residual. The last projections of both are added, so that one has a bias.

    Args:
        num_heads: int, attention heads; it divides D.
        mlp_dim: int, hidden size of the MLP; this and all others as in
            `TransformerBlock`, but that the norm is before both.

    Input shape:
        (B, N, D).

    Output shape:
        (B, N, D).

    Raises:
        ValueError: for norm_placement="after", or when built on a D that
            num_heads does not divide.

    Example:

    >>> tokens = keras.random.normal((2, 197, 768))
    >>> ParallelBlock(num_heads=12, mlp_dim=3072)(tokens).shape
    (2, 197, 768)
    """

    mlp_options = {"output_bias": False}
    left_out = ("mlp_norm", "mlp_scale")

    def __init__(
        self,
        num_heads: int,
        mlp_dim: int,
        *,
        norm_placement: str = "before",
        **kwargs,
    ):
        if norm_placement != "before":
            raise ValueError(
                "Attention and MLP of a parallel block have one normalisation "
                f"before both. Received: norm_placement={norm_placement!r}. "
                'Use "before".'
            )
        super().__init__(num_heads, mlp_dim, **kwargs)

    def build(self, x_shape, context_shape=None):
        self.attention_norm.build(x_shape)
        self.attention.build(x_shape)
        self.mlp.build(x_shape)
        if self.layer_scale_init is not None:
            self.attention_scale.build(x_shape)

    def after_norm(self, x, normalized, *context, training=None, queries=None):
        """Computes the block from its input and that input normalised."""
        first = query_kwargs(queries)
        y = self.attention(normalized, *context, training=training, **first)
        y = self.dropout(y, training=training)
        normalized = first_tokens(normalized, queries)  # (B, Q, D)
        y = y + self.mlp(normalized, training=training)
        return first_tokens(x, queries) + self.attention_depth(
            self.attention_scale(y), training=training
        )


def made(part):
    """Return a layer, which the function makes that may stand for it."""
    if part is None or isinstance(part, keras.Layer):
        return part
    return part()


def query_kwargs(queries: int | None) -> dict:
    """Return the argument of an attention, which not all have."""
    return {} if queries is None else {"queries": queries}


def stochastic_depth(rate: float, **kwargs) -> keras.layers.Dropout:
    """Dropout of whole samples of a (B, N, D) tensor, rescaled."""
    return keras.layers.Dropout(rate, noise_shape=(None, 1, 1), **kwargs)
