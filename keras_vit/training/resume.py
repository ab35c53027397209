"""Checkpoints of a training, and how a run resumes from them.

A checkpoint is one `.npz` file, whole or missing: the variables of the model
(with the states of its random generators) and of the optimizer (slots,
counters, moving average, accumulated gradients, loss scale) by their number,
the states of the backend's own generators, and a JSON record of the rest.
Numbers, not names: Keras numbers names anew in each process. The checksums of
zip verify the file when it is read.
"""

import contextlib
import dataclasses
import json
import pathlib
import re
import warnings
from collections.abc import Iterator

import numpy as np

from keras_vit.checkpoints.containers.npz import open_npz, write_npz
from keras_vit.checkpoints.containers.tensors import refusing
from keras_vit.data.readers import chosen_reader
from keras_vit.files import PARTIAL, replacing
from keras_vit.training import run_folder
from keras_vit.training.config import Recipe
from keras_vit.training.distribution import (
    environment,
    random_states,
    set_random_states,
)
from keras_vit.training.distribution.processes import (
    agreed,
    is_first,
    place,
    to_numpy,
)

__all__ = [
    "FOLDER",
    "checkpoint_steps",
    "differences",
    "flat",
    "open_run",
    "prune_checkpoints",
    "read_newest",
    "reopen",
    "restore",
    "restore_generators",
    "with_reader",
    "write_checkpoint",
]

FOLDER = "checkpoints"
NAME = re.compile(r"step-(\d{9,15})\.npz")  # and not "step-...(copy).npz"
RECORD = "record"
GENERATOR = "generator/"


def _path_of(folder: pathlib.Path, step: int) -> pathlib.Path:
    return folder / f"step-{step:09d}.npz"


def checkpoint_steps(folder: pathlib.Path) -> list[int]:
    """The steps of the checkpoints in a folder, in ascending order."""
    names = (NAME.fullmatch(file.name) for file in folder.glob("step-*.npz"))
    return sorted(int(name[1]) for name in names if name)


def write_checkpoint(
    folder: pathlib.Path, step: int, model, record: dict
) -> None:
    """Writes the checkpoint after a step.

    Of several processes, which all call it, the first one writes.

    Args:
        folder: the folder of the checkpoints.
        step: updates of the weights so far.
        model: a compiled Keras model whose optimizer is built.
        record: plain values for JSON, stored beside the variables.

    Raises:
        OSError: when it cannot be written; older ones are unchanged.
    """
    text = json.dumps(record).encode()
    arrays = [(RECORD, np.frombuffer(text, np.uint8))]
    arrays += [(name, _array(variable)) for name, variable in _variables(model)]
    arrays += [
        (f"{GENERATOR}{name}", state) for name, state in random_states().items()
    ]
    if not is_first():
        return
    folder.mkdir(exist_ok=True)
    with replacing(_path_of(folder, step)) as temporary:
        write_npz(temporary, arrays)


def prune_checkpoints(folder: pathlib.Path, keep: int) -> None:
    """Removes all but the `keep` newest checkpoints."""
    if not is_first():
        return
    for step in checkpoint_steps(folder)[:-keep]:
        _path_of(folder, step).unlink()
    for partial in folder.glob(f"{PARTIAL}*"):
        partial.unlink()


def read_newest(folder: pathlib.Path) -> tuple[dict, dict] | None:
    """Reads the newest whole checkpoint; warns of broken ones and skips them.

    Returns:
        Arrays by name, and the record; None where there is no checkpoint.

    Raises:
        ValueError: when there are checkpoints, and all are broken.

    Example:
        >>> arrays, record = read_newest(run / "checkpoints")
    """
    found = checkpoint_steps(folder)
    for step in reversed(found):
        path = _path_of(folder, step)
        try:
            return _read(path)
        except ValueError as error:
            warnings.warn(
                f"The checkpoint {str(path)!r} is broken; the run continues "
                f"from the previous one. {error}",
                stacklevel=2,
            )
    if found:
        raise ValueError(
            f"All checkpoints in {str(folder)!r} are broken. Remove the run "
            "folder, or choose another --run_dir, to start again."
        )
    return None


def _read(path):
    with refusing(path, "the checkpoint"):
        tensors = open_npz(path).tensors
        arrays = {name: tensor.read() for name, tensor in tensors.items()}
        record = json.loads(arrays.pop(RECORD).tobytes())
        _check_record(record)
        return arrays, record


