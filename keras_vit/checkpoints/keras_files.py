"""What a `.keras` file says of its model, checked before it is built."""

import functools
import json
import math
import re
import warnings
import zipfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import keras
import numpy as np

from keras_vit.checkpoints.containers.hdf5 import HARMFUL, datasets
from keras_vit.checkpoints.containers.tensors import (
    Tensor,
    TensorFile,
    check_name,
    refuse,
    refusing,
)
from keras_vit.checkpoints.formats.formats_table import Format
from keras_vit.checkpoints.formats.recognition import (
    Configured,
    Row,
    Source,
    listed,
)
from keras_vit.checkpoints.matching import FAMILIES, LoadReport, target_of
from keras_vit.workarounds import set_initializer

__all__ = [
    "OPENERS",
    "builder",
    "check_shapes",
    "load_weights_h5",
]

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


# What is unpacked may be this many times the file: its weights barely
# compress and Keras stores them as they are.
MAX_RATIO = 20
MAX_EXTRA_BYTES = 2**24
MAX_CONFIG_BYTES = 2**20
CONFIG, METADATA = "config.json", "metadata.json"
CLASS_NAMES = "class_names.json"  # What a run of keras_vit adds.
WEIGHTS = "model.weights.h5"
AGAIN = "The file is damaged: fetch it again."


def load_weights_h5(model: keras.Model, path) -> keras.Model:
    """Fills a model from a `.weights.h5` file of the same architecture.

    Keras assigns while it reads, so the values before are kept until it has
    succeeded: this takes the memory of the weights once more.

    Args:
        model: a Keras model.
        path: path of the file.

    Returns:
        The model.

    Raises:
        ValueError: when the file does not fit the model, which is then as
            it was.
        OSError: when it cannot be read.
    """
    # Of a compiled model the file may hold the optimiser's variables too.
    optimizer = getattr(model, "optimizer", None)
    variables = [*model.variables, *getattr(optimizer, "variables", ())]
    before = [keras.ops.convert_to_numpy(x).copy() for x in variables]
    try:
        with refusing(path, "the file"), warnings.catch_warnings():
            check_shapes(path, model, datasets(path))
            # Keras warns of what it raises an error for in the end.
            warnings.simplefilter("ignore")
            model.load_weights(path)
            check_finite(path, model)
    except BaseException as error:
        for variable, value in zip(variables, before, strict=True):
            variable.assign(value)
        if not isinstance(error, (ValueError, OSError)):
            raise
        raise ValueError(
            f"The weights in {str(path)!r} do not fit {model.name}, "
            f"which takes {model.input_shape} and returns "
            f"{model.output_shape}. Build the model with the arguments that "
            "the file was saved with (classes, input_shape and its channels, "
            f"include_top, pooling). The reason: {error}"
        ) from error
    paths = tuple(weight.path for weight in model.weights)
    model.load_report = LoadReport(str(path), "keras", paths)
    return model


def check_finite(path, model) -> None:
    for weight in model.weights:
        if not np.isfinite(keras.ops.convert_to_numpy(weight)).all():
            refuse(
                path,
                "holds NaN or infinity",
                "The file was damaged or its training diverged.",
                weight.path,
            )


def open_keras(path) -> Source:
    """Opens a `.keras` file of one of our models.

    Args:
        path: path of the file.

    Returns:
        A `Source` whose table is the identity.

    Raises:
        ValueError: for a damaged file, or another model.
    """
    # Keras goes by the ending.
    if not str(path).endswith(".keras"):
        refuse(path, "is a .keras file by another name", "Rename it.")
    with refusing(path, "the file"), warnings.catch_warnings():
        tensors, build = checked_archive(path)
        model = built(path, build, tensors)
        # Keras warns of what it raises an error for in the end.
        warnings.simplefilter("ignore")
        model.load_weights(path)
        check_finite(path, model)
    target = target_of(model)
    if not target.config:
        refuse(
            path,
            "holds a model that was built on an input tensor",
            "Load it with keras.saving.load_model.",
        )
    tensors = {
        name: Tensor(target.shape(name), np.dtype("float32"), reader(x))
        for name, x in target.variables.items()
    }
    rows = {name: Row((name,), "same") for name in tensors}
    format = Format("keras", target.family, {}, ())
    file = TensorFile(str(path), tensors, kind="keras")
    configured = Configured(target.config, target.facts, target.grid)
    return Source(file, format, set(), rows, [], configured)


def reader(variable):
    return lambda: keras.ops.convert_to_numpy(variable)


def built(path, build, tensors) -> keras.Model:
    """The model, its weights still zero: drawing them takes the time."""
    with keras.StatelessScope():  # which defers the making of weights
        model = build()
        for weight in model.weights:
            set_initializer(
                weight, lambda shape, dtype: np.zeros(shape, "float32")
            )
        check_shapes(path, model, tensors)
    return model


def checked_archive(path) -> tuple:
    """(arrays, function that builds the model), when nothing does harm."""
    with zipfile.ZipFile(path) as archive:
        members = archive.infolist()
        for member in members:
            check_name(path, member.filename)
        names = sorted(member.filename for member in members)
        known = {CONFIG, WEIGHTS, METADATA, CLASS_NAMES}
        if not {CONFIG, WEIGHTS} <= set(names) <= known:
            refuse(
                path,
                f"holds the members {listed(names)}",
                f"Expected {CONFIG}, {METADATA} and {WEIGHTS} alone.",
            )
        if len(set(names)) < len(names):
            refuse(path, "holds a member twice", HARMFUL)
        size = Path(path).stat().st_size
        unpacked = sum(member.file_size for member in members)
        if unpacked > MAX_RATIO * size + MAX_EXTRA_BYTES:
            refuse(path, f"unpacks {size} bytes to {unpacked}", HARMFUL)
        # Keras reads on when a checksum is wrong.
        if damaged := archive.testzip():
            refuse(path, f"has a wrong checksum in {damaged}", AGAIN)
        if archive.getinfo(CONFIG).file_size > MAX_CONFIG_BYTES:
            refuse(path, "has an oversized config.json", HARMFUL)
        with archive.open(WEIGHTS) as content:
            tensors = datasets(path, content)
        return tensors, builder(path, archive.read(CONFIG), tensors)


def open_h5(path) -> Source:
    refuse(
        path,
        "holds weights but not the model that they are of",
        "Build the model, such as keras_vit.ViT_B16(...), and call "
        "keras_vit.checkpoints.load_weights(model, path).",
    )


OPENERS = {"keras": open_keras, "h5": open_h5}
