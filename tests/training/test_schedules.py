import json
import pathlib

import keras
import numpy as np
import pytest

from keras_vit.training.optimizers import (
    OptimizerConfig,
    WarmupCooldown,
    make_schedule,
)

REFERENCE = pathlib.Path(__file__).parents[1] / "reference" / "schedules.npz"


def reference():
    """Settings and rates of `create_learning_rate_schedule` of the original."""
    with np.load(REFERENCE) as file:
        settings = json.loads(str(file["settings"]))
        return [
            pytest.param(setting, file[f"schedule_{k}"], id=f"{k}")
            for k, setting in enumerate(settings)
        ]


def rates(schedule, steps):
    return [float(schedule(np.int32(step))) for step in steps]


def made(total_steps=100, accumulation_steps=1, steps_per_epoch=10, **fields):
    return make_schedule(
        OptimizerConfig(**fields),
        total_steps=total_steps,
        steps_per_epoch=steps_per_epoch,
        accumulation_steps=accumulation_steps,
    )


@pytest.mark.parametrize(("setting", "expected"), reference())
def test_rates_are_those_of_the_original(setting, expected):
    schedule = made(
        total_steps=setting["total_steps"],
        schedule=setting["decay_type"],
        learning_rate=setting["base"],
        warmup_steps=setting["warmup_steps"],
        end_learning_rate=setting.get("linear_end", 1e-5),
    )
    assert len(expected) == setting["total_steps"] + 6
    np.testing.assert_allclose(
        rates(schedule, range(len(expected))), expected, rtol=2e-6, atol=1e-8
    )


STEPS = np.array([0, 5, 10, 50, 95, 99, 100])


def test_constant_stays_after_the_warm_up():
    schedule = made(schedule="constant", learning_rate=0.5, warmup_steps=10)
    expected = 0.5 * np.minimum(STEPS / 10, 1)
    np.testing.assert_allclose(rates(schedule, STEPS), expected, rtol=1e-6)


def test_inverse_square_root_with_cool_down():
    schedule = made(
        schedule="rsqrt",
        learning_rate=0.8,
        warmup_steps=10,
        timescale=20,
        cooldown_steps=10,
    )
    after = np.maximum(STEPS - 10, 0)
    expected = 0.8 / np.sqrt(1 + after / 20)
    expected *= np.minimum(STEPS / 10, 1) * np.minimum((100 - STEPS) / 10, 1)
    np.testing.assert_allclose(rates(schedule, STEPS), expected, atol=1e-7)


def test_warm_up_in_epochs_and_in_steps_is_the_same():
    in_epochs = rates(made(warmup_epochs=2.5), STEPS)
    assert in_epochs == rates(made(warmup_steps=25), STEPS)
    assert in_epochs != rates(made(warmup_steps=24), STEPS)


@pytest.mark.parametrize(
    ("steps_per_epoch", "cooldown", "expected"),
    [(10, 0, 50), (5, 0, 25), (50, 0, 50), (50, 20, 40), (500, 0, 50)],
)
def test_warm_up_is_five_epochs_or_half_of_a_short_training(
    steps_per_epoch, cooldown, expected
):
    fields = {"steps_per_epoch": steps_per_epoch, "cooldown_steps": cooldown}
    found = rates(made(**fields), STEPS)
    assert found == rates(made(warmup_steps=expected, **fields), STEPS)
    assert found != rates(made(warmup_steps=expected - 1, **fields), STEPS)


def test_calls_that_accumulate_do_not_count():
    schedule = made(warmup_steps=10, accumulation_steps=4)
    plain = made(warmup_steps=10)
    calls = [0, 3, 4, 7, 40, 399]
    expected = rates(plain, [0, 0, 1, 1, 10, 99])
    assert rates(schedule, calls) == expected


@pytest.mark.parametrize("name", ["cosine", "linear", "constant", "rsqrt"])
def test_schedules_survive_their_config(name):
    schedule = made(schedule=name, warmup_steps=10, cooldown_steps=5)
    config = keras.optimizers.schedules.serialize(schedule)
    again = keras.optimizers.schedules.deserialize(
        json.loads(json.dumps(config))
    )
    assert isinstance(again, WarmupCooldown)
    assert rates(again, STEPS) == rates(schedule, STEPS)


@pytest.mark.parametrize(
    "fields",
    [
        {"warmup_steps": 100},
        {"warmup_epochs": 10},
        {"warmup_steps": 60, "cooldown_steps": 40},
    ],
)
def test_a_training_of_warm_up_alone_is_refused(fields):
    with pytest.raises(ValueError, match="shorter than the training"):
        made(**fields)
