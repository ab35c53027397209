"""The model.keras of a run: a Keras model and the names of its classes."""

import json
import os
import pathlib
import zipfile

import keras

from keras_vit.checkpoints.engine.keras_files import (
    CLASS_NAMES,
    read_class_names,
)
from keras_vit.io.atomic_files import replacing
from keras_vit.runtime.workarounds import without_optimizer

__all__ = ["check_class_names", "load_model", "save_model"]


def save_model(model, class_names, path: str | os.PathLike) -> None:
    """Save a model with its class names, without optimizer.

    Args:
        model: the Keras model to save, without LoRA.
        class_names: sequence of str, in the order of the model's outputs;
            None for a model without classes, such as one of features.
        path: the file, with the suffix .keras.

    Raises:
        ValueError: when there is not one name per output.

    Example:
        >>> save_model(model, ["cat", "dog"], "model.keras")
    """
    check_class_names(model, class_names)
    path = pathlib.Path(path)
    path.parent.mkdir(exist_ok=True)
    with replacing(path) as temporary:
        with without_optimizer(model):
            model.save(temporary)
        if class_names is not None:
            with zipfile.ZipFile(temporary, "a") as archive:
                archive.writestr(CLASS_NAMES, json.dumps(list(class_names)))


def check_class_names(model, class_names) -> None:
    """Raise a ValueError unless there is one name per output, or None."""
    if class_names is not None and len(class_names) != model.output_shape[-1]:
        raise ValueError(
            f"The model has {model.output_shape[-1]} classes. Received: "
            f"{len(class_names)} class names."
        )


def load_model(path: str | os.PathLike) -> tuple[keras.Model, tuple[str, ...]]:
    """Load what `save_model` saved, without running code of the file.

    Returns:
        The model, not compiled, and its class names.

    Raises:
        ValueError: when the file is missing, is no model, or has no names.

    Example:
        >>> model, class_names = load_model("runs/quickstart/model.keras")
    """
    path = pathlib.Path(path)
    try:
        with zipfile.ZipFile(path) as archive:
            class_names = read_class_names(path, archive)
    except FileNotFoundError as error:
        raise ValueError(f"There is no file {str(path)!r}.") from error
    except zipfile.BadZipFile as error:
        raise ValueError(f"{str(path)!r} is not a .keras file.") from error
    except KeyError as error:
        raise ValueError(
            f"The model {str(path)!r} has no class names in it. Load it with "
            "keras.saving.load_model, or save it with "
            "keras_vit.checkpoints.run_model.save_model."
        ) from error
    return keras.saving.load_model(path, compile=False), class_names
