"""What a run ran on: versions, devices and the state of the code.

That is a zip archive, of which Keras reads the members that it knows.

Each file is written beside its place, pressed onto the disk and then renamed
into it, so that a file that is there is whole. environment.json comes first
and result.json last: a folder that holds it is a finished run.
"""

import collections
import json
import os
import pathlib
import re
import shutil
import zipfile

import keras

import keras_vit.models  # noqa: F401
from keras_vit.checkpoints.keras_files import (
    CLASS_NAMES,
    class_names_of,
    located,
)
from keras_vit.files import PARTIAL, replacing
from keras_vit.training.distribution.processes import gathered, is_first
from keras_vit.workarounds import without_optimizer

__all__ = [
    "CONFIG",
    "MARK",
    "RESULT",
    "check",
    "class_names_of",
    "clear",
    "load_model",
    "located",
    "prepare",
    "save_model",
    "write_examples",
    "write_json",
    "write_yaml",
]

# Keras loads the classes that are registered, which importing them does.


def save_model(model, class_names, path: str | os.PathLike) -> None:
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
        with without_optimizer(model):
            model.save(temporary)
        if class_names is None:
            return
        with zipfile.ZipFile(temporary, "a") as archive:
            archive.writestr(CLASS_NAMES, json.dumps(list(class_names)))


def load_model(path: str | os.PathLike) -> tuple[keras.Model, tuple[str, ...]]:
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
            "keras_vit.training.run_folder.save."
        ) from None
    return keras.saving.load_model(path, compile=False), class_names


MARK = "environment.json"  # the first file of a run
RESULT = "result.json"  # the last
CONFIG = "config.yaml"
# The config goes first and the mark last: whoever is killed in between leaves
# a run of no config, which the next one clears.
FILES = (
    CONFIG,
    RESULT,
    "class_names.json",
    "history.csv",
    "metrics.jsonl",
    "model.keras",
    "predictions.npz",
    "per_class.csv",
    "attention.npz",
    "augmented.npz",
    "masked_patch.png",
    "pseudo_labels.npz",
    "report.html",
    MARK,
)
FOLDERS = ("checkpoints", "examples", "tensorboard")


def check(path: str | os.PathLike, *, overwrite: bool) -> pathlib.Path:
    """Finds out whether a folder may be a run's; changes nothing.

    Args:
        path: the folder; it need not exist.
        overwrite: bool, whether a finished run in it may be replaced.

    Returns:
        The folder.

    Raises:
        ValueError: when the folder holds a finished run and overwrite is
            False, holds files that no run wrote, or is no folder.

    Example:
        >>> folder = check("runs/digits", overwrite=False)
    """
    folder = pathlib.Path(path)
    if folder.exists() and not folder.is_dir():
        raise ValueError(
            f"{str(folder)!r} is not a folder. Choose another --run_dir."
        )
    found = list(folder.iterdir()) if folder.exists() else []
    # A run that is killed in its first moment leaves no more than these.
    found = [file for file in found if not file.name.startswith(PARTIAL)]
    if found and not (folder / MARK).exists():
        raise ValueError(
            f"The folder {str(folder)!r} holds files that are not of a run. "
            "Choose another --run_dir."
        )
    if (folder / RESULT).exists() and not overwrite:
        raise ValueError(
            f"The folder {str(folder)!r} holds a finished run. Choose another "
            "--run_dir, or --overwrite true to replace it."
        )
    return folder


def clear(folder: pathlib.Path) -> None:
    """Removes what runs write, and nothing else; makes the folder.

    Args:
        folder: the run folder.

    Example:
        >>> clear(pathlib.Path("runs/digits"))
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name in FILES[:-1]:
        (folder / name).unlink(missing_ok=True)
    for name in FOLDERS:
        shutil.rmtree(folder / name, ignore_errors=True)
    for partial in folder.glob(f"{PARTIAL}*"):
        partial.unlink(missing_ok=True)
    (folder / MARK).unlink(missing_ok=True)


def prepare(path: str | os.PathLike, *, overwrite: bool) -> pathlib.Path:
    """Makes the folder of a run, empty of what an earlier run wrote.

    Args:
        path: the folder; made where it is missing.
        overwrite: bool, whether a finished run in it may be replaced.

    Returns:
        The folder.

    Raises:
        ValueError: see `check`.

    Example:
        >>> folder = prepare("runs/digits", overwrite=False)
    """
    folder = check(path, overwrite=overwrite)
    clear(folder)
    return folder


def write_json(path: pathlib.Path, content) -> None:
    """Writes JSON for people to read as well.

    Args:
        path: the file.
        content: what json.dumps takes.

    Example:
        >>> write_json(folder / "class_names.json", ["cat", "dog"])
    """
    with replacing(path) as temporary:
        temporary.write_text(json.dumps(content, indent=2) + "\n")


def write_yaml(path: pathlib.Path, content: dict) -> None:
    """Writes YAML with the keys in their order.

    Args:
        path: the file.
        content: a dictionary of plain values; tuples become lists.

    Example:
        >>> write_yaml(folder / "config.yaml", dataclasses.asdict(recipe))
    """
    import yaml

    plain = json.loads(json.dumps(content))
    with replacing(path) as temporary:
        temporary.write_text(yaml.safe_dump(plain, sort_keys=False))


def write_examples(folder: pathlib.Path, images, labels, class_names) -> None:
    """Saves images under the names of their classes.

    Args:
        folder: the run folder; the files are examples/<class>_<n>.png, n
            counted from 0 in each class.
        images: uint8 array of shape (N, H, W, C).
        labels: integer array of shape (N,).
        class_names: sequence of str.

    Example:
        >>> write_examples(folder, images[:20], labels[:20], class_names)
    """
    from PIL import Image

    examples = folder / "examples"
    examples.mkdir(exist_ok=True)
    seen = collections.Counter()
    for image, label in zip(images, labels, strict=True):
        name = re.sub(r"[^\w-]+", "-", class_names[label])  # as a file name
        grey = image.shape[-1] == 1
        with replacing(examples / f"{name}_{seen[label]}.png") as path:
            Image.fromarray(image[..., 0] if grey else image).save(path)
        seen[label] += 1
