import dataclasses

import keras
import numpy as np
import pytest
import tiny_training as tiny

from keras_vit.training import checkpointing
from keras_vit.training.metrics_log import GradientWatch


@pytest.mark.parametrize(
    ("number", "parts"),
    [
        pytest.param(6, 1, marks=pytest.mark.once),
        (8, 2),
        pytest.param(10, 1, marks=pytest.mark.once),
    ],
)
def test_the_step_and_its_images_are_named(tmp_path, number, parts):
    """In the midst of a stretch, at a line, and in its last step."""
    poisoned = tiny.Poisoned(steps=(number - 1, number))
    plan = dataclasses.replace(tiny.PLAN, batches_per_step=parts)
    accumulated = parts if parts > 1 else None
    rule = tiny.optimizer(gradient_accumulation_steps=accumulated)
    with pytest.raises(FloatingPointError) as stop:
        tiny.train(tmp_path, plan, batches=poisoned, rule=rule)
    message = str(stop.value)
    assert f"at step {number}." in message
    for name in tiny.stream().names_of(number - 1):
        assert name in message
    folder = tmp_path / checkpointing.FOLDER
    assert checkpointing.checkpoint_steps(folder) == [5]
    arrays, _ = tiny.newest(folder)
    assert all(np.isfinite(array).all() for array in arrays.values())


def test_the_norm_is_that_of_all_gradients_before_they_are_clipped():
    inputs = np.array([[1.0, 2.0], [3.0, -1.0]], "float32")
    targets = np.array([[1.0], [0.5]], "float32")
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(0.1, global_clipnorm=1e-3), "mse")
    watch = GradientWatch(model.optimizer)
    kernel, bias = (keras.ops.convert_to_numpy(w) for w in model.weights)
    error = inputs @ kernel + bias - targets
    gradient = np.append(2 * inputs.T @ error / 2, 2 * error.sum() / 2)
    model.fit(inputs, targets, epochs=1, batch_size=2, verbose=0)
    assert float(watch.norm) == pytest.approx(
        np.linalg.norm(gradient), rel=1e-5
    )
    # And clipped they are: the step is as long as the limit says.
    after = [keras.ops.convert_to_numpy(w).ravel() for w in model.weights]
    moved = np.append(*after) - np.append(kernel.ravel(), bias)
    assert np.linalg.norm(moved) == pytest.approx(1e-4, rel=1e-2)


def test_a_gradient_that_is_no_number_is_noticed_at_its_step():
    """The loss is finite where its slope is not: sqrt at 0."""
    model = keras.Sequential(
        [
            keras.Input((1,)),
            keras.layers.Dense(1, kernel_initializer="zeros", use_bias=False),
            keras.layers.Lambda(lambda x: keras.ops.sqrt(x)),
        ]
    )
    model.compile(keras.optimizers.SGD(0.0), "mae")
    watch = GradientWatch(model.optimizer)
    ones = np.ones((1, 1), "float32")
    model.fit(ones, ones, epochs=1, verbose=0)
    assert int(watch.first) == 1


def test_an_overflow_of_float16_is_no_error():
    """The loss scale is there to find it: such steps are passed over."""
    model = keras.Sequential(
        [keras.Input((2,)), keras.layers.Dense(1, dtype="mixed_float16")]
    )
    optimizer = keras.optimizers.LossScaleOptimizer(
        keras.optimizers.SGD(0.1), initial_scale=1e30
    )
    model.compile(optimizer, "mse", auto_scale_loss=False)
    watch = GradientWatch(model.optimizer)
    ones = np.ones((2, 2), "float32")
    model.fit(ones, ones[:, :1], epochs=3, verbose=0)
    assert int(watch.first) == 0
    assert int(model.optimizer.iterations) == 0
