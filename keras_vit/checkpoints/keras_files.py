"""Weights in Keras's own files."""

import warnings
import zipfile

import keras
import numpy as np

from keras_vit.checkpoints.configured import Configured
from keras_vit.checkpoints.errors import refuse, refusing
from keras_vit.checkpoints.formats_table import Format
from keras_vit.checkpoints.naming import Row
from keras_vit.checkpoints.report import LoadReport
from keras_vit.checkpoints.source import Source
from keras_vit.checkpoints.target import target_of
from keras_vit.checkpoints.tensors import Tensor, TensorFile

__all__ = ["OPENERS", "load_weights_h5"]

# What is unpacked may be this many times the file: its weights barely
# compress and Keras stores them as they are.
MAX_RATIO = 20


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
    before = [keras.ops.convert_to_numpy(x).copy() for x in model.variables]
    try:
        with refusing(path, "the file"), warnings.catch_warnings():
            # Keras warns of what it raises an error for in the end.
            warnings.simplefilter("ignore")
            model.load_weights(path)
            check_finite(path, model)
    except (ValueError, OSError) as error:
        for variable, value in zip(model.variables, before, strict=True):
            variable.assign(value)
        raise ValueError(
            f"The weights in {str(path)!r} do not fit {model.name}, "
            f"which takes {model.input_shape} and returns "
            f"{model.output_shape}. Build the model with the arguments that "
            "the file was saved with (classes, input_shape and its channels, "
            f"include_top, pooling). Keras says: {error}"
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
    with refusing(path, "the file"):
        check_archive(path)
        # Keras goes by the ending; no code in the file is run.
        if not str(path).endswith(".keras"):
            refuse(path, "is a .keras file by another name", "Rename it.")
        model = keras.saving.load_model(path, compile=False, safe_mode=True)
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


def check_archive(path) -> None:
    with zipfile.ZipFile(path) as archive:
        members = archive.infolist()
    packed = sum(x.compress_size for x in members)
    unpacked = sum(x.file_size for x in members)
    if unpacked > MAX_RATIO * packed + 2**24:
        refuse(
            path,
            f"unpacks {packed} bytes to {unpacked}",
            "Such a file was made to do harm: do not use it.",
        )


def open_h5(path) -> Source:
    refuse(
        path,
        "holds weights but not the model that they are of",
        "Build the model, such as keras_vit.ViT_B16(...), and call "
        "keras_vit.checkpoints.load_weights(model, path).",
    )


OPENERS = {"keras": open_keras, "h5": open_h5}
