"""Properties that hold for any weights."""

import keras
import numpy as np
import pytest

from keras_vit.models import VisionTransformer, ViTConfig

CONFIG = {
    "image_size": (24, 16),
    "patch_size": 8,
    "hidden_dim": 16,
    "num_layers": 2,
    "mlp_dim": 32,
    "num_heads": 4,
    "num_classes": 3,
}


def shaken(**changes):
    model = VisionTransformer(ViTConfig(**{**CONFIG, **changes}))
    generator = np.random.default_rng(0)
    for weight in model.trainable_weights:
        weight.assign(generator.normal(0, 0.3, weight.shape))
    return model


def images(count=5):
    shape = (count, 24, 16, 3)
    return np.random.default_rng(1).uniform(-1, 1, shape).astype("float32")


def test_encoder_without_positions_is_permutation_equivariant():
    model = shaken(pooling="none", num_classes=0)
    table = model.get_layer("position_embedding").embedding
    table.assign(np.zeros(table.shape))
    x = images()
    order = np.array([4, 2, 0, 5, 3, 1])
    patches = x.reshape(5, 3, 8, 2, 8, 3).swapaxes(2, 3)
    shuffled = patches.reshape(5, 6, 8, 8, 3)[:, order].reshape(
        5, 3, 2, 8, 8, 3
    )
    shuffled = shuffled.swapaxes(2, 3).reshape(x.shape)
    tokens = model.predict(x, verbose=0)
    moved = model.predict(shuffled, verbose=0)
    np.testing.assert_allclose(moved[:, 0], tokens[:, 0], atol=2e-5)
    np.testing.assert_allclose(moved[:, 1:], tokens[:, 1:][:, order], atol=2e-5)


def test_positions_break_that_symmetry():
    model = shaken()
    x = images()
    mirrored = x[:, ::-1]
    difference = model.predict(x, verbose=0) - model.predict(
        mirrored, verbose=0
    )
    assert np.abs(difference).max() > 1e-2


def test_order_and_company_in_a_batch_do_not_matter():
    model = shaken()
    x = images()
    together = model.predict(x, verbose=0)
    order = [3, 0, 4, 1, 2]
    np.testing.assert_allclose(
        model.predict(x[order], verbose=0), together[order], atol=1e-5
    )
    alone = model.predict(x[2:3], verbose=0)
    np.testing.assert_allclose(alone, together[2:3], atol=1e-5)


RATES = {
    "dropout_rate": 0.3,
    "attention_dropout_rate": 0.3,
    "stochastic_depth_rate": 0.5,
}


@pytest.mark.parametrize(
    "rates",
    [
        RATES,
        *(
            pytest.param({name: rate}, marks=pytest.mark.slow)
            for name, rate in RATES.items()
        ),
    ],
)
def test_seeds_reproduce_training(rates):
    def trained(seed):
        keras.utils.set_random_seed(seed)
        model = VisionTransformer(ViTConfig(**{**CONFIG, **rates}))
        model.compile(
            keras.optimizers.SGD(0.1),
            keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        )
        labels = np.array([0, 1, 2, 0, 1])
        model.fit(images(), labels, epochs=2, shuffle=False, verbose=0)
        return model.predict(images(), verbose=0)

    found = trained(7)
    np.testing.assert_array_equal(trained(7), found)
    assert np.abs(trained(8) - found).max() > 0


def test_dropout_acts_in_training_only():
    model = shaken(dropout_rate=0.5, stochastic_depth_rate=0.5)
    x = images()
    still = [
        keras.ops.convert_to_numpy(model(x, training=False)) for _ in range(2)
    ]
    np.testing.assert_array_equal(*still)
    moving = [
        keras.ops.convert_to_numpy(model(x, training=True)) for _ in range(2)
    ]
    assert np.abs(moving[0] - moving[1]).max() > 1e-3


def test_stochastic_depth_grows_linearly_with_depth():
    model = VisionTransformer(
        ViTConfig(**{**CONFIG, "num_layers": 5, "stochastic_depth_rate": 0.4})
    )
    rates = [
        model.get_layer(f"block_{i}").stochastic_depth_rate for i in range(5)
    ]
    np.testing.assert_allclose(rates, [0, 0.1, 0.2, 0.3, 0.4])


def test_head_starts_at_zero_with_the_given_bias():
    model = VisionTransformer(ViTConfig(**CONFIG, head_bias=-10.0))
    logits = model.predict(images(), verbose=0)
    np.testing.assert_array_equal(logits, -10.0)
