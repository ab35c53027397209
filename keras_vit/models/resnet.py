"""ResNets: BiT with its relatives, and the trunk of the hybrids.

With group normalisation and weight standardisation, or as BiT's relatives
have it.

Axes: B batch, h and w height and width of a feature map, C channels.
"""

import dataclasses
import functools

import keras
from keras import ops

from keras_vit.layers import EvolvedNormalization, StandardizedConv2D
from keras_vit.models.configured_model import (
    ConfiguredModel,
    head,
    preprocessing,
)
from keras_vit.models.options import GROUPS, STEMS, BiTConfig

__all__ = [
    "BiT",
    "Builder",
    "hybrid_stem",
]

NORMALIZATIONS = {
    "group_norm": functools.partial(
        keras.layers.GroupNormalization, groups=GROUPS
    ),
    # The momentum that torch calls 0.1.
    "batch_norm": functools.partial(
        keras.layers.BatchNormalization, momentum=0.9
    ),
    "evolved": functools.partial(EvolvedNormalization, groups=GROUPS),
}


def hybrid_stem(config, x, dtype=None):
    """The ResNet of a hybrid, from an image to a feature map (B, h, w, C).

    ResNet v1 with group normalisation and weight standardisation (section
    4.1 of arXiv:2010.11929), TensorFlow's "same" padding throughout.
    """
    build = Builder(
        config.resnet_standardization,
        config.resnet_standardization_epsilon,
        config.resnet_group_norm_epsilon,
        dtype,
    )
    x = build.conv(x, config.resnet_width, 7, "root_conv", strides=2)
    x = build.relu(build.norm(x, "root_norm"), "root_activation")
    x = build.max_pool(x, "same")
    for stage, units in enumerate(config.resnet_units, 1):
        for unit in range(1, units + 1):
            x = hybrid_unit(build, x, config.resnet_width, stage, unit)
    return x


def hybrid_unit(build, x, width, stage, unit):
    """Post-activation bottleneck; the first of a stage projects the shortcut.

    Stages and units are counted from 1.
    """
    name, filters, stride = unit_sizes(width, stage, unit)
    y = build.conv(x, filters, 1, f"{name}_conv1")
    y = build.relu(build.norm(y, f"{name}_norm1"), f"{name}_activation1")
    y = build.conv(y, filters, 3, f"{name}_conv2", strides=stride)
    y = build.relu(build.norm(y, f"{name}_norm2"), f"{name}_activation2")
    y = build.conv(y, 4 * filters, 1, f"{name}_conv3")
    # A zero scale makes the unit start as its shortcut.
    y = build.norm(y, f"{name}_norm3", gamma_initializer="zeros")
    if unit == 1:
        x = build.conv(x, 4 * filters, 1, f"{name}_shortcut", strides=stride)
        x = build.norm(x, f"{name}_shortcut_norm")
    x = keras.layers.Add(dtype=build.dtype, name=f"{name}_add")([x, y])
    return build.relu(x, f"{name}_activation3")


def unit_sizes(width: int, stage: int, unit: int) -> tuple[str, int, int]:
    """Name, filters of the bottleneck and stride of a unit."""
    stride = 2 if stage > 1 and unit == 1 else 1
    return f"stage{stage}_unit{unit}", width * 2 ** (stage - 1), stride


@dataclasses.dataclass(frozen=True)
class Builder:
    """Makes the layers of a ResNet with the constants of its family."""

    standardization: str | None
    standardization_epsilon: float
    group_norm_epsilon: float
    dtype: object = None
    normalization: str = "group_norm"
    activation: str = "relu"

    def conv(self, x, filters, kernel_size, name, strides=1, padding="same"):
        return self._make_conv()(
            filters,
            kernel_size,
            strides=strides,
            padding=padding,
            dtype=self.dtype,
            name=name,
        )(x)

    def _make_conv(self):
        if self.standardization is None:
            return functools.partial(
                keras.layers.Conv2D,
                use_bias=False,
                data_format="channels_last",
                kernel_initializer=keras.initializers.VarianceScaling(
                    2.0, "fan_out", "untruncated_normal"
                ),
            )
        return functools.partial(
            StandardizedConv2D,
            standardization=self.standardization,
            epsilon=self.standardization_epsilon,
        )

    def norm(self, x, name, **options):
        return NORMALIZATIONS[self.normalization](
            epsilon=self.group_norm_epsilon,
            dtype=self.dtype,
            name=name,
            **options,
        )(x)

    def activated_norm(self, x, name):
        """The normalisation and what follows it before a convolution."""
        x = self.norm(x, name)
        if self.normalization == "evolved":
            return x  # It has an activation inside.
        name = name.replace("norm", "activation")
        if self.activation == "relu":
            return self.relu(x, name)
        return keras.layers.Activation(
            self.activation, dtype=self.dtype, name=name
        )(x)

    def relu(self, x, name):
        return keras.layers.ReLU(dtype=self.dtype, name=name)(x)

    def pad(self, x, pixels, name):
        return keras.layers.ZeroPadding2D(
            pixels, data_format="channels_last", dtype=self.dtype, name=name
        )(x)

    def pad_lowest(self, x, pixels, name):
        around = (pixels, pixels)
        return ops.pad(
            x, [(0, 0), around, around, (0, 0)], constant_values=-float("inf")
        )

    def mean_pool(self, x, name):
        """Halves height and width; of an odd one, the last stays alone."""
        return keras.layers.AveragePooling2D(
            2,
            padding="same",
            data_format="channels_last",
            dtype=self.dtype,
            name=name,
        )(x)

    def max_pool(self, x, padding):
        return keras.layers.MaxPooling2D(
            3,
            strides=2,
            padding=padding,
            data_format="channels_last",
            dtype=self.dtype,
            name="root_pool",
        )(x)


