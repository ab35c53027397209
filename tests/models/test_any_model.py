"""Clones, wide numbers and int8, whatever the options of a model are."""

import keras
import numpy as np
import pytest
from random_layers import normal, randomise
from tiny_models import tiny_vit

POOLED = {
    **{name: {"pooling": name} for name in ("token", "mean", "map")},
    "attention": {"pooling": "attention", "class_token": False},
    "class attention": {"class_attention_layers": 2},
    "talking heads": {
        **{"talking_heads": True, "class_attention_layers": 1},
        **{"qkv_bias": False, "layer_scale_init": 0.1},
    },
}
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


@pytest.mark.skipif(
    keras.backend.backend() == "jax", reason="without jax_enable_x64 it is not"
)
@pytest.mark.parametrize("options", POOLED.values(), ids=POOLED)
def test_float64_gives_the_scores_of_float32(options):
    model = tiny_vit(**options)
    randomise(model)
    wide = type(model)(model.config, dtype="float64")
    wide.set_weights(model.get_weights())
    np.testing.assert_allclose(scores(wide), scores(model), atol=1e-5)


@pytest.mark.parametrize("name", ["attention", "class attention", "unit"])
def test_a_quantised_model_comes_back(name, tmp_path):
    """Only some of its layers are of int8: each has a policy of its own."""
    model = tiny_vit(**{**POOLED, "unit": {"unit_features": True}}[name])
    randomise(model)
    model.quantize("int8")
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(scores(again), scores(model))
