"""The block of MLP-Mixer.

Axes: B batch, N tokens, D hidden dimension.
"""

import keras
from keras import ops

from keras_vit.layers.configured_layer import ConfiguredLayer
from keras_vit.layers.kernels import TokenNormalization
from keras_vit.layers.transformer_block import MLP, stochastic_depth

__all__ = ["MixerBlock"]


@keras.saving.register_keras_serializable("keras_vit")
class MixerBlock(ConfiguredLayer):
    """Mixes tokens with one MLP, then channels with another, each a residual.

    Equation 1 of "MLP-Mixer: An all-MLP Architecture for Vision"
    (arXiv:2105.01601).

    Args:
        tokens_mlp_dim: int, hidden size of the MLP across tokens.
        channels_mlp_dim: int, hidden size of the MLP across channels.
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
        tokens_mlp_dim,
        channels_mlp_dim,
        *,
        stochastic_depth_rate=0.0,
        layer_norm_epsilon=1e-6,
        activation="gelu_tanh",
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.tokens_mlp_dim = tokens_mlp_dim
        self.channels_mlp_dim = channels_mlp_dim
        self.stochastic_depth_rate = stochastic_depth_rate
        self.layer_norm_epsilon = layer_norm_epsilon
        self.activation = activation
        self.token_norm, self.token_mixing, self.token_depth = self._branch(
            "token", tokens_mlp_dim
        )
        self.channel_norm, self.channel_mixing, self.channel_depth = (
            self._branch("channel", channels_mlp_dim)
        )

    def build(self, input_shape):
        batch, tokens, dim = input_shape
        self.token_norm.build(input_shape)
        self.token_mixing.build((batch, dim, tokens))
        self.channel_norm.build(input_shape)
        self.channel_mixing.build(input_shape)

    def call(self, x, training=None):
        y = ops.swapaxes(self.token_norm(x), 1, 2)  # (B, D, N)
        y = ops.swapaxes(self.token_mixing(y), 1, 2)  # (B, N, D)
        x = x + self.token_depth(y, training=training)
        y = self.channel_mixing(self.channel_norm(x))
        return x + self.channel_depth(y, training=training)

    def _branch(self, name, mlp_dim):
        policy = self.dtype_policy
        norm = TokenNormalization(
            epsilon=self.layer_norm_epsilon, dtype=policy, name=f"{name}_norm"
        )
        mlp = MLP(
            mlp_dim,
            activation=self.activation,
            dtype=policy,
            name=f"{name}_mixing",
        )
        depth = stochastic_depth(
            self.stochastic_depth_rate, dtype=policy, name=f"{name}_depth"
        )
        return norm, mlp, depth
