"""Gives timm's own tests our optimizers: `pytest -p timm_optimizers ...`.

A plugin of pytest for timm's test_optim.py, on the torch backend: what the
tests take from timm, `create_optimizer_v2` and `get_optimizer_class`, hands out
the optimizers of a recipe. Those that have no counterpart are left out, as are
learning rates that someone sets during the training, which the config has as a
function of the step, and weights in 16 bits, of which there are none.
"""

import importlib
import sys
import types
import unittest
from typing import Any

import keras
import torch
from listed import mark
from timm_stub import import_timm

from keras_vit.training.optimizers import OptimizerConfig, make_optimizer

# torch's own test cases are theirs, and need a package for texts alone.
sys.modules.setdefault(
    "expecttest",
    types.SimpleNamespace(TestCase=unittest.TestCase),  # pyright: ignore
)
timm: Any = import_timm()
optimizers: Any = importlib.import_module("timm.optim")

NAMES = ("adamw", "sgd", "lion", "lamb", "muon")
TAKEN = (
    "test_optim_factory",
    "test_optimizer_convergence",
    "test_optimizer_no_grad_step",
    "test_optimizer_copy",
    "test_optimizer_param_group_independent",
    "test_optimizer_resume",
    "test_optimizer_grad_unchanged",
)
STEPS = 1_000_000  # a constant rate has no end


class Owner:
    """Stands for a model where only its variables matter."""

    def __init__(self, variables):
        self.trainable_variables = variables


class Ours(torch.optim.Optimizer):
    """An optimizer of a recipe that steps parameters of torch.

    One is made for each group of parameters. All that it remembers stands in
    `state`, so that what torch saves and loads is what the steps depend on.
    """

    def __init__(self, params, name, lr=None, weight_decay=0.0, **options):
        defaults = {"lr": lr, "weight_decay": weight_decay, "name": name}
        if betas := options.pop("betas", None):
            defaults["betas"] = betas
        super().__init__(params, {**defaults, **options})

    def step(self, closure=None):
        with torch.enable_grad():
            loss = closure() if closure else None
        for group in self.param_groups:
            if all(x.grad is not None for x in group["params"]):
                self._update(group)
        return loss

    @torch.no_grad()
    def _update(self, group):
        parameters = group["params"]
        optimizer, variables = self._made(group)
        for variable, x in zip(variables, parameters, strict=True):
            variable.assign(x.detach().float())
        state = self.state[parameters[0]]
        for number, variable in enumerate(optimizer.variables):
            if f"{number}" in state:
                variable.assign(state[f"{number}"])
        optimizer.apply([x.grad.float() for x in parameters], variables)
        for number, variable in enumerate(optimizer.variables):
            state[f"{number}"] = variable.value.detach().clone()
        for variable, x in zip(variables, parameters, strict=True):
            x.copy_(variable.value)

    def _made(self, group):
        known = self.__dict__.setdefault("_optimizers", {})
        key = id(group["params"][0])
        if key not in known:
            known[key] = made(group)
        return known[key]


def made(group):
    """Make the optimizer of a group of parameters, and its variables."""
    variables = []
    for number, x in enumerate(group["params"]):
        with keras.name_scope(f"{number}"):
            # As timm's, an optimizer of bare tensors decays all of them.
            variables.append(keras.Variable(x.detach().float(), name="kernel"))
    names = ("beta_1", "beta_2")
    options: dict[str, Any] = dict(
        zip(names, group.get("betas", ()), strict=False)
    )
    if group["name"] == "lion":
        options.pop("beta_2", None)  # Keras's own
    if "momentum" in group:
        options["momentum"] = group["momentum"]
    config = OptimizerConfig(
        name=group["name"],
        learning_rate=group["lr"],
        weight_decay=group["weight_decay"],
        schedule="constant",
        warmup_steps=0,
        clip_norm=None,
        **options,
    )
    optimizer = make_optimizer(config, Owner(variables), total_steps=STEPS)
    optimizer.build(variables)
    return optimizer, variables


def create_optimizer_v2(model_or_params, opt, **options):
    params = model_or_params
    if isinstance(params, torch.nn.Module):
        params = params.parameters()
    return Ours(list(params), opt, **options)


optimizers.create_optimizer_v2 = create_optimizer_v2
optimizers.get_optimizer_class = lambda name, bind_defaults=True: Ours


def pytest_collection_modifyitems(config, items):
    mark(items)
    kept, left_out = [], []
    for item in items:
        values = item.callspec.params if hasattr(item, "callspec") else {}
        name = values.get("optimizer") or values.get("config", ("",))[0]
        taken = (
            item.originalname in TAKEN
            and name in NAMES
            and values.get("dtype", torch.float32) == torch.float32
            and not values.get("foreach")
        )
        (kept if taken else left_out).append(item)
    items[:] = kept
    config.hook.pytest_deselected(items=left_out)


def pytest_runtest_setup():
    torch.manual_seed(0)
