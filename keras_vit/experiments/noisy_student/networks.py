"""The networks that teach and learn: those of keras_vit, and EfficientNets.

Axes: B images, K classes.
"""

import dataclasses

import keras

from keras_vit.experiments.noisy_student.efficientnet import efficientnet_l2
from keras_vit.models.base import check_choice
from keras_vit.training import Recipe
from keras_vit.training.build import freeze
from keras_vit.training.model_config import ModelConfig
from keras_vit.training.task import CLASSIFICATION, Task

__all__ = ["EFFICIENTNETS", "of_network"]

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


def of_network(recipe: Recipe, network: dict) -> tuple[Recipe, Task]:
    """The recipe and the task that train a network.

    Args:
        recipe: a `Recipe`.
        network: an element of `noisy_student.networks`.

    Returns:
        A `Recipe` and a `Task`.

    Raises:
        ValueError: for a network or a field that there is not.

    Example:
        >>> of_network(recipe, {"name": "ViT_S16"})[0].model.name
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
    """An EfficientNet from images in [0, 255] to logits (B, K)."""
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
    # The layer that the models of keras_vit have.
    x = keras.layers.Dense(num_classes, dtype="float32", name="predictions")(x)
    model = keras.Model(network.input, x, name=name.lower())
    freeze(model, recipe.training.trainable)
    return model