# What a checkpoint holds beside the variables.
KINDS = {
    "step": int,
    "interval": int,
    "ended": bool,
    "seconds": (int, float),
    "callbacks": list,
}


def _check_record(record):
    for name, kind in KINDS.items():
        if not isinstance(record[name], kind):
            raise ValueError(f"Its {name} is {record[name]!r}.")
    if min(record["step"], record["interval"]) < 0:
        raise ValueError(f"Its step is {record['step']}.")


def restore(model, arrays: dict) -> None:
    """Restores a model and its optimizer from a checkpoint.

    Args:
        model: a compiled Keras model whose optimizer is built.
        arrays: as `read_newest` returns them, of any backend. Those of the
            variables are removed from the dictionary.

    Raises:
        ValueError: when they are of another model; this one is unchanged.
    """
    variables = _variables(model)
    found = [name for name in arrays if not name.startswith(GENERATOR)]
    if len(found) != len(variables):
        raise ValueError(
            f"The checkpoint has {len(found)} variables, the model and its "
            f"optimizer have {len(variables)}. {CURE}"
        )
    for name, variable in variables:
        _check(name, variable, arrays.get(name))
    for name, variable in variables:
        # Removed, so that a long run does not hold them to its end.
        variable.assign(arrays.pop(name).astype(variable.dtype))


def restore_generators(arrays: dict) -> None:
    """Restores the backend's own random generators from a checkpoint.

    Right before the first step: data loaders of torch draw from them as well.
    """
    set_random_states(
        {
            name.removeprefix(GENERATOR): array
            for name, array in arrays.items()
            if name.startswith(GENERATOR)
        }
    )


CURE = (
    "It was written by another version: continue with the versions that "
    "environment.json names, or start again in another --run_dir."
)


def _check(name, variable, array):
    """Raises a ValueError unless an array may be the value of a variable."""
    expected = tuple(variable.shape), _kind(variable.dtype)
    found = None
    if array is not None:
        found = array.shape, _kind(array.dtype.name)
    if found != expected:
        raise ValueError(
            f"The checkpoint's {name!r} is {found}, but {variable.path!r} is "
            f"{expected}. {CURE}"
        )


def _kind(dtype):
    """Backends count in integers of different sizes."""
    return "int" if dtype.startswith(("int", "uint")) else dtype


def _variables(model):
    groups = {"model": model.variables, "optimizer": model.optimizer.variables}
    return [
        (f"{group}/{i}", variable)
        for group, variables in groups.items()
        for i, variable in enumerate(variables)
    ]


def _array(variable):
    # torch has no NumPy bfloat16 and gives float32: cast back.
    return to_numpy(variable).astype(variable.dtype)


# Fields that may change when a run resumes.
FREE = (
    "distribution",
    "overwrite",
    "run_dir",
    "training.keep_checkpoints",
    "training.log_every_steps",
)
READER = "data.reader"
# What options were before there was one.
ADDED = {READER: "tensorflow"}


def with_reader(recipe: Recipe) -> Recipe:
    """The recipe with what reads its images, where it leaves that open.

    A run that is resumed keeps the reader that it began with, if it is here.
    """
    if recipe.data.reader != "auto":
        return recipe
    reader = chosen_reader("auto")
    folder = pathlib.Path(recipe.run_dir)
    finished = (folder / run_folder.RESULT).exists()
    if not finished and (folder / run_folder.CONFIG).is_file():
        begun = flat(run_folder.read_config(folder)).get(READER)
        # TensorFlow may not be installed here: then the run is refused.
        reader = "pillow" if begun == "pillow" else reader
    data = dataclasses.replace(recipe.data, reader=reader)
    return dataclasses.replace(recipe, data=data)


@contextlib.contextmanager
def open_run(
    recipe: Recipe,
) -> Iterator[tuple[pathlib.Path, tuple[dict, dict] | None]]:
    """Prepares the run folder of a recipe, or finds where to resume.

    Of several processes, the first one decides and holds the lock of the
    folder; all read the checkpoint.

    Yields:
        The folder, and the newest whole checkpoint as `read_newest` returns
        it: None for a new run.

    Raises:
        ValueError: when the folder holds a finished run that may not be
            replaced, an unfinished one of another config, something else, or
            checkpoints that are all broken; when another run has it; or when
            a process does not find the checkpoint of the first.
    """
    opened = []
    folder = pathlib.Path(recipe.run_dir)
    with contextlib.ExitStack() as stack:

        def open_first():
            taken = run_folder.taken(folder, overwrite=recipe.overwrite)
            stack.enter_context(taken)
            opened.append(_open_first(folder, recipe))
            return _step(opened[0])

        step = agreed(open_first)
        yield folder, opened[0] if opened else _read_same(recipe, step)


