"""The blocks of MLP-Mixer and of the models without attention after it.

Axes: B batch, N tokens, D hidden dimension, M hidden size of an MLP.
"""

from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from keras_vit.io.checks import (
    MIXER_NORMALIZATIONS,
    MIXINGS,
    check_choice,
)
from keras_vit.layers.common import (
    ConfiguredLayer,
    TokenDense,
    TokenNormalization,
)
from keras_vit.layers.transformer_block import (
    MLP,
    GatedMLP,
    LayerScale,
    stochastic_depth,
)

__all__ = [
    "Affine",
    "MixerBlock",
    "SpatialGatingBlock",
    "SpatialGatingUnit",
    "mixer_norm",
]

# Of the unit of gMLP, whatever the epsilon of the model, as in timm.
GATE_EPSILON = 1e-5


@keras.saving.register_keras_serializable("keras_vit")
class Affine(ConfiguredLayer):
    """Multiplies each feature by a learned factor and adds a learned number.

    In ResMLP (arXiv:2105.03404, equation 1) this is where other models
    normalise: it needs no statistics.

    Input shape:
        (B, N, D), or any shape that ends with D.

    Output shape:
        That of the input.

    Example:

    >>> tokens = keras.random.normal((2, 196, 384))
    >>> Affine()(tokens).shape
    (2, 196, 384)
    """

    def __init__(self, **kwargs):
        super().__init__(**kwargs)

    def build(self, input_shape):
        shape = (input_shape[-1],)
        self.gamma = self.add_weight(
            name="gamma", shape=shape, initializer="ones"
        )
        self.beta = self.add_weight(
            name="beta", shape=shape, initializer="zeros"
        )

    def call(self, x):
        return x * ops.cast(self.gamma, x.dtype) + ops.cast(self.beta, x.dtype)


def mixer_norm(normalization: str, epsilon: float, **kwargs):
    """The layer of a `MIXER_NORMALIZATIONS`."""
    if normalization == "affine":
        return Affine(**kwargs)
    return TokenNormalization(epsilon=epsilon, **kwargs)


