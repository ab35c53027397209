"""EfficientNets as teachers and students, L2 among them.

keras.applications does not have EfficientNet-L2.

Axes: B images, K classes.
"""

import dataclasses
import math

import keras
from keras import layers

from keras_vit.io.checks import check_choice
from keras_vit.preprocessing import MID_GREY
from keras_vit.training import Recipe
from keras_vit.training.build import CLASSIFICATION, Task, make_trainable
from keras_vit.training.config import ModelConfig

__all__ = [
    "EFFICIENTNETS",
    "efficientnet",
    "efficientnet_l2",
    "filters_of",
    "network_task",
]

# Name to the side in pixels and the dropout rate that it was published with:
# arXiv:1905.11946 and arXiv:2104.00298 as keras.applications has them, and L2
# of arXiv:1911.04252.
EFFICIENTNETS = {
    "EfficientNetB0": (224, 0.2),
    "EfficientNetB1": (240, 0.2),
    "EfficientNetB2": (260, 0.3),
    "EfficientNetB3": (300, 0.3),
    "EfficientNetB4": (380, 0.4),
    "EfficientNetB5": (456, 0.4),
    "EfficientNetB6": (528, 0.5),
    "EfficientNetB7": (600, 0.5),
    "EfficientNetL2": (800, 0.5),
    "EfficientNetV2B0": (224, 0.2),
    "EfficientNetV2B1": (240, 0.2),
    "EfficientNetV2B2": (260, 0.2),
    "EfficientNetV2B3": (300, 0.2),
    "EfficientNetV2S": (384, 0.2),
    "EfficientNetV2M": (480, 0.2),
    "EfficientNetV2L": (480, 0.2),
}
FIELDS = ("name", "image_size", "channels", "dropout_rate")

# Kernel, blocks, filters, expansion, stride of the stages of B0.
STAGES = (
    (3, 1, 16, 1, 1),
    (3, 2, 24, 6, 2),
    (5, 2, 40, 6, 2),
    (3, 3, 80, 6, 2),
    (5, 3, 112, 6, 1),
    (5, 4, 192, 6, 2),
    (3, 1, 320, 6, 1),
)
STEM, TOP = 32, 1280
SQUEEZE = 0.25  # of the filters before the expansion
DIVISOR = 8
WIDTH_L2, DEPTH_L2 = 4.3, 5.3
DROP_RATE = 0.2  # of the last block: a survival probability of 0.8


def network_task(recipe: Recipe, network: dict) -> tuple[Recipe, Task]:
    """Return the recipe and the task that train a network.

    Args:
        recipe: the `Recipe` of all networks.
        network: an element of `noisy_student.networks`.

    Raises:
        ValueError: for an unknown network or field.

    Example:
        >>> network_task(recipe, {"name": "ViT_S16"})[0].model.name
        'ViT_S16'
    """
    if str(network.get("name")).startswith("EfficientNet"):
        check_choice("network", network["name"], EFFICIENTNETS)
        for field in network:
            check_choice("field of an EfficientNet", field, FIELDS)
        task = dataclasses.replace(
            CLASSIFICATION,
            make_model=lambda recipe, class_names: _efficientnet(
                recipe, len(class_names), **network
            ),
        )
        return dataclasses.replace(recipe, model=ModelConfig()), task
    for field in network:
        check_choice("field of model", field, vars(recipe.model))
    model = dataclasses.replace(recipe.model, **network)
    return dataclasses.replace(recipe, model=model), CLASSIFICATION


def _efficientnet(
    recipe, num_classes, *, name, image_size=None, channels=3, dropout_rate=None
):
    """Build an EfficientNet from images in [0, 255] to logits (B, K)."""
    published, rate = EFFICIENTNETS[name]
    side = image_size or published
    build = getattr(keras.applications, name, efficientnet_l2)
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(recipe.training.precision)
    try:
        network = build(
            include_top=False,
            weights=None,
            input_shape=(side, side, channels),
            pooling="avg",
        )
    finally:
        keras.config.set_dtype_policy(before)
    rate = rate if dropout_rate is None else dropout_rate
    x = keras.layers.Dropout(rate, name="top_dropout")(network.output)
    # The same layer as in the models of keras_vit.
    x = keras.layers.Dense(num_classes, dtype="float32", name="predictions")(x)
    model = keras.Model(network.input, x, name=name.lower())
    make_trainable(model, recipe.training)
    return model


