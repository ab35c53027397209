import keras
import numpy as np
import pytest

from keras_vit.training import ModelConfig, Recipe, TrainingConfig
from keras_vit.training.build import make_model
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


class Owner:
    """Stands for a model where only its variables matter."""

    def __init__(self, *variables):
        self.trainable_variables = list(variables)


def made(model, training=None, **fields):
    """An optimizer for 40 steps without warm-up, at a constant rate."""
    fields = {"warmup_steps": 0, "schedule": "constant", **fields}
    return make_optimizer(
        OptimizerConfig(**fields), model, total_steps=40, training=training
    )


def numpy(variables):
    return [keras.ops.convert_to_numpy(x).copy() for x in variables]


@pytest.mark.parametrize("name", ["adamw", "sgd"])
def test_only_kernels_decay(name):
    model = tiny_model()
    variables = model.trainable_variables
    before = {x.path: keras.ops.convert_to_numpy(x) for x in variables}
    optimizer = made(model, name=name, learning_rate=0.5, weight_decay=0.2)
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
        Owner(variable, other),
        name="sgd",
        learning_rate=1.0,
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
        Owner(variable),
        name="sgd",
        learning_rate=1.0,
        weight_decay=0.0,
        clip_norm=None,
    )
    for _ in range(3):
        optimizer.apply([keras.ops.ones(1)], [variable])
    # Velocities 1, 1.9 and 2.71.
    np.testing.assert_allclose(
        keras.ops.convert_to_numpy(variable), -5.61, rtol=1e-5
    )


def test_adam_is_that_of_the_paper():
    """With bias-corrected averages of 0.9 and 0.999."""
    variable = keras.Variable(np.zeros(2, "float32"), name="kernel")
    optimizer = made(
        Owner(variable), learning_rate=0.1, weight_decay=0.0, clip_norm=None
    )
    gradients = np.array([[1.0, -2.0], [0.5, 3.0], [-1.0, 1e-3]], "float32")
    x, m, v = np.zeros(2), np.zeros(2), np.zeros(2)
    for step, gradient in enumerate(gradients, start=1):
        optimizer.apply([keras.ops.convert_to_tensor(gradient)], [variable])
        m = 0.9 * m + 0.1 * gradient
        v = 0.999 * v + 0.001 * gradient**2
        corrected = m / (1 - 0.9**step), v / (1 - 0.999**step)
        x -= 0.1 * corrected[0] / (np.sqrt(corrected[1]) + 1e-8)
    np.testing.assert_allclose(numpy([variable])[0], x, rtol=1e-4)


def test_accumulated_steps_are_one_step_of_the_mean():
    variables = [
        keras.Variable(np.ones(3, "float32"), name="kernel") for _ in range(2)
    ]
    # Three updates: the average of the first is the weight itself.
    gradients = np.array([[3.0, 0, 0], [0, 1.0, 0], [1, 1, 1], [0, 0, 5]])
    gradients = np.concatenate([gradients, [[2.0, 1, 0], [0, 0, 1]]])
    fields = {"weight_decay": 0.1, "learning_rate": 0.5, "clip_norm": 1.0}
    parts, whole = (
        made(
            Owner(variable),
            TrainingConfig(accumulation_steps=steps, ema_decay=0.75),
            **fields,
        )
        for variable, steps in zip(variables, (2, 1), strict=True)
    )
    for gradient in gradients:
        apply(parts, gradient, variables[0])
    for gradient in gradients.reshape(3, 2, 3).mean(axis=1):
        apply(whole, gradient, variables[1])
    np.testing.assert_allclose(*numpy(variables), rtol=1e-6)
    assert int(parts.iterations) == int(whole.iterations) == 3
    for optimizer, variable in zip((parts, whole), variables, strict=True):
        optimizer.finalize_variable_values([variable])
    np.testing.assert_allclose(*numpy(variables), rtol=1e-6)


def apply(optimizer, gradient, variable):
    gradient = keras.ops.convert_to_tensor(gradient.astype("float32"))
    optimizer.apply([gradient], [variable])


def test_moving_average_starts_at_the_first_update():
    variable = keras.Variable(np.zeros(1, "float32"), name="kernel")
    optimizer = made(
        Owner(variable),
        TrainingConfig(ema_decay=0.75),
        name="sgd",
        learning_rate=1.0,
        momentum=0.0,
        weight_decay=0.0,
    )
    for _ in range(3):  # The weight is -1, -2, -3.
        apply(optimizer, np.ones(1), variable)
    optimizer.finalize_variable_values([variable])
    average = 0.75 * (0.75 * -1 + 0.25 * -2) + 0.25 * -3
    np.testing.assert_allclose(numpy([variable])[0], average, rtol=1e-6)


def vit(num_layers=3):
    config = ModelConfig(
        image_size=8, hidden_dim=8, num_layers=num_layers, mlp_dim=8
    )
    return make_model(Recipe(model=config), ["a", "b"])


def depth_of(path):
    """Blocks between a weight of a ViT of three blocks and its head."""
    top = path.split("/")[0]
    named = {"block_0": 3, "block_1": 2, "block_2": 1, "encoder_norm": 0}
    named |= {"predictions": 0, "patch_embed": 4, "position_embedding": 4}
    return named[top]


@pytest.mark.parametrize("name", ["adamw", "sgd"])
def test_layer_decay_scales_the_update_of_each_layer(name):
    """Against the same step with one rate: update and weight decay."""
    models = vit(), vit()
    models[1].set_weights(models[0].get_weights())
    fields = {"learning_rate": 0.1, "weight_decay": 0.5, "name": name}
    generator = np.random.default_rng(0)
    before = numpy(models[0].trainable_variables)
    gradients = [generator.normal(size=x.shape) for x in before]
    moved = []
    for model, layer_decay in zip(models, (0.5, 1.0), strict=True):
        variables = model.trainable_variables
        optimizer = made(model, layer_decay=layer_decay, **fields)
        optimizer.apply(
            [
                keras.ops.convert_to_tensor(x.astype("float32"))
                for x in gradients
            ],
            variables,
        )
        moved.append(
            [x - y for x, y in zip(numpy(variables), before, strict=True)]
        )
    paths = [x.path for x in models[0].trainable_variables]
    for path, decayed, plain in zip(paths, *moved, strict=True):
        assert np.abs(plain).max() > 1e-3
        np.testing.assert_allclose(
            decayed, plain * 0.5 ** depth_of(path), rtol=1e-3, atol=1e-6
        )


def test_layer_decay_needs_blocks():
    with pytest.raises(ValueError, match="layer_decay=1"):
        made(tiny_model(), layer_decay=0.5)


def test_unknown_optimizer_names_the_known():
    with pytest.raises(ValueError, match="'adam'.*'adamw', 'sgd'"):
        OptimizerConfig(name="adam")
