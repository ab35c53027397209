"""The whole state of a training in one file, whole or not there.

A checkpoint is an `.npz` file: the variables of the model (the states of its
random generators are among them) and of the optimizer (slots, counters,
moving average, accumulated gradients, loss scale) by their number, the states
of the backend's own generators, and a JSON record of the rest. Numbers, not
names: Keras numbers names anew in each process. What a file holds is checked
by zip's checksums when it is read.
"""

import json
import pathlib
import warnings

import numpy as np

from keras_vit.checkpoints.containers.errors import refusing
from keras_vit.checkpoints.containers.npz import open_npz, write_npz
from keras_vit.files import PARTIAL, replacing
from keras_vit.training.distribution import random_states, set_random_states
from keras_vit.training.distribution.processes import is_first, to_numpy

__all__ = [
    "FOLDER",
    "prune",
    "read_newest",
    "restore",
    "restore_generators",
    "steps",
    "write",
]

FOLDER = "checkpoints"
RECORD = "record"
GENERATOR = "generator/"


def path_of(folder: pathlib.Path, step: int) -> pathlib.Path:
    """The file of the checkpoint after a step."""
    return folder / f"step-{step:09d}.npz"


def steps(folder: pathlib.Path) -> list[int]:
    """The steps that there are checkpoints of, the newest last.

    Args:
        folder: the folder of the checkpoints; it need not exist.

    Returns:
        A list of int.

    Example:
        >>> steps(run / "checkpoints")
        [950, 1140]
    """
    return sorted(
        int(file.stem.removeprefix("step-"))
        for file in folder.glob("step-*.npz")
    )


def write(folder: pathlib.Path, step: int, model, record: dict) -> None:
    """Writes the checkpoint after a step.

    Of several processes, which call it alike, the first one writes.

    Args:
        folder: the folder of the checkpoints; made where it is missing.
        step: int, updates of the weights so far.
        model: a compiled Keras model whose optimizer is built.
        record: what json.dumps takes, kept beside the variables.

    Raises:
        OSError: when it cannot be written; older ones are as they were.

    Example:
        >>> write(run / "checkpoints", 950, model, {"epoch": 50})
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
    with replacing(path_of(folder, step)) as temporary:
        write_npz(temporary, arrays)


def prune(folder: pathlib.Path, keep: int) -> None:
    """Removes all but the newest checkpoints.

    Args:
        folder: the folder of the checkpoints.
        keep: int, how many stay.

    Example:
        >>> prune(run / "checkpoints", keep=2)
    """
    if not is_first():
        return
    for step in steps(folder)[:-keep]:
        path_of(folder, step).unlink()
    for partial in folder.glob(f"{PARTIAL}*"):
        partial.unlink()


def read_newest(folder: pathlib.Path) -> tuple[dict, dict] | None:
    """Reads the newest checkpoint that is whole.

    Args:
        folder: the folder of the checkpoints; it need not exist.

    Returns:
        Arrays by name, and the record; None where there is no checkpoint. A
        broken one is passed over with a warning.

    Raises:
        ValueError: when there are checkpoints, and all are broken.

    Example:
        >>> arrays, record = read_newest(run / "checkpoints")
    """
    found = steps(folder)
    for step in reversed(found):
        path = path_of(folder, step)
        try:
            return _read(path)
        except ValueError as error:
            warnings.warn(
                f"The checkpoint {str(path)!r} is broken; the run continues "
                f"from the one before. {error}",
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
        return arrays, json.loads(arrays.pop(RECORD).tobytes())


def restore(model, arrays: dict) -> None:
    """Gives a model and its optimizer the state of a checkpoint.

    Args:
        model: a compiled Keras model whose optimizer is built.
        arrays: as `read_newest` returns them, of any backend. Those of the
            variables are taken out of the dictionary.

    Raises:
        ValueError: when they are not of such a model; it is left as it was.

    Example:
        >>> restore(model, arrays)
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
        # Taken out, so that a long run does not hold them to its end.
        variable.assign(arrays.pop(name).astype(variable.dtype))


def restore_generators(arrays: dict) -> None:
    """Takes the backend's own generators back to where they were.

    That is for the very moment before the first step: data loaders of torch
    draw from them as well.

    Args:
        arrays: as `read_newest` returns them.

    Example:
        >>> restore_generators(arrays)
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
