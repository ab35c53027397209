"""Checks of what a config.json says."""

import json

from keras_vit.checkpoints.containers.errors import refuse

__all__ = ["activation", "epsilon", "pair", "positive", "read_json"]

MAX_JSON_BYTES = 16 * 2**20
CURE = "Fetch the file again."
# Others compute something else than the models here.
ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_python": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
}


def read_json(path) -> dict:
    """Reads a JSON object of a bounded size.

    Args:
        path: path of the file.

    Returns:
        dict.

    Raises:
        ValueError: when it is no JSON object, or too large.
    """
    if path.stat().st_size > MAX_JSON_BYTES:
        refuse(path, f"is larger than {MAX_JSON_BYTES} bytes", CURE)
    try:
        content = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        refuse(path, f"is no JSON ({error})"[:300], CURE)
    if not isinstance(content, dict):
        refuse(path, "is no JSON object", CURE)
    return content


def positive(path, name, value) -> int:
    if type(value) is not int or not 0 < value < 10**6:
        refuse(path, f"has {name}={value!r}"[:200], "Expected an integer.")
    return value


def pair(path, name, value) -> tuple:
    values = value if isinstance(value, list) else [value, value]
    if len(values) != 2:
        refuse(path, f"has {name}={value!r}"[:200], "Expected two integers.")
    return tuple(positive(path, name, x) for x in values)


def epsilon(path, name, value) -> float:
    if type(value) not in (int, float) or not 0 <= value < 1:
        refuse(path, f"has {name}={value!r}"[:200], "Expected 0 to 1.")
    return float(value)


def activation(path, name, value) -> str:
    if not isinstance(value, str) or value not in ACTIVATIONS:
        refuse(
            path,
            f"has the activation {value!r}"[:200],
            f"Expected one of {', '.join(ACTIVATIONS)}.",
        )
    return ACTIVATIONS[value]
