"""Convolution with standardised weights."""

import keras
from keras import ops

from keras_vit.checks import check_choice

__all__ = ["StandardizedConv2D"]

# (w - mean) / ..., over all axes but the output channels.
STANDARDIZATIONS = {
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
        kwargs["use_bias"] = False
        kwargs["data_format"] = "channels_last"
        kwargs.setdefault("kernel_initializer", "lecun_normal")
        super().__init__(filters, kernel_size, **kwargs)
        self.standardization = standardization
        self.epsilon = epsilon

    def convolution_op(self, inputs, kernel):
        kernel = ops.cast(kernel, "float32")
        # ops.moments loses digits on torch, where it subtracts squares.
        kernel = kernel - ops.mean(kernel, axis=(0, 1, 2), keepdims=True)
        variance = ops.mean(ops.square(kernel), axis=(0, 1, 2), keepdims=True)
        kernel = kernel / STANDARDIZATIONS[self.standardization](
            variance, self.epsilon
        )
        return super().convolution_op(inputs, ops.cast(kernel, inputs.dtype))

    def get_config(self):
        config = super().get_config()
        config["standardization"] = self.standardization
        config["epsilon"] = self.epsilon
        return config
