"""Lion, Lamb, Muon and schedule-free, against their papers in NumPy."""

import keras
import numpy as np
import pytest
from tiny_runs import DATASET, Interrupt, recipe, values

from keras_vit.training import OptimizerConfig, TrainingConfig, train
from keras_vit.training.checkpointing import averaged
from keras_vit.training.optimizers import OPTIMIZERS, make_optimizer

RATE, DECAY, STEPS = 0.1, 0.2, 3
MORE = ("lion", "lamb", "muon", "schedule_free")
CONSTANT = {"warmup_steps": 0, "schedule": "constant", "clip_norm": None}


def steps_of(name, *, layer="dense", decay=DECAY, **training):
    """The kernel of a layer before and after each step, and the gradients."""
    if name not in OPTIMIZERS:
        pytest.skip(f"This Keras has no {name}.")
    random = np.random.default_rng(0)
    model = keras.Sequential([keras.layers.Dense(3, name=layer)])
    model.build((None, 5))
    optimizer = make_optimizer(
        OptimizerConfig(
            name=name, learning_rate=RATE, weight_decay=decay, **CONSTANT
        ),
        model,
        total_steps=40,
        training=TrainingConfig(**training) if training else None,
    )
    model.compile(optimizer=optimizer)
    optimizer.build(model.trainable_variables)
    kernel, bias = model.trainable_variables
    found, gradients = [np.array(keras.ops.convert_to_numpy(kernel))], []
    for _ in range(STEPS):
        gradient = random.normal(size=kernel.shape).astype("float32")
        tensors = [
            keras.ops.convert_to_tensor(gradient),
            keras.ops.zeros(bias.shape),
        ]
        optimizer.apply(tensors, [kernel, bias])
        found.append(np.array(keras.ops.convert_to_numpy(kernel)))
        gradients.append(gradient)
    return found, gradients, model


def test_lion_steps_by_signs():
    (w, *found), gradients, _ = steps_of("lion")
    m = 0.0
    for g, after in zip(gradients, found, strict=True):
        # arXiv:2302.06675, algorithm 2.
        w = w - RATE * (np.sign(0.9 * m + 0.1 * g) + DECAY * w)
        m = 0.99 * m + 0.01 * g
        # Keras decays first; signs do not depend on it.
        np.testing.assert_allclose(after, w, rtol=1e-5, atol=1e-6)


def adam(gradients, epsilon):
    m = v = 0.0
    for t, g in enumerate(gradients, 1):
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g**2
        yield (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + epsilon)


def test_lamb_has_the_norm_of_the_weights():
    (w, *found), gradients, _ = steps_of("lamb", decay=0.0)
    for r, after in zip(adam(gradients, 1e-6), found, strict=True):
        # arXiv:1904.00962, algorithm 2, with the identity for phi.
        w = w - RATE * np.linalg.norm(w) / np.linalg.norm(r) * r
        np.testing.assert_allclose(after, w, rtol=1e-4, atol=1e-6)


def test_muon_steps_are_orthogonal():
    (w, *found), gradients, _ = steps_of("muon")
    m = 0.0
    for g, after in zip(gradients, found, strict=True):
        m = 0.95 * m + g
        u, _, v = np.linalg.svd(g + 0.95 * m, full_matrices=False)
        step = (w * (1 - RATE * DECAY) - after) / RATE
        # arXiv:2502.16982, equation 4: 0.2 sqrt(max(5, 3)) U V^T.
        sizes = np.diag(u.T @ step @ v.T) / (0.2 * np.sqrt(5))
        # Five iterations bring singular values near 1 (Keller Jordan: 0.7 to
        # 1.2), and leave the vectors.
        assert ((0.6 < sizes) & (sizes < 1.3)).all()
        others = u.T @ step @ v.T - np.diag(np.diag(u.T @ step @ v.T))
        assert np.abs(others).max() < 1e-4
        w = after


def test_muon_leaves_the_classification_layer_to_adamw():
    (w, *found), gradients, _ = steps_of("muon", layer="predictions")
    for step, after in zip(adam(gradients, 1e-8), found, strict=True):
        w = w * (1 - RATE * DECAY) - RATE * step
        np.testing.assert_allclose(after, w, rtol=1e-4, atol=1e-5)


def test_schedule_free_is_evaluated_at_the_average():
    (w, *found), gradients, model = steps_of("schedule_free", decay=0.0)
    z = x = w
    v = 0.0
    for t, (g, after) in enumerate(zip(gradients, found, strict=True), 1):
        # arXiv:2405.15682, algorithm 1, at a constant rate: c = 1 / t.
        v = 0.999 * v + 0.001 * g**2
        z = z - RATE * g / (np.sqrt(v / (1 - 0.999**t)) + 1e-8)
        x = (1 - 1 / t) * x + z / t
        np.testing.assert_allclose(
            after, 0.1 * z + 0.9 * x, rtol=1e-4, atol=1e-5
        )
    with averaged(model):
        kernel = np.array(keras.ops.convert_to_numpy(model.weights[0]))
        np.testing.assert_allclose(kernel, x, rtol=1e-4, atol=1e-5)
    kernel = np.array(keras.ops.convert_to_numpy(model.weights[0]))
    assert (kernel == found[-1]).all()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"name": "lion", "beta_2": 0.9}, "beta_2"),
        ({"name": "muon", "momentum": 0.5}, "momentum"),
        ({"name": "schedule_free"}, 'Set schedule to "constant"'),
    ],
)
def test_what_an_optimizer_does_not_read_is_refused(fields, message):
    if fields["name"] not in OPTIMIZERS:
        pytest.skip("This Keras has it not.")
    with pytest.raises(ValueError, match=message):
        OptimizerConfig(**fields)


def test_two_averages_are_refused():
    with pytest.raises(ValueError, match="ema_decay=0.5"):
        steps_of("schedule_free", ema_decay=0.5)


@pytest.mark.once
@pytest.mark.parametrize("name", MORE)
def test_a_run_that_was_stopped_ends_with_the_same_weights(name, tmp_path):
    if name not in OPTIMIZERS:
        pytest.skip(f"This Keras has no {name}.")

    def run(folder, **options):
        made = recipe(tmp_path / folder)
        rule = OptimizerConfig(
            name=name, learning_rate=1e-3, warmup_steps=1, schedule="constant"
        )
        object.__setattr__(made, "optimizer", rule)
        return train(made, dataset=DATASET, **options)

    whole = run("whole")
    with pytest.raises(KeyboardInterrupt):
        run("stopped", callbacks=[Interrupt()])
    pairs = zip(values(whole.model), values(run("stopped").model), strict=True)
    assert all((x == y).all() for x, y in pairs)
