"""ResNets with group normalisation and weight standardisation.

What BiT and the hybrids share, and the post-activation trunk of the hybrids.

Axes: B batch, h and w height and width of a feature map, C channels.
"""

import dataclasses

import keras

from keras_vit.checks import check_choice, check_size
from keras_vit.layers import StandardizedConv2D
from keras_vit.models.configured_model import (
    ConfiguredModel,
    head,
    preprocessing,
)

__all__ = [
    "BiT",
    "BiTConfig",
    "Builder",
    "check_width",
    "hybrid_stem",
    "stem_grid",
]

GROUPS = 32


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
    x = build.relu(build.norm(x, "root_norm"))
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


def unit_sizes(width: int, stage: int, unit: int) -> tuple[str, int, int]:
    """Name, filters of the bottleneck and stride of a unit."""
    stride = 2 if stage > 1 and unit == 1 else 1
    return f"stage{stage}_unit{unit}", width * 2 ** (stage - 1), stride


def stem_grid(image_size: tuple, units: tuple) -> tuple:
    """Rows and columns of the feature map that `hybrid_stem` makes.

    The root divides the image size by 4 and each stage after the first by 2,
    rounded up.
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
    """Makes the layers of a ResNet with the constants of its family."""

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


@dataclasses.dataclass(frozen=True)
class BiTConfig:
    """Everything that defines a BiT ResNet; the defaults are R50x1.

    Args:
        image_size: int or (height, width) in pixels, or (None, None) for
            any size.
        channels: int, channels of an image.
        units: tuple of int, bottleneck units of each stage.
        width: int, channels of the root block: 64 times the width factor.
        pooling: "mean" or "max" over the image, or "none" for the feature
            map.
        num_classes: int, 0 for features instead of a classification layer.
        classifier_activation: activation of the classification layer, None
            for logits.
        head_bias: float that the bias of the classification layer starts at;
            -10 or -6.9 for sigmoid losses with many classes.
        standardization_epsilon: float, added to the variance of a kernel.
        group_norm_epsilon: float, added to the variance of a group.
        include_preprocessing: bool; True takes images in [0, 255].

    Raises:
        ValueError: for values that do not fit together.
    """

    image_size: tuple = (224, 224)
    channels: int = 3
    units: tuple = (3, 4, 6, 3)
    width: int = 64
    pooling: str = "mean"
    num_classes: int = 1000
    classifier_activation: str | None = None
    head_bias: float = 0.0
    standardization_epsilon: float = 1e-10
    group_norm_epsilon: float = 1e-5
    include_preprocessing: bool = False

    def __post_init__(self):
        size = tuple(self.image_size) if self._any_size else self.image_size
        if not self._any_size:
            size = check_size("image_size", size)
        object.__setattr__(self, "image_size", size)
        object.__setattr__(self, "units", tuple(self.units))
        check_choice("pooling", self.pooling, POOLINGS)
        check_width(self.width)

    @property
    def _any_size(self):
        return not isinstance(self.image_size, int) and None in self.image_size


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
            "variance",
            config.standardization_epsilon,
            config.group_norm_epsilon,
            dtype,
        )
        x = preprocessing(config, images, dtype)
        x = bit_root(build, x, config.width)
        for stage, units in enumerate(config.units, 1):
            for unit in range(1, units + 1):
                x = bit_unit(build, x, config.width, stage, unit)
        x = build.relu(build.norm(x, "encoder_norm"))
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


def bit_root(build, x, width):
    """Convolution and max pool before the stages of BiT; no norm, no ReLU."""
    x = build.pad(x, 3)
    x = build.conv(x, width, 7, "root_conv", strides=2, padding="valid")
    return build.max_pool(build.pad(x, 1), "valid")


def bit_unit(build, x, width, stage, unit):
    """Pre-activation bottleneck; the first of a stage projects the shortcut."""
    name, filters, stride = unit_sizes(width, stage, unit)
    y = build.relu(build.norm(x, f"{name}_norm1"))
    if unit == 1:
        x = build.conv(y, 4 * filters, 1, f"{name}_shortcut", strides=stride)
    y = build.conv(y, filters, 1, f"{name}_conv1")
    y = build.pad(build.relu(build.norm(y, f"{name}_norm2")), 1)
    y = build.conv(
        y, filters, 3, f"{name}_conv2", strides=stride, padding="valid"
    )
    y = build.relu(build.norm(y, f"{name}_norm3"))
    y = build.conv(y, 4 * filters, 1, f"{name}_conv3")
    return keras.layers.Add(dtype=build.dtype, name=f"{name}_add")([x, y])