def reopen(folder: pathlib.Path) -> tuple[dict, dict] | None:
    """`read_newest` of a run folder, after the first process wrote it."""
    agreed(lambda: checkpoint_steps(folder / FOLDER))
    return read_newest(folder / FOLDER)


def _step(checkpoint):
    return None if checkpoint is None else checkpoint[1]["step"]


def _read_same(recipe, step):
    """The checkpoint that the first process continues from."""
    if step is None:
        return None
    folder = pathlib.Path(recipe.run_dir, FOLDER)
    checkpoint = read_newest(folder)
    if _step(checkpoint) != step:
        raise ValueError(
            f"The first process continues from step {step}, but process "
            f"{place()[0]} finds step {_step(checkpoint)} in {str(folder)!r}. "
            "Choose a --run_dir on a disk that all hosts share."
        )
    return checkpoint


def _open_first(folder, recipe):
    finished = (folder / run_folder.RESULT).exists()
    if finished or not _is_unfinished(folder, recipe):
        config = dataclasses.asdict(recipe)
        run_folder.begin(folder, config, environment())
        return None
    _check_same(folder, recipe)
    run_folder.remove_partial(folder)
    checkpoint = read_newest(folder / FOLDER)
    _note_continuation(folder, checkpoint)
    return checkpoint


def _is_unfinished(folder, recipe):
    """Whether a run is to be continued; one without a config is replaced."""
    if (folder / run_folder.CONFIG).exists():
        return True
    return run_folder.is_begun(folder) and not recipe.overwrite


def _check_same(folder, recipe):
    different = differences(run_folder.read_config(folder), recipe)
    if different:
        raise ValueError(
            f"The folder {str(folder)!r} holds an unfinished run of "
            f"another config: {'; '.join(different)}. Give the same config to "
            "continue it, choose another --run_dir, or remove the folder."
        )


def _note_continuation(folder, checkpoint):
    """Adds the step and the environment to environment.json."""
    path = folder / run_folder.ENVIRONMENT
    try:
        content = dict(json.loads(path.read_text(encoding="utf-8")))
        continued = list(content.get("continued", []))
    except (OSError, ValueError, TypeError, RecursionError):
        content, continued = {}, []  # Of a damaged file nothing is kept.
    step = checkpoint[1]["step"] if checkpoint else 0
    print(f"Continuing the run in {folder} from step {step}", flush=True)
    continued.append({"step": step, **environment()})
    run_folder.write_json(path, {**content, "continued": continued})


def differences(old: dict, recipe: Recipe) -> list[str]:
    """The fields in which a recipe differs from the config of a run.

    One text per field; fields that may change when a run resumes are left
    out. An option that is missing in the config had its default, and a group
    that the recipe lacks is an option of another recipe: configs of earlier
    versions have fewer options, and those of all recipes.

    Example:
        >>> differences({"seed": 0}, Recipe(seed=1))
        ['seed: was 0, now 1']
    """
    config = dataclasses.asdict(recipe)
    new, defaults = (
        flat(json.loads(json.dumps(options)))
        for options in (config, dataclasses.asdict(type(recipe)()))
    )
    shared = {
        name: value
        for name, value in old.items()
        if name in config or not isinstance(value, dict)
    }
    old = {**defaults, **ADDED, **flat(shared)}
    # Whatever read the images is what "auto" stands for.
    free = (*FREE, READER) if new.get(READER) == "auto" else FREE
    return [
        f"{name}: was {_shown(old, name)}, now {_shown(new, name)}"
        for name in {**old, **new}
        if name not in free and old.get(name, ...) != new.get(name, ...)
    ]


def _shown(config, name):
    return repr(config[name]) if name in config else "not there"


def flat(config: dict, prefix: str = "") -> dict:
    """The fields of a config by their names on the command line."""
    fields = {}
    for name, value in config.items():
        if isinstance(value, dict):
            fields |= flat(value, f"{prefix}{name}.")
        else:
            fields[prefix + name] = value
    return fields
