"""What the layers do in training: stochastic depth, rematerialisation."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_vit import layers


def normal(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


@pytest.mark.parametrize("rate", [0.25, 0.75])
def test_stochastic_depth_drops_samples_and_keeps_the_mean(rate):
    from keras_vit.layers.transformer_block import stochastic_depth

    layer = stochastic_depth(rate)
    x = np.ones((4000, 3, 2), "float32")
    y = ops.convert_to_numpy(layer(x, training=True))
    per_sample = y.reshape(4000, -1)
    assert (per_sample == per_sample[:, :1]).all()
    kept = per_sample[:, 0] != 0
    np.testing.assert_allclose(per_sample[kept], 1 / (1 - rate), rtol=1e-6)
    # Five standard deviations of a mean of 4000 draws.
    bound = 5 * (rate / (1 - rate) / 4000) ** 0.5
    assert abs(y.mean() - 1) < bound
    np.testing.assert_array_equal(
        ops.convert_to_numpy(layer(x, training=False)), x
    )


def test_block_with_all_residuals_dropped_is_the_identity():
    layer = layers.TransformerBlock(4, 32, stochastic_depth_rate=0.999999)
    x = normal(3, 5, 16)
    layer.build(x.shape)
    for i, weight in enumerate(layer.trainable_weights):
        weight.assign(0.3 * normal(*weight.shape, seed=i))
    y = ops.convert_to_numpy(layer(x, training=True))
    np.testing.assert_array_equal(y, x)
    assert abs(ops.convert_to_numpy(layer(x, training=False)) - x).max() > 0.1


@pytest.mark.parametrize("rates", [{}, {"dropout_rate": 0.3}])
def test_rematerialised_block_computes_and_learns_the_same(rates):
    """The same seeds give the same loss and the same updated weights."""
    results = []
    for rematerialize in (False, True):
        keras.utils.set_random_seed(3)
        inputs = keras.Input((5, 16))
        block = layers.TransformerBlock(
            4,
            32,
            stochastic_depth_rate=0.2,
            rematerialize=rematerialize,
            **rates,
        )
        model = keras.Model(inputs, block(inputs))
        model.compile(keras.optimizers.SGD(0.1), "mse")
        x, y = normal(8, 5, 16), normal(8, 5, 16, seed=1)
        losses = [model.train_on_batch(x, y) for _ in range(3)]
        results.append([losses, *map(np.array, block.trainable_weights)])
    for plain, remat in zip(*results, strict=True):
        np.testing.assert_allclose(remat, plain, rtol=1e-5, atol=1e-6)
