"""What saves memory and time changes no update, alone and together."""

import itertools

import keras
import numpy as np
import pytest

from keras_vit.training import (
    ModelConfig,
    OptimizerConfig,
    Recipe,
    TrainingConfig,
)
from keras_vit.training.build import make_loss, make_model
from keras_vit.training.optimizers import make_optimizer

OPTIONS = {
    "precision": ("float32", "mixed_bfloat16", "mixed_float16"),
    "accumulation_steps": (1, 2),
    "rematerialize": (False, True),
    "ema_decay": (0.0, 0.5),
    "steps_per_execution": (1, 2),
}
PLAIN = {name: values[0] for name, values in OPTIONS.items()}
# Of 8 and 11 bits, over two updates; float32 differs by the order of sums.
TOLERANCES = {
    "float32": 2e-6,
    "mixed_bfloat16": 1e-2,
    "mixed_float16": 1e-2 / 2**3,
}

IMAGES = np.random.default_rng(0).integers(0, 256, (8, 8, 8, 1), "uint8")
LABELS = np.eye(2, dtype="float32")[[0, 1, 1, 0, 1, 0, 0, 0]]


def parameters():
    """All combinations; slow but for one option alone and all together."""
    found = []
    for values in itertools.product(*OPTIONS.values()):
        options = dict(zip(OPTIONS, values, strict=True))
        changed = [name for name in OPTIONS if options[name] != PLAIN[name]]
        quick = len(changed) in (1, len(OPTIONS))
        marks = [] if quick else [pytest.mark.slow]
        if changed:
            name = "-".join(str(value) for value in values)
            found.append(pytest.param(options, id=name, marks=marks))
    return found


def trained(training):
    """Weights before and after two updates from four images each."""
    recipe = Recipe(
        model=ModelConfig(
            image_size=8, hidden_dim=8, num_layers=1, mlp_dim=8, num_heads=2
        ),
        optimizer=OptimizerConfig(
            name="sgd", learning_rate=0.5, warmup_steps=0, schedule="linear"
        ),
        training=training,
    )
    keras.utils.set_random_seed(0)
    model = make_model(recipe, ["cat", "dog"])
    model.get_layer("predictions").kernel.assign(
        np.random.default_rng(1).normal(size=(8, 2)) / 4
    )
    model.compile(
        make_optimizer(
            recipe.optimizer, model, total_steps=4, training=training
        ),
        make_loss(training),
        steps_per_execution=training.steps_per_execution,
    )
    before = weights(model)
    model.fit(
        IMAGES,
        LABELS,
        batch_size=training.micro_batch_size,
        shuffle=False,
        verbose=0,
    )
    return before, weights(model)


def weights(model):
    return {
        x.path: keras.ops.convert_to_numpy(x).copy()
        for x in model.trainable_variables
    }


@pytest.fixture(scope="module")
def plain():
    """Runs without options but the average, by its decay."""
    return {
        decay: trained(TrainingConfig(batch_size=4, ema_decay=decay))
        for decay in OPTIONS["ema_decay"]
    }


@pytest.mark.parametrize("options", parameters())
def test_the_same_update(options, plain):
    several = options["steps_per_execution"] > 1
    if several and keras.backend.backend() == "torch":
        with pytest.raises(ValueError, match="steps_per_execution=2"):
            trained(TrainingConfig(batch_size=4, **options))
        return
    before, after = trained(TrainingConfig(batch_size=4, **options))
    expected_before, expected = plain[options["ema_decay"]]
    for path, value in expected.items():
        np.testing.assert_array_equal(before[path], expected_before[path])
        np.testing.assert_allclose(
            after[path], value, atol=TOLERANCES[options["precision"]]
        )
    moved = [np.abs(after[path] - before[path]).max() for path in before]
    assert np.max(moved) > 0.02


def test_the_average_is_not_the_last_step(plain):
    last, average = plain[0.0][1], plain[0.5][1]
    differences = [np.abs(last[x] - average[x]).max() for x in last]
    assert np.max(differences) > 0.01