def efficientnet_l2(
    *, include_top=False, weights=None, input_shape, pooling="avg"
) -> keras.Model:
    """Build EfficientNet-L2 without its classification layer.

    The arguments are those of keras.applications.

    Returns:
        A Keras model from images in [0, 255] to features (B, 5504).

    Example:
        >>> efficientnet_l2(input_shape=(475, 475, 3)).output_shape
        (None, 5504)
    """
    del include_top, weights, pooling
    return efficientnet(WIDTH_L2, DEPTH_L2, input_shape, name="efficientnetl2")


def efficientnet(
    width: float, depth: float, input_shape, *, name=None
) -> keras.Model:
    """Build an EfficientNet without its classification layer.

    Args:
        width: factor of the filters of B0.
        depth: factor of the blocks of B0.
        input_shape: (H, W, C).
        name: of the model.

    Returns:
        A Keras model from images in [0, 255] to features.

    Example:
        >>> efficientnet(1.0, 1.0, (224, 224, 3)).output_shape
        (None, 1280)
    """
    image = keras.Input(input_shape, name="image")
    x = layers.Rescaling(1 / MID_GREY, offset=-1)(image)
    x = _normalised(
        layers.Conv2D(
            filters_of(STEM, width), 3, 2, "same", use_bias=False, name="stem"
        )(x)
    )
    blocks = list(_blocks(width, depth))
    for number, block in enumerate(blocks):
        x = block.apply(x, DROP_RATE * number / len(blocks))
    x = layers.Conv2D(filters_of(TOP, width), 1, use_bias=False, name="top")(x)
    x = layers.GlobalAveragePooling2D(name="pool")(_normalised(x))  # (B, C)
    return keras.Model(image, x, name=name)


def filters_of(filters: int, width: float) -> int:
    """Filters at a width: a multiple of 8 that is not below nine tenths."""
    wanted = filters * width
    rounded = max(DIVISOR, int(wanted + DIVISOR / 2) // DIVISOR * DIVISOR)
    return rounded + DIVISOR if rounded < 0.9 * wanted else rounded


@dataclasses.dataclass(frozen=True)
class _Block:
    """A mobile inverted bottleneck with squeeze and excitation."""

    kernel: int
    before: int
    after: int
    expansion: int
    stride: int

    def apply(self, x, drop_rate):
        y = x
        if self.expansion != 1:
            filters = self.before * self.expansion
            y = _normalised(layers.Conv2D(filters, 1, use_bias=False)(y))
        y = layers.DepthwiseConv2D(
            self.kernel, self.stride, "same", use_bias=False
        )(y)
        y = self._excited(_normalised(y))
        y = layers.Conv2D(self.after, 1, use_bias=False)(y)
        y = layers.BatchNormalization()(y)
        if self.stride > 1 or self.before != self.after:
            return y
        y = layers.Dropout(drop_rate, noise_shape=(None, 1, 1, 1))(y)
        return layers.Add()([x, y])

    def _excited(self, x):
        filters = self.before * self.expansion
        squeezed = max(1, int(self.before * SQUEEZE))
        y = layers.GlobalAveragePooling2D(keepdims=True)(x)  # (B, 1, 1, C)
        y = layers.Conv2D(squeezed, 1, activation="swish")(y)
        y = layers.Conv2D(filters, 1, activation="sigmoid")(y)
        return layers.Multiply()([x, y])


def _blocks(width, depth):
    before = filters_of(STEM, width)
    for kernel, repeats, filters, expansion, stride in STAGES:
        after = filters_of(filters, width)
        for number in range(math.ceil(depth * repeats)):
            step = 1 if number else stride
            yield _Block(kernel, before, after, expansion, step)
            before = after


def _normalised(x):
    x = layers.BatchNormalization()(x)
    return layers.Activation("swish")(x)
