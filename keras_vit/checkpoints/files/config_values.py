"""Values of a config.json, checked and under our names."""

import dataclasses
import json
from collections.abc import Callable

from keras_vit.checkpoints.files.tensors import DAMAGED, refuse
from keras_vit.models.options import ViTConfig

__all__ = [
    "ACTIVATIONS",
    "converted",
    "flag",
    "fraction",
    "pair",
    "pixels",
    "read_json",
    "words",
]

MAX_JSON_BYTES = 16 * 2**20
# Others compute something else than the models here.
ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_python": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu_tanh": "gelu_tanh",
    "gelu_approximate": "gelu_tanh",
    "quick_gelu": "quick_gelu",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
}


def read_json(path) -> dict:
    """Read a JSON object of a bounded size."""
    if path.stat().st_size > MAX_JSON_BYTES:
        refuse(path, f"is larger than {MAX_JSON_BYTES} bytes", DAMAGED)
    try:
        content = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        refuse(path, f"is no JSON ({error})"[:300], DAMAGED)
    if not isinstance(content, dict):
        refuse(path, "is no JSON object", DAMAGED)
    return content


def pixels(path, config, prefix="") -> dict:
    """Return mean and deviation of the pixels, both None for [-1, 1]."""
    found = {}
    if config.get("do_normalize") is False:
        config = {f"{prefix}mean": [0.0] * 3, f"{prefix}std": [1.0] * 3}
    for name in ("mean", "std"):
        values = config.get(f"{prefix}{name}")
        if values is None:
            return {}
        numbers = isinstance(values, list) and all(
            type(x) in (int, float) and 0 <= x < 100 for x in values
        )
        if not numbers or name == "std" and 0 in values:
            refuse(
                path,
                f"has {prefix}{name}={values!r}"[:200],
                "Expected a number for each channel.",
            )
        found[f"pixel_{name}"] = tuple(map(float, values))
    halves = {x for values in found.values() for x in values} == {0.5}
    return dict.fromkeys(found) if halves else found


def converted(path, config, names, conversions=None) -> dict:
    """Return the fields of a config that are there, under our names, checked.

    Args:
        path: of the config, for messages.
        config: dict, what it holds.
        names: dict from its keys to our fields.
        conversions: dict from our fields to functions of (path, field, value),
            in place of those by the type of the field.
    """
    known = conversions or {}
    return {
        ours: (known.get(ours) or _conversion(ours))(path, ours, config[theirs])
        for theirs, ours in names.items()
        if config.get(theirs) is not None
    }


def _positive(path, name, value) -> int:
    if type(value) is not int or not 0 < value < 10**6:
        refuse(path, f"has {name}={value!r}"[:200], "Expected an integer.")
    return value


def _count(path, name, value) -> int:
    return 0 if value == 0 else _positive(path, name, value)


def pair(path, name, value) -> tuple:
    values = value if isinstance(value, list) else [value, value]
    if len(values) != 2:
        refuse(path, f"has {name}={value!r}"[:200], "Expected two integers.")
    return tuple(_positive(path, name, x) for x in values)


def _blocks(path, name, value) -> tuple:
    values = value if isinstance(value, list) else [value]
    if len(values) > 10**4:
        refuse(path, f"has {len(values)} {name}", "Expected one per block.")
    return tuple(_count(path, name, x) for x in values)


def words(known: dict, key: str | None = None) -> Callable:
    """Make a conversion of the words of others.

    Args:
        known: dict from their words to ours.
        key: str, what they call the field, for the message.
    """

    def convert(path, name, value):
        if not isinstance(value, str | bool) or value not in known:
            refuse(
                path,
                f"has {key or name}={value!r}"[:200],
                f"Expected one of {', '.join(map(repr, known))}.",
            )
        return known[value]

    return convert


def fraction(path, name, value) -> float:
    if type(value) not in (int, float) or not 0 <= value < 1:
        refuse(path, f"has {name}={value!r}"[:200], "Expected 0 to 1.")
    return float(value)


def _number(path, name, value) -> float:
    if type(value) not in (int, float) or not abs(value) < 1e9:
        refuse(path, f"has {name}={value!r}"[:200], "Expected a number.")
    return float(value)


def flag(path, name, value) -> bool:
    if type(value) is not bool:
        refuse(path, f"has {name}={value!r}"[:200], "Expected true or false.")
    return value


def _activation(path, name, value) -> str:
    if not isinstance(value, str) or value not in ACTIVATIONS:
        refuse(
            path,
            f"has the activation {value!r}"[:200],
            f"Expected one of {', '.join(ACTIVATIONS)}.",
        )
    return ACTIVATIONS[value]


# Of fields whose values are more than of their type.
CONVERSIONS = {
    "activation": _activation,
    "layer_norm_epsilon": fraction,
    "pool_num_heads": _positive,
}
OF_TYPES = {
    bool: flag,
    int: _count,
    float: _number,
    tuple[int, int]: pair,
    tuple[int, int] | None: pair,
    tuple[int, ...]: _blocks,
}
ROWS = {field.name: field for field in dataclasses.fields(ViTConfig)}


def _conversion(name) -> Callable:
    """Return what converts a field, by its type where it is an option."""
    row = ROWS.get(name)
    if row is None or row.type is int and row.default != 0:
        return CONVERSIONS.get(name, _positive)
    return CONVERSIONS.get(name) or OF_TYPES[row.type]
