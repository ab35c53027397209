"""The files of a run folder.

Each file is written beside its place, fsynced and then renamed, so that a file
that exists is whole. environment.json is the first and result.json the last: a
folder that has it is a finished run. A model.keras is a zip archive, in which
Keras ignores the class names that stand beside the model.
"""

import collections
import json
import os
import pathlib
import re
import shutil
import zipfile

import keras

import keras_vit.models  # noqa: F401 - registers the classes to load
from keras_vit.checkpoints.keras_files import CLASS_NAMES
from keras_vit.files import PARTIAL, replacing
from keras_vit.workarounds import without_optimizer

__all__ = [
    "CONFIG",
    "MARK",
    "MODEL",
    "RESULT",
    "check",
    "clear",
    "load_model",
    "prepare",
    "save_model",
    "write_examples",
    "write_json",
    "write_yaml",
]

MODEL = "model.keras"
MARK = "environment.json"  # the first file of a run
RESULT = "result.json"  # the last
CONFIG = "config.yaml"
# The config is removed first and the mark last: a process that is killed in
# between leaves a run without a config, which the next one clears.
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
    """Checks that a run may use a folder, which need not exist.

    Raises:
        ValueError: when the folder holds a finished run and overwrite is
            False, holds files that no run wrote, or is no folder.
    """
    folder = pathlib.Path(path)
    if folder.exists() and not folder.is_dir():
        raise ValueError(
            f"{str(folder)!r} is not a folder. Choose another --run_dir."
        )
    found = list(folder.iterdir()) if folder.exists() else []
    # A run that is killed in its first moment leaves only these.
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
    """Makes the folder, and removes only what runs write."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in FILES[:-1]:
        (folder / name).unlink(missing_ok=True)
    for name in FOLDERS:
        shutil.rmtree(folder / name, ignore_errors=True)
    for partial in folder.glob(f"{PARTIAL}*"):
        partial.unlink(missing_ok=True)
    (folder / MARK).unlink(missing_ok=True)


def prepare(path: str | os.PathLike, *, overwrite: bool) -> pathlib.Path:
    """`check`, and then `clear`."""
    folder = check(path, overwrite=overwrite)
    clear(folder)
    return folder


def write_json(path: pathlib.Path, content) -> None:
    """Writes JSON with indentation."""
    with replacing(path) as temporary:
        temporary.write_text(json.dumps(content, indent=2) + "\n")


def write_yaml(path: pathlib.Path, content: dict) -> None:
    """Writes YAML with the keys in their order; tuples become lists."""
    import yaml

    plain = json.loads(json.dumps(content))
    with replacing(path) as temporary:
        temporary.write_text(yaml.safe_dump(plain, sort_keys=False))


def save_model(model, class_names, path: str | os.PathLike) -> None:
    """Saves a model with its class names, and without the optimizer.

    Of several processes, which all call it, the first one writes.

    Args:
        model: the Keras model to save.
        class_names: sequence of str, in the order of the model's outputs;
            None for a model without classes, such as one of features.
        path: the file, with the suffix .keras.

    Raises:
        ValueError: when there is not one name per output.

    Example:
        >>> save_model(model, ["cat", "dog"], "model.keras")
    """
    from keras_vit.training.distribution.processes import gathered, is_first

    names = class_names
    if names is not None and len(names) != model.output_shape[-1]:
        raise ValueError(
            f"The model has {model.output_shape[-1]} classes. Received: "
            f"{len(class_names)} class names."
        )
    path = pathlib.Path(path)
    with gathered(model):
        if not is_first():
            return
        path.parent.mkdir(exist_ok=True)
        with replacing(path) as temporary:
            with without_optimizer(model):
                model.save(temporary)
            if names is not None:
                with zipfile.ZipFile(temporary, "a") as archive:
                    archive.writestr(CLASS_NAMES, json.dumps(list(names)))


def load_model(path: str | os.PathLike) -> tuple[keras.Model, tuple[str, ...]]:
    """Loads what `save_model` saved, without running code of the file.

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
            class_names = tuple(json.loads(archive.read(CLASS_NAMES)))
    except FileNotFoundError:
        raise ValueError(f"There is no file {str(path)!r}.") from None
    except zipfile.BadZipFile:
        raise ValueError(f"{str(path)!r} is not a .keras file.") from None
    except KeyError:
        raise ValueError(
            f"The model {str(path)!r} has no class names in it. Load it with "
            "keras.saving.load_model, or save it with "
            "keras_vit.training.run_folder.save_model."
        ) from None
    return keras.saving.load_model(path, compile=False), class_names


def write_examples(folder: pathlib.Path, images, labels, class_names) -> None:
    """Saves images as examples/<class>_<n>.png, n from 0 in each class.

    Args:
        folder: the run folder.
        images: uint8 array of shape (N, H, W, C).
        labels: integer array of shape (N,).
        class_names: sequence of str.
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
