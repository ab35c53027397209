"""A model and the names of its classes in one `.keras` file.

That is a zip archive, of which Keras reads the members that it knows.
"""

import contextlib
import json
import os
import pathlib
import zipfile

import keras

# Keras loads the classes that are registered, which importing them does.
import keras_vit.models  # noqa: F401
from keras_vit.checkpoints.keras_files import CLASS_NAMES
from keras_vit.files import replacing
from keras_vit.training.distribution.processes import gathered, is_first

__all__ = ["load", "save"]


def save(model, class_names, path: str | os.PathLike) -> None:
    """Saves a model so that its answers keep their names.

    The optimizer, the loss and the metrics are left out. Of several
    processes, which call it alike, the first one writes.

    Args:
        model: a Keras model.
        class_names: sequence of str, in the order of the model's outputs;
            None for a model that names nothing, such as one of features.
        path: the file, with the suffix .keras.

    Raises:
        ValueError: when there is not one name an output.

    Example:
        >>> save(model, ["cat", "dog"], "model.keras")
    """
    names = class_names
    if names is not None and len(names) != model.output_shape[-1]:
        raise ValueError(
            f"The model has {model.output_shape[-1]} classes. Received: "
            f"{len(class_names)} class names."
        )
    path = pathlib.Path(path)
    with gathered(model):
        if is_first():
            path.parent.mkdir(exist_ok=True)
            _write(model, class_names, path)


def _write(model, class_names, path):
    with replacing(path) as temporary:
        with _not_compiled(model):
            model.save(temporary)
        if class_names is None:
            return
        with zipfile.ZipFile(temporary, "a") as archive:
            archive.writestr(CLASS_NAMES, json.dumps(list(class_names)))


@contextlib.contextmanager
def _not_compiled(model):
    """Keras saves what a model was compiled with, to three times the size."""
    compiled, optimizer = model.compiled, getattr(model, "optimizer", None)
    model.compiled, model.optimizer = False, None
    try:
        yield
    finally:
        model.compiled, model.optimizer = compiled, optimizer


def load(path: str | os.PathLike) -> tuple[keras.Model, tuple[str, ...]]:
    """Loads what `save` saved, executing nothing that the file brings.

    Args:
        path: the file.

    Returns:
        The model, not compiled, and its class names.

    Raises:
        ValueError: when the file is missing, is no model, or has no names.

    Example:
        >>> model, class_names = load("runs/quickstart/model.keras")
    """
    path = pathlib.Path(path)
    try:
        with zipfile.ZipFile(path) as archive:
            class_names = tuple(json.loads(archive.read(CLASS_NAMES)))
    except FileNotFoundError:
        raise ValueError(f"There is no file {str(path)!r}.") from None
    except zipfile.BadZipFile:
        raise ValueError(f"{str(path)!r} is not a .keras file.") from None
    except KeyError:
        raise ValueError(
            f"The model {str(path)!r} has no class names in it. Load it with "
            "keras.saving.load_model, or save it with "
            "keras_vit.training.model_file.save."
        ) from None
    return keras.saving.load_model(path, compile=False), class_names
