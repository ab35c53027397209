"""ResNets with group normalisation and weight standardisation.

What BiT and the hybrids share, and the post-activation trunk of the hybrids.

Axes: B batch, h and w height and width of a feature map, C channels.
"""

import dataclasses

import keras

from keras_vit.layers import StandardizedConv2D

__all__ = ["Builder", "check_width", "hybrid_stem", "stem_grid"]

GROUPS = 32


def hybrid_stem(config, x, dtype=None):
    """The ResNet in front of a hybrid's patch embedding.

    ResNet v1 with group normalisation and weight standardisation (section
    4.1 of arXiv:2010.11929), TensorFlow's "same" padding throughout.

    Args:
        config: a `ViTConfig`; without resnet_units nothing is added.
        x: Keras tensor (B, height, width, channels).
        dtype: dtype policy of all layers.

    Returns:
        Keras tensor (B, h, w, C), the feature map.
    """
    if config.resnet_units is None:
        return x
    build = Builder(
        config.resnet_standardization,
        config.resnet_standardization_epsilon,
        config.resnet_group_norm_epsilon,
        dtype,
    )
    x = build.conv(x, config.resnet_width, 7, "root_conv", strides=2)
    x = build.relu(build.norm(x, "root_norm"))
    x = build.max_pool(x, "same")
    for stage, units in enumerate(config.resnet_units, 1):
        for unit in range(1, units + 1):
            x = hybrid_unit(build, x, config.resnet_width, stage, unit)
    return x


def hybrid_unit(build, x, width, stage, unit):
    """Post-activation bottleneck; the first of a stage projects the shortcut.

    Args:
        build: a `Builder`.
        x: Keras tensor (B, h, w, C).
        width: int, channels of the root.
        stage: int from 1.
        unit: int from 1.

    Returns:
        Keras tensor with width * 2 ** (stage + 1) channels.
    """
    name = f"stage{stage}_unit{unit}"
    filters = width * 2 ** (stage - 1)
    stride = 2 if stage > 1 and unit == 1 else 1
    y = build.conv(x, filters, 1, f"{name}_conv1")
    y = build.relu(build.norm(y, f"{name}_norm1"))
    y = build.conv(y, filters, 3, f"{name}_conv2", strides=stride)
    y = build.relu(build.norm(y, f"{name}_norm2"))
    y = build.conv(y, 4 * filters, 1, f"{name}_conv3")
    # A zero scale makes the unit start as its shortcut.
    y = build.norm(y, f"{name}_norm3", gamma_initializer="zeros")
    if unit == 1:
        x = build.conv(x, 4 * filters, 1, f"{name}_shortcut", strides=stride)
        x = build.norm(x, f"{name}_shortcut_norm")
    x = keras.layers.Add(dtype=build.dtype, name=f"{name}_add")([x, y])
    return build.relu(x)


def stem_grid(image_size: tuple, units: tuple) -> tuple:
    """Rows and columns of the feature map that `hybrid_stem` makes.

    Args:
        image_size: (height, width) in pixels.
        units: units of each stage.

    Returns:
        (rows, columns): the image size divided by 4 in the root and by 2 in
        each stage after the first, rounded up.
    """
    stride = 4 * 2 ** max(len(units) - 1, 0)
    return tuple(-(-size // stride) for size in image_size)


def check_width(width: int) -> None:
    """Raises a ValueError unless the groups of the norms divide the width."""
    if width < GROUPS or width % GROUPS:
        raise ValueError(
            f"The width of a ResNet must be a multiple of {GROUPS}, the "
            f"groups of its group normalisation. Received: {width}. The "
            "published models have 64 times the width factor."
        )


@dataclasses.dataclass(frozen=True)
class Builder:
    """Makes the layers of a ResNet with the constants of its family.

    Args:
        standardization: see `StandardizedConv2D`.
        standardization_epsilon: float.
        group_norm_epsilon: float.
        dtype: dtype policy of all layers.
    """

    standardization: str
    standardization_epsilon: float
    group_norm_epsilon: float
    dtype: object = None

    def conv(self, x, filters, kernel_size, name, strides=1, padding="same"):
        return StandardizedConv2D(
            filters,
            kernel_size,
            strides=strides,
            padding=padding,
            standardization=self.standardization,
            epsilon=self.standardization_epsilon,
            dtype=self.dtype,
            name=name,
        )(x)

    def norm(self, x, name, gamma_initializer="ones"):
        return keras.layers.GroupNormalization(
            groups=GROUPS,
            epsilon=self.group_norm_epsilon,
            gamma_initializer=gamma_initializer,
            dtype=self.dtype,
            name=name,
        )(x)

    def relu(self, x):
        return keras.layers.ReLU(dtype=self.dtype)(x)

    def pad(self, x, pixels):
        return keras.layers.ZeroPadding2D(
            pixels, data_format="channels_last", dtype=self.dtype
        )(x)

    def max_pool(self, x, padding):
        return keras.layers.MaxPooling2D(
            3,
            strides=2,
            padding=padding,
            data_format="channels_last",
            dtype=self.dtype,
        )(x)
