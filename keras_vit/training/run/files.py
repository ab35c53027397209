"""The files of a run folder.

Each file is written beside its place, fsynced and then renamed, so that a file
that exists is whole. The first file is the manifest: it says that the folder is
of a run, and which files in it are the run's. No other file is ever moved or
removed. result.json is the last: a folder that has it is a finished run. A
model.keras is a zip archive, in which Keras ignores the class names that stand
beside the model.
"""

import collections
import contextlib
import json
import os
import pathlib
import re
import shutil
import zipfile
from collections.abc import Iterator

import keras

import keras_vit.models  # noqa: F401 - registers the classes to load
from keras_vit.checkpoints.engine.keras_files import (
    CLASS_NAMES,
    RUN_MODEL,
    read_class_names,
)
from keras_vit.io.atomic_files import PARTIAL, replacing
from keras_vit.io.stores import on_disk
from keras_vit.runtime.workarounds import without_optimizer
from keras_vit.training.run import store as run_store
from keras_vit.training.run.owner import LOCK, locked
from keras_vit.training.run.store import MANIFEST, PREVIOUS, shown
from keras_vit.version import __version__

__all__ = [
    "CONFIG",
    "ENVIRONMENT",
    "MANIFEST",
    "RESULT",
    "begin",
    "check",
    "folder_of",
    "is_begun",
    "load_model",
    "read_config",
    "remove_partial",
    "save_model",
    "taken",
    "write_examples",
    "write_json",
    "write_result",
    "write_summary",
    "write_yaml",
]

ENVIRONMENT = "environment.json"
RESULT = "result.json"  # the last
CONFIG = "config.yaml"
EXAMPLES = "examples"

# What a run may write, in the order in which a replaced run is moved: killed
# in between, it still looks finished. The examples are listed by name.
FILES = (
    CONFIG,
    ENVIRONMENT,
    "class_names.json",
    "history.csv",
    "metrics.jsonl",
    "trackers.json",
    "model.keras",
    "predictions.npz",
    "predictions.csv",
    "per_class.csv",
    "attention.npz",
    "augmented.npz",
    "few_shot.csv",
    "few_shot.png",
    "masked_patch.png",
    "pseudo_labels.npz",
    "report.html",
    "curves.png",
    "confusion.png",
    "checkpoints/step-*.npz",
    "checkpoints/average.keras",
    "checkpoints/best.keras",
    "tensorboard/events.out.tfevents.*",
    *(f"{inside}{PARTIAL}*" for inside in ("", "checkpoints/", f"{EXAMPLES}/")),
    RESULT,
)
ALL = (MANIFEST, *FILES, f"{EXAMPLES}/*.png")
EXAMPLE = re.compile(rf"{EXAMPLES}/[^/\\*?\[]+\.png")


@contextlib.contextmanager
def taken(
    path: str | os.PathLike, *, overwrite: bool
) -> Iterator[pathlib.Path]:
    """Locks a folder that a run may use: until the end no other process may.

    Raises:
        ValueError: as `check` does, and when another process has the folder.

    Example:
        >>> with taken("runs/digits", overwrite=False) as folder:
        ...     begin(folder, config, environment)
    """
    folder = check(path, overwrite=overwrite)
    with locked(folder):
        run_store.get(folder, *ALL, *(f"{PREVIOUS}/{x}" for x in ALL))
        # Another process may have ended between the two.
        yield check(path, overwrite=overwrite)


