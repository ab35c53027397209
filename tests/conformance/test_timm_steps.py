"""Steps of our optimizers and rates of our schedules against timm's own."""

import functools
import importlib
import itertools
from typing import Any

import keras
import numpy as np
import pytest
from timm_stub import import_timm

from keras_vit.training.optimizers import (
    OptimizerConfig,
    make_optimizer,
)

import_timm()
optim: Any = importlib.import_module("timm.optim")
scheduler: Any = importlib.import_module("timm.scheduler")
torch: Any = importlib.import_module("torch")

SHAPES = {"kernel": (16, 8), "bias": (8,)}
RATE, END, DECAY, STEPS = 0.01, 0.002, 0.1, 12
ALIKE: Any = {"rtol": 2e-4, "atol": 2e-6}
# The name and the options of timm for the same rule, and the schedule: Keras
# multiplies the momentum by the rate of the time, timm by the rate of now.
RULES = {
    "adamw": ("adamw", {"eps": 1e-8}, "cosine"),
    "sgd": ("momentum", {"weight_decay": 0.0}, "constant"),
    "lion": ("lion", {"betas": (0.9, 0.99)}, "linear"),
    "lamb": (
        "lamb",
        {"max_grad_norm": None, "always_adapt": True, "decoupled_decay": True},
        "cosine",
    ),
}
WITHOUT_DECAY = ("sgd",)  # timm decays with the gradient, ours apart from it


SCHEDULES = {
    "cosine": functools.partial(
        scheduler.CosineLRScheduler, warmup_prefix=True
    ),
    "linear": functools.partial(
        scheduler.PolyLRScheduler,
        warmup_prefix=True,
        power=1.0,
        lr_min=END,
    ),
    # It falls after the last step.
    "constant": functools.partial(scheduler.StepLRScheduler),
}


def drawn(seed):
    random = np.random.default_rng(seed)
    return [random.normal(size=x).astype("float32") for x in SHAPES.values()]


def warmup_of(schedule):
    return 0 if schedule == "constant" else 3


def ours(name, gradients):
    """The weights after each step."""
    schedule = RULES[name][2]
    variables = [
        keras.Variable(x, name=name)
        for name, x in zip(SHAPES, drawn(0), strict=True)
    ]
    config = OptimizerConfig(
        name=name,
        learning_rate=RATE,
        weight_decay=0.0 if name in WITHOUT_DECAY else DECAY,
        schedule=schedule,
        end_learning_rate=END if schedule == "linear" else 1e-5,
        warmup_steps=warmup_of(schedule),
        clip_norm=None,
    )
    owner: Any = keras.Layer()
    owner._trainable_variables.extend(variables)
    optimizer = make_optimizer(config, owner, total_steps=STEPS)
    optimizer.build(variables)
    for step in gradients:
        optimizer.apply([keras.ops.convert_to_tensor(x) for x in step])
        yield [np.array(keras.ops.convert_to_numpy(x)) for x in variables]


def theirs(name, gradients):
    """The weights after each step, with timm's schedule of the same shape."""
    parameters = [torch.nn.Parameter(torch.from_numpy(x)) for x in drawn(0)]
    kind, options, schedule = RULES[name]
    options = {"weight_decay": DECAY, **options}
    if name in WITHOUT_DECAY:
        options["weight_decay"] = 0.0
    kernel, bias = parameters
    optimizer = optim.create_optimizer_v2(
        [{"params": [kernel]}, {"params": [bias], "weight_decay": 0.0}],
        kind,
        lr=RATE,
        **options,
    )
    rates = SCHEDULES[schedule](
        optimizer,
        STEPS - warmup_of(schedule),
        warmup_t=warmup_of(schedule),
        warmup_lr_init=0.0,
        t_in_epochs=False,
    )
    for number, step in enumerate(gradients):
        rates.step_update(number)
        for parameter, gradient in zip(parameters, step, strict=True):
            parameter.grad = torch.from_numpy(gradient)
        optimizer.step()
        yield [x.detach().numpy().copy() for x in parameters]


@pytest.mark.parametrize("name", RULES)
def test_each_step_is_that_of_timm(name):
    gradients = [drawn(1 + i) for i in range(STEPS)]
    steps = itertools.zip_longest(
        ours(name, gradients), theirs(name, gradients)
    )
    for found, expected in steps:
        for x, y in zip(found, expected, strict=True):
            np.testing.assert_allclose(x, y, **ALIKE)
