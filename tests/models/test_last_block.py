"""The last block, computed of the tokens alone that the head reads."""

import keras
import numpy as np
import pytest
from keras import ops
from random_layers import normal, randomise
from tiny_models import tiny_vit

from keras_vit.layers import (
    RelativePositionBias,
    SelfAttention,
    TransformerBlock,
)

# The options of a config, and how many tokens its head reads.
READS = {
    "token": ({}, 1),
    "prefix": ({"distillation_token": True, "pooling": "prefix"}, 2),
    "prefix_mean": ({"distillation_token": True, "pooling": "prefix_mean"}, 2),
    "registers": ({"register_tokens": 3}, 1),
    "norm after pooling": ({"norm_after_pooling": True}, 1),
    "beside": ({"mlp_placement": "beside"}, 1),
    "rope": ({"rope": "axial", "position_embedding": "none"}, 1),
    "qk_norm": ({"qk_norm": True, "layer_scale_init": 0.5}, 1),
    "talking heads": ({"talking_heads": True}, 1),
    "differential": ({"differential_attention": True}, 1),
    "grouped": ({"key_value_heads": (1, 1)}, 1),
    "norm after": ({"norm_placement": "after"}, 1),
    "bias": ({"relative_position_bias": True}, 5),
    "mean": ({"pooling": "mean"}, 5),
    "token and mean": ({"pooling": "token_and_mean"}, 5),
}
IMAGES = normal(3, 8, 8, 3)


def of_all_tokens(model):
    """The model with its last block computed of all tokens."""
    x = model.get_layer("block_1").output
    names = [layer.name for layer in model.layers]
    for name in names[names.index("block_1") + 1 :]:
        x = model.get_layer(name)(x)
    return keras.Model(model.input, x)


@pytest.mark.parametrize("name", READS)
def test_the_output_is_that_of_all_tokens(name):
    options, reads = READS[name]
    model = randomise(tiny_vit(num_layers=2, **options))
    assert model.get_layer("pool").input.shape[1] == reads
    prefix = {"prefix": 2, "prefix_mean": 2, "registers": 4}.get(name, 1)
    block = model.get_layer("block_1")
    assert block.output.shape == (None, 4 + prefix, 8)
    found = ops.convert_to_numpy(model(IMAGES))
    expected = ops.convert_to_numpy(of_all_tokens(model)(IMAGES))
    assert np.ptp(expected) > 0.1
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_a_demanded_kernel_is_given_all_tokens():
    model = tiny_vit(flash_attention=True)
    assert model.get_layer("pool").input.shape == (None, 5, 8)


@pytest.mark.parametrize("rematerialize", [False, True])
def test_a_step_is_that_of_all_tokens(rematerialize):
    weights = []
    for whole in (False, True):
        made = randomise(tiny_vit(num_layers=2, rematerialize=rematerialize))
        model = of_all_tokens(made) if whole else made
        loss = keras.losses.CategoricalCrossentropy(from_logits=True)
        model.compile(keras.optimizers.SGD(1.0), loss)
        before = [x.copy() for x in made.get_weights()]
        model.train_on_batch(IMAGES, np.eye(3, dtype="float32"))
        weights.append(made.get_weights())
    for first, one, other in zip(before, *weights, strict=True):
        assert np.abs(first - other).max() > 1e-4
        np.testing.assert_allclose(one, other, atol=1e-5)


def test_a_bias_on_the_scores_is_of_all_tokens():
    bias = RelativePositionBias(num_heads=2, grid=(2, 2), num_prefix_tokens=1)
    layer = SelfAttention(num_heads=2, position_bias=bias)
    layer(normal(2, 5, 8))
    with pytest.raises(ValueError, match="queries"):
        layer(normal(2, 5, 8), queries=1)


@pytest.mark.parametrize("queries", [0, 6])
def test_there_are_as_many_tokens_as_are_asked_for(queries):
    block = TransformerBlock(num_heads=2, mlp_dim=8)
    block(normal(2, 5, 8))
    with pytest.raises(ValueError, match=f"from 1 to 5.*queries={queries}"):
        block(normal(2, 5, 8), queries=queries)