@keras.saving.register_keras_serializable("keras_vit")
class MixerBlock(ConfiguredLayer):
    """Mixes tokens with one MLP, then channels with another, each a residual.

    Equation 1 of "MLP-Mixer: An all-MLP Architecture for Vision"
    (arXiv:2105.01601); with mixing="linear", normalization="affine" and
    layer_scale_init equations 2 and 3 of ResMLP (arXiv:2105.03404).

    Args:
        tokens_mlp_dim: int, hidden size of the MLP across tokens; 0 with
            mixing="linear".
        channels_mlp_dim: int, hidden size of the MLP across channels.
        mixing: "mlp", or "linear" for one dense layer across tokens.
        gated_mlp: bool, whether the MLPs are `GatedMLP`s.
        normalization: "layer_norm", or "affine" for `Affine`.
        layer_scale_init: float that the factors of `LayerScale` on both
            residual branches start at; None for no `LayerScale`.
        stochastic_depth_rate: float in [0, 1), probability that a sample
            skips a residual branch in training.
        layer_norm_epsilon: float, added to the variance.
        activation: of both MLPs, see `MLP`.

    Input shape:
        (B, N, D). The number of tokens is built into the weights.

    Output shape:
        (B, N, D).

    Example:

    >>> tokens = keras.random.normal((2, 196, 768))
    >>> MixerBlock(tokens_mlp_dim=384, channels_mlp_dim=3072)(tokens).shape
    (2, 196, 768)
    """

    def __init__(
        self,
        tokens_mlp_dim: int,
        channels_mlp_dim: int,
        *,
        mixing: str = "mlp",
        gated_mlp: bool = False,
        normalization: str = "layer_norm",
        layer_scale_init: float | None = None,
        stochastic_depth_rate: float = 0.0,
        layer_norm_epsilon: float = 1e-6,
        activation: str | Callable | None = "gelu_tanh",
        **kwargs,
    ):
        check_choice("mixing", mixing, MIXINGS)
        check_choice("normalization", normalization, MIXER_NORMALIZATIONS)
        super().__init__(**kwargs)
        self.tokens_mlp_dim = tokens_mlp_dim
        self.channels_mlp_dim = channels_mlp_dim
        self.mixing = mixing
        self.gated_mlp = gated_mlp
        self.normalization = normalization
        self.layer_scale_init = layer_scale_init
        self.stochastic_depth_rate = stochastic_depth_rate
        self.layer_norm_epsilon = layer_norm_epsilon
        self.activation = activation
        self.token_norm, self.token_mixing, self.token_depth = self._branch(
            "token", tokens_mlp_dim
        )
        self.channel_norm, self.channel_mixing, self.channel_depth = (
            self._branch("channel", channels_mlp_dim)
        )
        self.token_scale = self._scale("token_scale")
        self.channel_scale = self._scale("channel_scale")

    def build(self, input_shape):
        batch, tokens, dim = input_shape
        self.token_norm.build(input_shape)
        if self.mixing == "linear":
            self.token_mixing = TokenDense(
                tokens,
                dtype=self.dtype_of("token_mixing"),
                name="token_mixing",
            )
        self.token_mixing.build((batch, dim, tokens))
        self.channel_norm.build(input_shape)
        self.channel_mixing.build(input_shape)
        if self.layer_scale_init is not None:
            self.token_scale.build(input_shape)
            self.channel_scale.build(input_shape)

    def call(self, x, training=None):
        y = ops.swapaxes(self.token_norm(x), 1, 2)  # (B, D, N)
        y = ops.swapaxes(self.token_mixing(y), 1, 2)  # (B, N, D)
        x = x + self.token_depth(self.token_scale(y), training=training)
        y = self.channel_mixing(self.channel_norm(x))
        return x + self.channel_depth(self.channel_scale(y), training=training)

    def _branch(self, name, mlp_dim):
        policy = self.dtype_policy
        norm = mixer_norm(
            self.normalization,
            self.layer_norm_epsilon,
            dtype=policy,
            name=f"{name}_norm",
        )
        mixing: Any = None  # A dense layer that the number of tokens makes.
        if name == "channel" or self.mixing == "mlp":
            mixing = (GatedMLP if self.gated_mlp else MLP)(
                mlp_dim,
                activation=self.activation,
                dtype=policy,
                name=f"{name}_mixing",
            )
        depth = stochastic_depth(
            self.stochastic_depth_rate, dtype=policy, name=f"{name}_depth"
        )
        return norm, mixing, depth

    def _scale(self, name):
        if self.layer_scale_init is None:
            return keras.activations.linear  # Returns its input.
        return LayerScale(
            self.layer_scale_init, dtype=self.dtype_policy, name=name
        )


