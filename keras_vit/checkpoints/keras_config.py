"""What a `.keras` file says of its model, checked before it is built."""

import functools
import json
import math
import re
from collections import Counter
from collections.abc import Callable

import keras

from keras_vit.checkpoints.containers.errors import refuse
from keras_vit.checkpoints.formats.recognition import listed
from keras_vit.checkpoints.target import FAMILIES

__all__ = ["builder", "check_shapes"]

# What a compiled model keeps beside its weights.
COMPANIONS = re.compile(r"(optimizer|metrics|.*seed_generator)/.*")
# Of a model's own config; its dtype policy is the one object within.
KEYS = {"name", "trainable", "dtype", "config", "frozen"}
POLICIES = {"DTypePolicy", "DTypePolicyMap", "QuantizedDTypePolicy"}
POLICY_MODULES = {"keras", "keras.dtype_policies"}
# Values that need not be in the file: sizes below this are never dangerous.
ALLOWANCE = 2**20
DAMAGED = "The file is damaged, or was made to do harm: fetch it again."


def builder(path, text: bytes, tensors: dict) -> Callable:
    """What builds the model of a config, unless it is none of ours.

    Nothing that the config names is imported, and a model larger than the
    file's weights is refused.

    Args:
        path: the file.
        text: bytes, its `config.json`.
        tensors: dict from name to `Tensor`, its weights.

    Returns:
        Function of no arguments that returns the model.

    Raises:
        ValueError: for another model, or sizes that the weights do not have.
    """
    content = json.loads(text)
    name = content.get("registered_name") if type(content) is dict else None
    families = {value: key for key, value in FAMILIES.items()}
    if not isinstance(name, str) or name not in families:
        refuse(
            path,
            f"holds {str(name)[:80]!r}, which is no model of keras_vit",
            "Classes of others are not imported from files. Load a model of "
            "your own with keras.saving.load_model, if you trust it.",
        )
    config = content.get("config")
    if not isinstance(config, dict) or not set(config) <= KEYS:
        refuse(path, "has a config with unknown fields", DAMAGED)
    check_policy(path, config.get("dtype"))
    fields = config.get("config")
    if not isinstance(fields, dict):
        refuse(path, "has a model without a config", DAMAGED)
    model_class = keras.saving.get_registered_object(name)
    check_numbers(path, model_class.config_class, fields)
    known = model_class.config_class(**fields)
    check_sizes(path, families[name], known, tensors)
    return functools.partial(model_class.from_config, config)


def check_policy(path, dtype) -> None:
    """Refuses objects of which a dtype policy has no need."""
    waiting = [dtype]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            kind = value.get("class_name", "DTypePolicy")
            module = value.get("module", "keras")
            if kind not in POLICIES or module not in POLICY_MODULES:
                refuse(path, f"names {str(kind)[:80]!r} as its dtype", DAMAGED)
            waiting += [x for key, x in value.items() if key != "module"]
        elif isinstance(value, list):
            refuse(path, "has a list in its dtype", DAMAGED)


def check_numbers(path, config_class, fields) -> None:
    """Refuses texts and fractions where whole numbers belong."""
    for name, value in fields.items():
        default = getattr(config_class, name, None)
        numbers = value if isinstance(value, (list, tuple)) else [value]
        if name == "units" or name == "resnet_units" or name == "image_size":
            numbers = [x for x in numbers if x is not None]
        elif type(default) not in (int, tuple):
            continue
        wrong = [x for x in numbers if type(x) is not int or x < 0]
        if wrong:
            refuse(path, f"has {name}={str(value)[:80]!r}", DAMAGED)


def check_sizes(path, family, config, tensors) -> None:
    """Refuses a config of a model that the file's weights cannot fill."""
    room = sum(math.prod(x.shape) for x in tensors.values()) + ALLOWANCE
    counts, products = SIZES[family](config)
    if sum(counts) > len(tensors):
        refuse(
            path,
            f"has {sum(counts)} blocks in its config and {len(tensors)} "
            "arrays of weights",
            DAMAGED,
        )
    largest = max(math.prod(product) for product in products)
    if largest > room:
        refuse(
            path,
            f"has a config of a model with over {largest} weights, and "
            f"holds {room - ALLOWANCE}",
            DAMAGED,
        )


def vit_sizes(config):
    """Blocks, and the sizes of the weights by their axes."""
    d, blocks = config.hidden_dim, config.num_layers
    stages = config.resnet_units
    channels = config.channels
    if stages is not None:
        channels = config.resnet_width * 4 * 2 ** min(len(stages), 64)
    return (blocks, *(stages or ())), [
        (blocks, 4, d, d),
        (blocks, 2, d, config.mlp_dim),
        (math.prod(config.grid), d),
        (math.prod(config.patch_size), channels, d),
        (d, config.representation_dim),
        (config.representation_dim or d, config.num_classes),
        (stages is not None, config.resnet_width, channels // 4),
    ]


def mixer_sizes(config):
    blocks, d = config.num_layers, config.hidden_dim
    return (blocks,), [
        (blocks, 2, math.prod(config.grid), config.tokens_mlp_dim),
        (blocks, 2, d, config.channels_mlp_dim),
        (math.prod(config.patch_size), config.channels, d),
        (d, config.num_classes),
    ]


def bit_sizes(config):
    # The last stage is 2 ** (stages - 1) wider than the first.
    width = config.width * 2 ** min(max(len(config.units) - 1, 0), 64)
    return tuple(config.units), [
        (9, width, width),
        (49, config.channels, config.width),
        (4, width, config.num_classes),
    ]


SIZES = {
    "vit": vit_sizes,
    "mixer": mixer_sizes,
    "bit": bit_sizes,
    "variant": vit_sizes,
}


def check_shapes(path, model: keras.Model, tensors: dict) -> None:
    """Raises a ValueError unless a file has just the weights of a model.

    Keras passes over arrays that it has no place for.

    Args:
        path: the file.
        model: a Keras model.
        tensors: dict from name to `Tensor`.

    Raises:
        ValueError: when there are more or fewer of some shape.
    """
    found = Counter(
        x.shape for name, x in tensors.items() if not COMPANIONS.match(name)
    )
    wanted = Counter(tuple(x.shape) for x in model.weights)
    if found != wanted:
        refuse(
            path,
            "does not fit: shapes missing in the file: "
            f"{listed(map(str, (wanted - found).elements()))}; unused: "
            f"{listed(map(str, (found - wanted).elements()))}",
            "Build the model with the arguments that it was saved with.",
        )