def check(path: str | os.PathLike, *, overwrite: bool) -> pathlib.Path:
    """Checks that a run may use a folder, which need not exist.

    Raises:
        ValueError: when the folder holds a finished run and overwrite is
            False, holds files that no run wrote, or is no folder.
    """
    folder = run_store.local(path)
    if folder.exists() and not folder.is_dir():
        raise ValueError(
            f"{str(folder)!r} is not a folder. Choose another --run_dir."
        )
    found = list(folder.iterdir()) if folder.exists() else []
    # A run that is killed in its first moment leaves only these.
    found = [
        file for file in found if not file.name.startswith((PARTIAL, LOCK))
    ]
    if found and _listed(folder) is None:
        raise ValueError(
            f"The folder {shown(folder)!r} holds files that are not of a run: "
            f"it has no {MANIFEST}. Choose another --run_dir."
        )
    if (folder / RESULT).exists() and not overwrite:
        raise ValueError(
            f"The folder {shown(folder)!r} holds a finished run. Choose "
            "another --run_dir, or --overwrite true to replace it."
        )
    return folder


def begin(folder: pathlib.Path, config: dict, environment: dict) -> None:
    """Begins a run in a folder that `check` allows.

    What an earlier run wrote is moved into `.previous-run`, which
    `write_result` removes; all other files stay as they are.
    """
    _move_aside(folder)
    run_store.publish(folder, exactly=True)
    folder.mkdir(parents=True, exist_ok=True)
    write_json(
        folder / MANIFEST, {"keras_vit": __version__, "files": list(FILES)}
    )
    write_json(folder / ENVIRONMENT, environment)
    write_yaml(folder / CONFIG, config)
    run_store.publish(folder)


def remove_partial(folder: pathlib.Path) -> None:
    """Removes what a killed process of a run had begun to write."""
    _remove(folder, [x for x in FILES if PARTIAL in x])


def write_result(folder: pathlib.Path, result: dict) -> None:
    """Writes result.json: the run is finished, what it replaced is removed."""
    write_json(folder / RESULT, result)
    run_store.publish(folder)
    _remove_previous(folder)
    run_store.publish(folder)


def write_summary(folder: pathlib.Path, result: dict) -> None:
    """Writes result.json of several runs, whose folders are below."""
    write_json(folder / RESULT, result)
    run_store.publish(folder)


def folder_of(source: str | os.PathLike) -> pathlib.Path | None:
    """The folder of the run that this path, or the model there, is of."""
    path = pathlib.Path(on_disk(os.fspath(source)))
    folder = path.parent if path.name == RUN_MODEL else path
    files = (MANIFEST, CONFIG)
    return folder if all((folder / x).is_file() for x in files) else None


def is_begun(folder: pathlib.Path) -> bool:
    """Whether a run wrote more than its first two files."""
    first = {folder / ENVIRONMENT, *folder.glob(f"{PARTIAL}*")}
    return not first.issuperset(_files(folder, _listed(folder) or ()))


def _listed(folder) -> list[str] | None:
    """The files of the run by the manifest, as patterns; None without one."""
    path = folder / MANIFEST
    if not path.is_file():
        return None
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        listed = content["files"]
        # A manifest that others edited names nothing that runs do not write.
        return [x for x in listed if x in FILES or EXAMPLE.fullmatch(x)]
    except (ValueError, TypeError, KeyError, RecursionError):
        raise ValueError(
            f"{shown(path)!r} is damaged, so that it is unknown which files "
            "are of the run. Choose another --run_dir."
        ) from None


def _files(folder, listed) -> list[pathlib.Path]:
    """The files of a run that are there, result.json last."""
    return [
        path
        for pattern in sorted(listed, key=lambda x: x == RESULT)
        for path in folder.glob(pattern)
        if path.is_file()
    ]


def _move_aside(folder):
    """Moves a finished run into PREVIOUS; removes an unfinished one."""
    listed = _listed(folder)
    if listed is None:
        listed = [f"{PARTIAL}*"]
    if not (folder / RESULT).exists():
        _remove(folder, listed)
        return
    previous = folder / PREVIOUS
    if (previous / RESULT).exists():
        _remove_previous(folder)  # This run was killed before it did so.
    previous.mkdir(exist_ok=True)
    with replacing(previous / MANIFEST) as path:
        shutil.copyfile(folder / MANIFEST, path)
    found = _files(folder, listed)
    for path in found:
        target = previous / path.relative_to(folder)
        target.parent.mkdir(exist_ok=True)
        path.replace(target)
    _remove_empty(found)
    print(f"The run before is in {shown(previous)} until this one is finished.")


