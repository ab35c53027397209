import keras
import numpy as np
import pytest

from keras_vit.training.optimizers import OptimizerConfig, make_optimizer


def tiny_model():
    model = keras.Sequential(
        [
            keras.layers.Dense(2, name="dense", bias_initializer="ones"),
            keras.layers.LayerNormalization(name="norm"),
        ]
    )
    model.build((None, 3))
    return model


def made(variables, epochs=10, steps_per_epoch=4, **options):
    return make_optimizer(
        OptimizerConfig(**options),
        variables,
        epochs=epochs,
        steps_per_epoch=steps_per_epoch,
    )


STEPS = np.array([0, 1, 4, 8, 9, 24, 39, 40])


def rates(**options):
    """Learning rates at STEPS of 10 epochs with 4 steps each."""
    optimizer = made(tiny_model().trainable_variables, **options)
    found = []
    for step in STEPS:
        optimizer.iterations.assign(step)
        found.append(float(optimizer.learning_rate))
    return found


def test_warm_up_is_linear_and_cosine_ends_at_zero():
    warm = 0.1 * STEPS / 8  # Two of the ten epochs.
    cosine = 0.05 * (1 + np.cos(np.pi * (STEPS - 8) / 32))
    np.testing.assert_allclose(
        rates(learning_rate=0.1, warmup_epochs=2),
        np.where(STEPS < 8, warm, cosine),
        atol=1e-7,
    )


def test_without_warm_up_it_starts_at_the_top():
    np.testing.assert_allclose(
        rates(learning_rate=0.1, warmup_epochs=0),
        0.05 * (1 + np.cos(np.pi * STEPS / 40)),
        atol=1e-7,
    )


@pytest.mark.parametrize("name", ["adamw", "sgd"])
def test_only_kernels_decay(name):
    model = tiny_model()
    variables = model.trainable_variables
    before = {x.path: keras.ops.convert_to_numpy(x) for x in variables}
    optimizer = made(
        variables,
        name=name,
        learning_rate=0.5,
        weight_decay=0.2,
        warmup_epochs=0,
    )
    zeros = [keras.ops.zeros(x.shape) for x in variables]
    optimizer.apply(zeros, variables)
    for variable in variables:
        # Decoupled: w - learning rate * decay * w.
        left = 1 - 0.5 * 0.2 if variable.path.endswith("kernel") else 1
        np.testing.assert_allclose(
            keras.ops.convert_to_numpy(variable),
            left * before[variable.path],
            rtol=1e-6,
        )


def test_gradients_are_clipped_by_their_common_norm():
    variable = keras.Variable(np.zeros(4, "float32"), name="kernel")
    other = keras.Variable(np.zeros(1, "float32"), name="kernel")
    optimizer = made(
        [variable, other],
        name="sgd",
        learning_rate=1.0,
        warmup_epochs=0,
        weight_decay=0.0,
        clip_norm=0.5,
    )
    gradients = [np.full(4, 6.0, "float32"), np.full(1, 5.0, "float32")]
    optimizer.apply(
        [keras.ops.convert_to_tensor(x) for x in gradients], [variable, other]
    )
    norm = np.sqrt(4 * 36 + 25)  # 13
    for x, gradient in zip([variable, other], gradients, strict=True):
        np.testing.assert_allclose(
            keras.ops.convert_to_numpy(x), -gradient * 0.5 / norm, rtol=1e-5
        )


def test_sgd_has_the_momentum_of_the_paper():
    variable = keras.Variable(np.zeros(1, "float32"), name="kernel")
    optimizer = made(
        [variable],
        epochs=10**6,
        name="sgd",
        learning_rate=1.0,
        warmup_epochs=0,
        weight_decay=0.0,
        clip_norm=100.0,
    )
    for _ in range(3):
        optimizer.apply([keras.ops.ones(1)], [variable])
    # Velocities 1, 1.9 and 2.71.
    np.testing.assert_allclose(
        keras.ops.convert_to_numpy(variable), -5.61, rtol=1e-5
    )


def test_unknown_optimizer_names_the_known():
    with pytest.raises(ValueError, match="'adam'.*'adamw', 'sgd'"):
        OptimizerConfig(name="adam")
