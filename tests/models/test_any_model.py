"""Clones, whatever the options of a model are."""

import keras
import numpy as np
import pytest
from random_layers import normal, randomise
from tiny_models import tiny_vit

IMAGES = normal(3, 8, 8, 3)


def scores(model):
    return keras.ops.convert_to_numpy(model(IMAGES))


@pytest.mark.parametrize("activation", ["gelu_tanh", "gelu", "quick_gelu"])
def test_a_clone_has_every_activation(activation):
    model = tiny_vit(
        activation=activation,
        patch_stem=(2, 2),
        representation_dim=5,
        representation_activation=activation,
    )
    randomise(model)
    clone = keras.models.clone_model(model)
    clone.set_weights(model.get_weights())
    np.testing.assert_array_equal(scores(clone), scores(model))