def _remove_previous(folder):
    previous = folder / PREVIOUS
    with contextlib.suppress(ValueError):  # What is damaged stays.
        _remove(previous, _listed(previous) or [])
    (previous / MANIFEST).unlink(missing_ok=True)
    _remove_empty([previous / MANIFEST])


def _remove(folder, listed):
    found = _files(folder, listed)
    for path in found:
        path.unlink(missing_ok=True)
    _remove_empty(found)


def _remove_empty(files):
    """Removes the folders of files that are gone, if nothing is left there."""
    for folder in sorted({x.parent for x in files}, reverse=True):
        with contextlib.suppress(OSError):
            folder.rmdir()


def read_config(folder: pathlib.Path) -> dict:
    """Reads the config.yaml of a run.

    Raises:
        ValueError: when it is missing, or is no config.
    """
    import yaml

    path = folder / CONFIG
    problem = "is damaged"
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
        if isinstance(content, dict):
            return content
    except FileNotFoundError:
        problem = "is gone"
    except (ValueError, RecursionError, yaml.YAMLError):
        pass
    raise ValueError(
        f"{shown(path)!r} {problem}, so that it is unknown what the run is. "
        "Put the file back, choose another --run_dir, or --overwrite true to "
        "begin anew."
    )


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
    """Saves a model with its class names, without optimizer, LoRA merged.

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
    from keras_vit.training.trainable import merged

    names = class_names
    if names is not None and len(names) != model.output_shape[-1]:
        raise ValueError(
            f"The model has {model.output_shape[-1]} classes. Received: "
            f"{len(class_names)} class names."
        )
    path = pathlib.Path(path)
    model = merged(model)
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
            class_names = read_class_names(path, archive)
    except FileNotFoundError:
        raise ValueError(f"There is no file {str(path)!r}.") from None
    except zipfile.BadZipFile:
        raise ValueError(f"{str(path)!r} is not a .keras file.") from None
    except KeyError:
        raise ValueError(
            f"The model {str(path)!r} has no class names in it. Load it with "
            "keras.saving.load_model, or save it with "
            "keras_vit.training.run.files.save_model."
        ) from None
    return keras.saving.load_model(path, compile=False), class_names


def write_examples(folder: pathlib.Path, images, labels, class_names) -> None:
    """Saves images as examples/<class>_<n>.png, n from 0 in each class.

    A file that is there already and that no run wrote is left as it is.

    Args:
        folder: the run folder.
        images: uint8 array of shape (N, H, W, C).
        labels: integer array of shape (N,).
        class_names: sequence of str.
    """
    from PIL import Image

    seen, named = collections.Counter(), {}
    for image, label in zip(images, labels, strict=True):
        name = _file_name(class_names[label])
        named[f"{EXAMPLES}/{name}_{seen[name]}.png"] = image
        seen[name] += 1
    listed = _listed(folder) or []
    named = {
        name: image
        for name, image in named.items()
        if name in listed or not (folder / name).exists()
    }
    # Before they are there: what is not listed is never removed.
    files = list(dict.fromkeys([*listed, *named]))
    content = {"keras_vit": __version__, "files": files}
    write_json(folder / MANIFEST, content)
    (folder / EXAMPLES).mkdir(exist_ok=True)
    for name, image in named.items():
        grey = image.shape[-1] == 1
        with replacing(folder / name) as path:
            Image.fromarray(image[..., 0] if grey else image).save(path)


def _file_name(class_name: str) -> str:
    """A class name as a part of a file name, of at most 200 bytes."""
    return re.sub(r"[^\w-]+", "-", class_name)[:50]
