"""The scripts in recipes/, which are no package, as modules; a tiny run."""

import contextlib
import dataclasses
import importlib.util
import io
import pathlib
import sys
import types
from typing import TypeVar

from keras_vit.runs.script import parse
from keras_vit.training import Recipe

RECIPES = pathlib.Path(__file__).parents[2] / "recipes"
CONFIGS = RECIPES / "configs"
Record = TypeVar("Record")

# Two epochs of a model of some hundred weights on a fifth of the digits, read
# without tf.data, whose programs would take longer.
TINY = """
data: {reader: pillow, test_fraction: 0.4, validation_fraction: 0.4}
model: {patch_size: 8, hidden_dim: 8, num_layers: 1, mlp_dim: 8, num_heads: 2}
preprocessing: {train: squash, evaluation: squash, flip: false}
augmentation: {shift: 0.1}
optimizer: {learning_rate: 0.01, warmup_epochs: 0.5}
training: {epochs: 2, batch_size: 64}
"""

# Two learning rates, two steps each.
TINY_SWEEP = """
data:
  name: digits
  reader: pillow
  train_split: "train[:16]"
  validation_split: "train[16:24]"
  test_split: "train[24:31]"
model: {patch_size: 8, hidden_dim: 8, num_layers: 1, mlp_dim: 8, num_heads: 2}
preprocessing: {train: squash, evaluation: squash, flip: false}
optimizer: {name: sgd, warmup_steps: 0}
training: {steps: 2, batch_size: 4}
sweep: {learning_rates: [0.001, 0.5], train_split: "train[:24]"}
"""


def script(name: str) -> types.ModuleType:
    """Imports recipes/<name>.py without running it."""
    path = RECIPES / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"recipes_{name}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # jsonargparse looks for sources there.
    spec.loader.exec_module(module)
    return module


def output_of(name: str, *arguments: object) -> str:
    """What a recipe prints, which must end well."""
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        assert script(name).main([*map(str, arguments)]) == 0
    return output.getvalue()


def config(path: str, record: type[Record] = Recipe) -> Record:
    """The recipe of recipes/configs/<path>.yaml."""
    return parse(record, ["--config", str(CONFIGS / f"{path}.yaml")], "")


def check(recipe: Recipe, expected: dict) -> None:
    """Raises unless the fields "group.name" have the values expected."""
    found = dataclasses.asdict(recipe)
    wrong = {}
    for key, value in expected.items():
        group, field = key.split(".")
        if found[group][field] != value:
            wrong[key] = (found[group][field], value)
    assert wrong == {}
