"""The training of every backend against one in plain JAX.

tools/make_loss_curve.py made tests/reference/loss_curve.npz and shares no code
with keras_vit. What each backend holds to it in its own process, the backends
hold to each other.
"""

import json
import pathlib

import numpy as np
import pytest

from keras_vit.training import (
    ModelConfig,
    OptimizerConfig,
    Recipe,
    TrainingConfig,
    build,
    metrics_log,
    training_run,
)
from keras_vit.training.optimizers import make_optimizer
from keras_vit.training.stages import make_plan

REFERENCE = pathlib.Path(__file__).parents[1] / "reference"
CLASS_NAMES = tuple("0123456789")
EPOCH = 5  # steps
RECIPE = Recipe(
    model=ModelConfig(
        weights=str(REFERENCE / "vit_tiny_google.npz"), head="keep"
    ),
    optimizer=OptimizerConfig(
        name="sgd",
        learning_rate=0.03,
        warmup_steps=5,
        weight_decay=0.0,
        clip_norm=1.0,
    ),
    training=TrainingConfig(
        steps=50, batch_size=8, label_smoothing=0.0, log_every_steps=1
    ),
)


class Given:
    """The batches of the reference in their order."""

    def __init__(self, curve):
        self.images = curve["images"][curve["order"]]
        self.labels = np.eye(10, dtype="float32")[
            curve["labels"][curve["order"]]
        ]

    def names_of(self, step):
        return [str(step)]

    def from_step(self, step):
        import tensorflow as tf

        tensors = self.images[step:], self.labels[step:]
        return tf.data.Dataset.from_tensor_slices(tensors).repeat()


@pytest.fixture(scope="module")
def curve():
    with np.load(REFERENCE / "loss_curve.npz") as file:
        return dict(file)


@pytest.fixture(scope="module")
def rows(curve, tmp_path_factory):
    folder = tmp_path_factory.mktemp("parity")
    plan = make_plan(RECIPE, steps_per_epoch=EPOCH)
    model = build.make_model(RECIPE, CLASS_NAMES)
    optimizer = make_optimizer(
        RECIPE.optimizer,
        model,
        total_steps=plan.total,
        steps_per_epoch=EPOCH,
        training=RECIPE.training,
    )
    training_run.Loop(folder, plan, CLASS_NAMES).run(
        model, optimizer, build.make_loss(RECIPE.training), Given(curve)
    )
    text = (folder / metrics_log.METRICS).read_text()
    return [json.loads(line) for line in text.splitlines()]


def test_ten_steps_agree_with_plain_jax_closely(rows, curve):
    losses = [row["loss"] for row in rows[:10]]
    np.testing.assert_allclose(losses, curve["losses"][:10], rtol=1e-5)
    norms = [row["gradient_norm"] for row in rows[:10]]
    np.testing.assert_allclose(norms, curve["norms"][:10], rtol=1e-4)


def test_fifty_steps_agree_with_plain_jax(rows, curve):
    losses = [row["loss"] for row in rows]
    # Half of 1e-4, so that no two backends differ by more than that.
    np.testing.assert_allclose(losses, curve["losses"], rtol=5e-5)


def test_the_rates_are_those_of_the_reference(rows, curve):
    # A line has the rate of the step that comes next.
    rates = [row["learning_rate"] for row in rows[:-1]]
    np.testing.assert_allclose(rates, curve["rates"][1:], rtol=1e-5, atol=1e-9)


def test_the_reference_learned_something(curve):
    """So that the curves of two models that stand still do not pass."""
    assert curve["losses"][-1] < curve["losses"][0] / 2
    assert (curve["norms"] > 1).all()  # each step was clipped