@keras.saving.register_keras_serializable("keras_vit")
class BiT(ConfiguredModel):
    """BiT ResNet-v2 as a functional Keras model.

    "Big Transfer (BiT): General Visual Representation Learning"
    (arXiv:1912.11370), the baseline of the ViT paper. The max pool of the
    root is padded with zeros, as in the code that made the public weights.

    Args:
        config: a `BiTConfig`, which defines the whole model.
        name: str, name of the model.
        dtype: dtype policy of all layers, for example "mixed_bfloat16".
        trainable: bool, whether training changes the weights.

    Input shape:
        (B, height, width, channels), scaled to [-1, 1], or to [0, 255] with
        `include_preprocessing`.

    Output shape:
        (B, num_classes), or (B, C), or (B, h, w, C) with pooling "none".

    Example:

    >>> model = BiT(BiTConfig(image_size=(128, 128), num_classes=10))
    >>> model.output_shape
    (None, 10)
    """

    config_class = BiTConfig
    config: BiTConfig

    @staticmethod
    def outputs_of(config, images, dtype=None):
        build = Builder(
            config.standardization,
            config.standardization_epsilon,
            config.group_norm_epsilon,
            dtype,
            config.normalization,
            config.activation,
        )
        x = preprocessing(config, images, dtype)
        x = bit_root(build, x, config)
        for stage, units in enumerate(config.units, 1):
            for unit in range(1, units + 1):
                x = bit_unit(build, x, config, stage, unit)
        x = build.activated_norm(x, "encoder_norm")
        x = POOLINGS[config.pooling](dtype)(x)
        return head(config, x, dtype)


POOLINGS = {
    "mean": lambda dtype: keras.layers.GlobalAveragePooling2D(
        data_format="channels_last", dtype=dtype, name="pool"
    ),
    "max": lambda dtype: keras.layers.GlobalMaxPooling2D(
        data_format="channels_last", dtype=dtype, name="pool"
    ),
    "none": lambda dtype: lambda x: x,
}


# The convolutions of a unit: (channels, size, stride).
UNITS = {
    "bottleneck": lambda filters, stride: (
        (filters, 1, 1),
        (filters, 3, stride),
        (4 * filters, 1, 1),
    ),
    "basic": lambda filters, stride: ((filters, 3, stride), (filters, 3, 1)),
}
ROOT_PADDINGS = {"zeros": Builder.pad, "lowest": Builder.pad_lowest}


def bit_root(build, x, config):
    """Convolutions and max pool before the stages; no norm after the last."""
    eighths = STEMS[config.stem]
    size = 7 if len(eighths) == 1 else 3
    for i, eighth in enumerate(eighths, 1):
        number = "" if len(eighths) == 1 else i
        x = build.conv(
            build.pad(x, size // 2, f"root_pad{number}"),
            eighth * config.width // 8,
            size,
            f"root_conv{number}",
            strides=2 if i == 1 else 1,
            padding="valid",
        )
        if i < len(eighths):
            x = build.activated_norm(x, f"root_norm{number}")
    x = ROOT_PADDINGS[config.root_padding](build, x, 1, "root_pool_pad")
    return build.max_pool(x, "valid")


def bit_unit(build, x, config, stage, unit):
    """Pre-activation unit; the first of a stage projects the shortcut.

    Unless that has the size that the unit returns.
    """
    name, filters, stride = unit_sizes(config.width, stage, unit)
    convolutions = UNITS[config.unit](filters, stride)
    y = build.activated_norm(x, f"{name}_norm1")
    if unit == 1 and (config.unit == "bottleneck" or stage > 1):
        x = shortcut(build, y, config, convolutions[-1][0], stride, name)
    for i, (filters, size, stride) in enumerate(convolutions, 1):
        if i > 1:
            y = build.activated_norm(y, f"{name}_norm{i}")
        padding = "same" if size == 1 else "valid"
        y = build.pad(y, 1, f"{name}_pad{i}") if size > 1 else y
        y = build.conv(
            y, filters, size, f"{name}_conv{i}", strides=stride, padding=padding
        )
    return keras.layers.Add(dtype=build.dtype, name=f"{name}_add")([x, y])


def shortcut(build, x, config, filters, stride, name):
    """What the first unit of a stage is added to."""
    if config.downsampling == "average" and stride > 1:
        x, stride = build.mean_pool(x, f"{name}_shortcut_pool"), 1
    return build.conv(x, filters, 1, f"{name}_shortcut", strides=stride)
