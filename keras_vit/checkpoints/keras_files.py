"""Weights in Keras's own files."""

import warnings
import zipfile
from pathlib import Path

import keras
import numpy as np

from keras_vit.checkpoints.containers.errors import refuse, refusing
from keras_vit.checkpoints.containers.hdf5 import HARMFUL, datasets
from keras_vit.checkpoints.containers.tensors import (
    Tensor,
    TensorFile,
    check_name,
)
from keras_vit.checkpoints.formats.configured import Configured
from keras_vit.checkpoints.formats.formats_table import Format
from keras_vit.checkpoints.formats.naming import Row
from keras_vit.checkpoints.formats.recognition import listed
from keras_vit.checkpoints.formats.source import Source
from keras_vit.checkpoints.keras_config import builder, check_shapes
from keras_vit.checkpoints.report import LoadReport
from keras_vit.checkpoints.target import target_of

__all__ = ["OPENERS", "load_weights_h5"]

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
            weight._initializer = lambda shape, dtype: np.zeros(
                shape, "float32"
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
