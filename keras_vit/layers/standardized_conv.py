"""What ResNets have beside Keras's layers.

Axes: B batch, h and w height and width of a feature map, C channels, G groups.
"""

from types import SimpleNamespace

import keras
from keras import ops

from keras_vit.io.checks import (
    STANDARDIZATIONS,
    check_at_least,
    check_choice,
    check_kind,
)
from keras_vit.layers.common import ConfiguredLayer

__all__ = ["EvolvedNormalization", "StandardizedConv2D"]

# (w - mean) / ..., over all axes but the output channels.
DIVISORS = {
    "deviation": lambda variance, epsilon: ops.sqrt(variance) + epsilon,
    "variance": lambda variance, epsilon: ops.sqrt(variance + epsilon),
}


@keras.saving.register_keras_serializable("keras_vit")
class StandardizedConv2D(keras.layers.Conv2D):
    """2-D convolution without bias whose kernel is standardised when used.

    "Weight Standardization" (arXiv:1903.10520): each output channel's weights
    are shifted and scaled to mean 0 and variance 1. The kernel itself is kept
    as it is. Channels last.

    Args:
        filters: int, output channels.
        kernel_size: int or (height, width).
        standardization: where epsilon is added: to the "deviation" (the
            hybrids of the ViT paper, 1e-5) or to the "variance" (BiT, 1e-10).
        epsilon: float, added as `standardization` says.
        **kwargs: `strides`, `padding`, `name`, `dtype` of
            `keras.layers.Conv2D`.

    Raises:
        ValueError: for an unknown standardization.

    Example:

    >>> images = keras.random.uniform((2, 32, 32, 3))
    >>> StandardizedConv2D(64, 7, strides=2, padding="same")(images).shape
    (2, 16, 16, 64)
    """

    def __init__(
        self,
        filters,
        kernel_size,
        *,
        standardization="deviation",
        epsilon=1e-5,
        **kwargs,
    ):
        check_choice("standardization", standardization, STANDARDIZATIONS)
        check_kind(float, epsilon=epsilon)
        check_at_least(SimpleNamespace(epsilon=epsilon), 0, "epsilon")
        kwargs["use_bias"] = False
        kwargs["data_format"] = "channels_last"
        kwargs.setdefault("kernel_initializer", "lecun_normal")
        super().__init__(filters, kernel_size, **kwargs)
        self.standardization = standardization
        self.epsilon = epsilon
        self.is_folded = False

    def fold(self) -> None:
        """Keep the standardised kernel, for a program without training."""
        self.kernel.assign(self._standardized(self.kernel))
        self.is_folded = True

    def convolution_op(self, inputs, kernel):
        if not self.is_folded:
            kernel = self._standardized(kernel)
        return super().convolution_op(inputs, ops.cast(kernel, inputs.dtype))

    def _standardized(self, kernel):
        kernel = ops.cast(kernel, "float32")
        # ops.moments loses digits on torch, where it subtracts squares.
        kernel = kernel - ops.mean(kernel, axis=(0, 1, 2), keepdims=True)
        variance = ops.mean(ops.square(kernel), axis=(0, 1, 2), keepdims=True)
        return kernel / DIVISORS[self.standardization](variance, self.epsilon)

    def get_config(self):
        config = super().get_config()
        config["standardization"] = self.standardization
        config["epsilon"] = self.epsilon
        return config


@keras.saving.register_keras_serializable("keras_vit")
class EvolvedNormalization(ConfiguredLayer):
    """Normalisation by groups with its own activation, found by evolution.

    EvoNorm-S0 of "Evolving Normalization-Activation Layers"
    (arXiv:2004.02967, table 2): `x sigmoid(v x)` divided by the deviation of
    x in its group of channels, then scaled and shifted. Channels last.

    Args:
        groups: int, G; it divides C.
        epsilon: float, added to the variance.

    Input shape:
        (B, h, w, C).

    Output shape:
        That of the input.

    Raises:
        ValueError: when built on channels that the groups do not divide.

    Example:

    >>> maps = keras.random.normal((2, 14, 14, 64))
    >>> EvolvedNormalization(groups=32)(maps).shape
    (2, 14, 14, 64)
    """

    def __init__(self, *, groups: int = 32, epsilon: float = 1e-5, **kwargs):
        super().__init__(**kwargs)
        self.groups = groups
        self.epsilon = epsilon

    def build(self, input_shape):
        channels = input_shape[-1]
        if channels % self.groups:
            raise ValueError(
                "The groups of a normalisation must divide the channels. "
                f"Received: groups={self.groups}, {channels} channels."
            )
        shape = (channels,)
        self.gamma = self.add_weight(
            name="gamma", shape=shape, initializer="ones"
        )
        self.beta = self.add_weight(
            name="beta", shape=shape, initializer="zeros"
        )
        self.gate = self.add_weight(
            name="gate", shape=shape, initializer="ones"
        )

    def call(self, x):
        shape = ops.shape(x)
        precise = keras.backend.result_type(x.dtype, "float32")
        gamma, beta, gate = (
            ops.cast(y, precise) for y in (self.gamma, self.beta, self.gate)
        )
        y = ops.cast(x, precise)
        grouped = (shape[0], -1, self.groups, shape[-1] // self.groups)
        groups = ops.reshape(y, grouped)  # (B, h * w, G, C / G)
        mean = ops.mean(groups, axis=(1, 3), keepdims=True)  # (B, 1, G, 1)
        variance = ops.mean(
            ops.square(groups - mean), axis=(1, 3), keepdims=True
        )
        gated = ops.reshape(y * ops.sigmoid(y * gate), ops.shape(groups))
        y = ops.reshape(gated / ops.sqrt(variance + self.epsilon), shape)
        return ops.cast(y * gamma + beta, x.dtype)