@keras.saving.register_keras_serializable("keras_vit")
class SpatialGatingUnit(ConfiguredLayer):
    """Multiplies one half of the features by the other, mixed across tokens.

    Equation 3 of "Pay Attention to MLPs" (arXiv:2105.08050): the second half
    is normalised, and each of its features passes a dense layer across the
    tokens, which starts close to ones.

    Input shape:
        (B, N, M), M even. The number of tokens is built into the weights.

    Output shape:
        (B, N, M / 2).

    Example:

    >>> hidden = keras.random.normal((2, 196, 1536))
    >>> SpatialGatingUnit()(hidden).shape
    (2, 196, 768)
    """

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.norm = TokenNormalization(
            epsilon=GATE_EPSILON, dtype=self.dtype_policy, name="norm"
        )

    def build(self, input_shape):
        batch, tokens, dim = input_shape
        self.norm.build((batch, tokens, dim // 2))
        self.dense = TokenDense(
            tokens,
            kernel_initializer=keras.initializers.RandomNormal(stddev=1e-6),
            bias_initializer="ones",
            dtype=self.dtype_of("dense"),
            name="dense",
        )
        self.dense.build((batch, dim // 2, tokens))

    def call(self, x):
        values, gates = ops.split(x, 2, axis=-1)  # (B, N, M / 2) each
        gates = ops.swapaxes(self.norm(gates), 1, 2)  # (B, M / 2, N)
        return values * ops.swapaxes(self.dense(gates), 1, 2)

    def compute_output_shape(self, input_shape):
        return (*input_shape[:-1], input_shape[-1] // 2)


@keras.saving.register_keras_serializable("keras_vit")
class SpatialGatingBlock(ConfiguredLayer):
    """An MLP that mixes tokens by a gate inside, a residual.

    The block of gMLP, figure 1 of "Pay Attention to MLPs" (arXiv:2105.08050).

    Args:
        channels_mlp_dim: int, M, size of what the first dense layer returns;
            even. Half of it is the gate.
        stochastic_depth_rate: float in [0, 1), probability that a sample
            skips the residual branch in training.
        layer_norm_epsilon: float, added to the variance before the MLP; in
            the unit it is 1e-5.
        activation: of the first dense layer, see `MLP`.

    Input shape:
        (B, N, D). The number of tokens is built into the weights.

    Output shape:
        (B, N, D).

    Example:

    >>> tokens = keras.random.normal((2, 196, 256))
    >>> SpatialGatingBlock(channels_mlp_dim=1536)(tokens).shape
    (2, 196, 256)
    """

    def __init__(
        self,
        channels_mlp_dim: int,
        *,
        stochastic_depth_rate: float = 0.0,
        layer_norm_epsilon: float = 1e-6,
        activation: str | Callable | None = "gelu_tanh",
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.channels_mlp_dim = channels_mlp_dim
        self.stochastic_depth_rate = stochastic_depth_rate
        self.layer_norm_epsilon = layer_norm_epsilon
        self.activation = activation
        policy = self.dtype_policy
        self.channel_norm = TokenNormalization(
            epsilon=layer_norm_epsilon, dtype=policy, name="channel_norm"
        )
        self.channel_mixing = SpatialGatingMLP(
            channels_mlp_dim,
            activation=activation,
            dtype=policy,
            name="channel_mixing",
        )
        self.channel_depth = stochastic_depth(
            stochastic_depth_rate, dtype=policy, name="channel_depth"
        )

    def build(self, input_shape):
        self.channel_norm.build(input_shape)
        self.channel_mixing.build(input_shape)

    def call(self, x, training=None):
        y = self.channel_mixing(self.channel_norm(x))
        return x + self.channel_depth(y, training=training)


@keras.saving.register_keras_serializable("keras_vit")
class SpatialGatingMLP(MLP):
    """An MLP with a `SpatialGatingUnit` between its dense layers.

    Args:
        mlp_dim: int, M, size of what the first dense layer returns; this and
            all others as in `MLP`.

    Input shape:
        (B, N, D). The number of tokens is built into the weights.

    Output shape:
        (B, N, D).
    """

    def build(self, input_shape):
        dim = input_shape[-1]
        hidden_shape = (*input_shape[:-1], self.mlp_dim)
        self.gate = SpatialGatingUnit(dtype=self.dtype_policy, name="gate")
        self.dense = self._dense(self.mlp_dim, "dense", self._activate)
        self.dense_1 = self._dense(dim, "dense_1")
        self.dense.build(input_shape)
        self.gate.build(hidden_shape)
        self.dense_1.build(self.gate.compute_output_shape(hidden_shape))

    def call(self, x, training=None):
        x = self.dense(x)  # (B, N, M)
        x = self.gate(self.dropout(x, training=training))  # (B, N, M / 2)
        return self.dropout_1(self.dense_1(x), training=training)
