"""The files of checkpoints, and how a model gets back what they hold.

A checkpoint is an `.npz` file, whole or missing: the variables of the model
(with the states of its random generators) and of the optimizer (slots,
counters, moving average, accumulated gradients, loss scale) by their number,
the states of the backend's own generators, and a JSON record of the rest.
Numbers, not names: Keras numbers names anew in each process. The checksums of
zip verify the file when it is read.

Of variables that the devices of several processes share, each process copies
and writes its own shards: `step-000000010-3f9a0c21-1.npz` has those of the
second process, each array under the name of its variable and the place where
it begins, as in `optimizer/5@0,384`. The checkpoint itself is written last and
names these files; without it they are nothing.
"""

import json
import pathlib
import re
import secrets
import warnings
from collections.abc import Callable, Sequence

import keras
import numpy as np

from keras_vit.checkpoints.files.npz import open_npz, write_npz
from keras_vit.checkpoints.files.tensors import refusing
from keras_vit.io.atomic_files import PARTIAL, replacing
from keras_vit.runtime.machine import random_states, set_random_states
from keras_vit.training.build import own_variables
from keras_vit.training.distribution.processes import (
    agreed,
    is_first,
    is_spread,
    place,
    say,
    to_numpy,
    wait_for,
)
from keras_vit.training.run.files import (
    get,
    publish,
    put,
    remove_others,
    shown,
)

__all__ = [
    "FOLDER",
    "Shards",
    "begin_checkpoint",
    "checkpoint_steps",
    "prune_best",
    "prune_checkpoints",
    "read_newest",
    "read_shards",
    "remove_shards",
    "restore",
    "restore_best",
    "restore_generators",
    "restore_metrics",
    "restore_model",
    "write_best",
]

WRITTEN = "written"
SHARD = re.compile(r"step-\d{9,15}-[0-9a-f]{8}-\d+\.npz")
FOLDER = "checkpoints"
NAME = re.compile(r"step-(\d{9,15})\.npz")  # and not "step-...(copy).npz"
RECORD = "record"
GENERATOR = "generator/"
METRIC = "metric/"  # of an interval that was begun
BESIDE = (GENERATOR, METRIC)


class Shards:
    """What this process has of a checkpoint, copied to host memory.

    All processes make one, with the same variables.

    Args:
        folder: the folder of the checkpoints.
        step: updates of the weights so far.
        variables: pairs of a name and a variable that several processes share.

    Attributes:
        record: what the checkpoint says of them.
    """

    def __init__(
        self,
        folder: pathlib.Path,
        step: int,
        variables: Sequence[tuple[str, keras.Variable]],
    ):
        index, count = place()
        # No file of a checkpoint that was begun before is taken for one.
        self.token = agreed(lambda: secrets.token_hex(4))
        names = [f"step-{step:09d}-{self.token}-{i}.npz" for i in range(count)]
        shapes = {name: list(variable.shape) for name, variable in variables}
        self.record = {"files": names, "shapes": shapes}
        self._path = folder / names[index]
        self._arrays = [
            (f"{name}@{','.join(str(x.start or 0) for x in shard.index)}", copy)
            for name, variable in variables
            for shard, copy in _own_shards(variable)
        ]

    def write(self) -> None:
        """Write the file of this process; the first waits for all others.

        Raises:
            OSError: when one of them cannot be written.
        """
        index, count = place()
        key = f"checkpoint/{self.token}/"
        try:
            self._path.parent.mkdir(exist_ok=True)
            with replacing(self._path) as temporary:
                write_npz(temporary, self._arrays)
            put(self._path, keep=index == 0)
        except BaseException as error:
            say(f"{key}{index}", f"{type(error).__name__}: {error}")
            raise
        say(f"{key}{index}", WRITTEN)
        others = range(1, count) if index == 0 else ()
        for other in others:
            if (message := wait_for(f"{key}{other}")) != WRITTEN:
                raise OSError(f"Process {other} could not write: {message}")


def _own_shards(variable):
    """Return the pairs of a shard that this process is to write, and its copy.

    Of those that several devices hold alike, one is written.
    """
    for shard in variable.value.addressable_shards:
        if shard.replica_id == 0:
            yield shard, np.array(shard.data)


def read_shards(folder: pathlib.Path, record: dict) -> dict[str, np.ndarray]:
    """Read the whole of each variable from the files of all processes.

    Raises:
        ValueError: when a file is missing or damaged, or they do not fill the
            variables.
    """
    arrays, filled = {}, {}
    for file in record["files"]:
        path = folder / str(file)
        if SHARD.fullmatch(str(file)) is None:
            raise ValueError(f"Its shards are in {file!r}.")
        with refusing(path, "the shards"):
            for name, tensor in open_npz(path).tensors.items():
                _fill(arrays, filled, record["shapes"], name, tensor.read())
    shapes = record["shapes"]
    missing = [x for x in shapes if filled.get(x) != np.prod(shapes[x])]
    if missing:
        raise ValueError(f"Its shards do not fill {missing[0]!r}.")
    return arrays


def _fill(arrays, filled, shapes, name, shard):
    variable, _, begin = name.rpartition("@")
    if variable not in arrays:
        arrays[variable] = np.empty(tuple(shapes[variable]), shard.dtype)
        filled[variable] = 0
    starts = map(int, begin.split(","))
    pairs = zip(starts, shard.shape, strict=True)
    arrays[variable][tuple(slice(x, x + size) for x, size in pairs)] = shard
    filled[variable] += shard.size


def remove_shards(folder: pathlib.Path, files: Sequence[str]) -> None:
    """Remove the shards of checkpoints that are not there.

    Args:
        folder: the folder of the checkpoints.
        files: the names of those that stay.
    """
    for path in folder.glob("step-*-*-*.npz"):
        if SHARD.fullmatch(path.name) and path.name not in files:
            path.unlink(missing_ok=True)


def _path_of(folder: pathlib.Path, step: int) -> pathlib.Path:
    return folder / f"step-{step:09d}.npz"


def checkpoint_steps(folder: pathlib.Path) -> list[int]:
    """Return the steps of the checkpoints in a folder, in ascending order."""
    names = (NAME.fullmatch(file.name) for file in folder.glob("step-*.npz"))
    return sorted(int(name[1]) for name in names if name)


def begin_checkpoint(
    folder: pathlib.Path,
    step: int,
    model,
    record: dict,
    metrics=(),
    keep: int | None = None,
) -> Callable[[], None]:
    """Copy what the checkpoint after a step holds to host memory.

    All processes of a run call it. Each copies what it is to write: its own
    shards, and the first one what is whole everywhere.

    Args:
        folder: the folder of the checkpoints.
        step: updates of the weights so far.
        model: a compiled Keras model whose optimizer is built.
        record: plain values for JSON, stored beside the variables. With
            "part" it is of an interval that was begun: see `Checkpoints`.
        metrics: the values of the variables of the metrics then.
        keep: how many checkpoints are left afterwards; None leaves all.

    Returns:
        A function that writes the copy, also in a thread. It raises an
        OSError when that cannot be done; older checkpoints are unchanged.

    Example:
        >>> write = begin_checkpoint(folder, 500, model, record)
        >>> threading.Thread(target=write).start()
    """
    variables = _variables(model)
    spread = [(name, x) for name, x in variables if is_spread(x)]
    shards = Shards(folder, step, spread) if spread else None
    arrays = []
    if is_first():
        if shards is not None:
            record = {**record, "shards": shards.record}
        text = json.dumps(record).encode()
        arrays = [(RECORD, np.frombuffer(text, np.uint8))]
        shared = {name for name, _ in spread}
        arrays += [
            (name, _array(variable))
            for name, variable in variables
            if name not in shared
        ]
        arrays += [(f"{GENERATOR}{k}", x) for k, x in random_states().items()]
        arrays += [(f"{METRIC}{i}", x) for i, x in enumerate(metrics)]

    def write():
        if shards is not None:
            shards.write()
        if not is_first():
            return
        folder.mkdir(exist_ok=True)
        with replacing(_path_of(folder, step)) as temporary:
            write_npz(temporary, arrays)
        publish(folder.parent)
        if keep is not None:
            prune_checkpoints(folder, keep)

    return write


def prune_checkpoints(folder: pathlib.Path, keep: int) -> None:
    """Remove all but the `keep` newest checkpoints."""
    if not is_first():
        return
    for step in checkpoint_steps(folder)[:-keep]:
        _path_of(folder, step).unlink()
    # Others may be written at this moment, by another thread.
    for partial in folder.glob(f"{PARTIAL}step-*"):
        partial.unlink(missing_ok=True)
    publish(folder.parent)
    files = [
        file
        for step in checkpoint_steps(folder)
        for file in _shard_files(_path_of(folder, step))
    ]
    remove_shards(folder, files)
    remove_others(folder, files)


def _shard_files(path) -> list[str]:
    """Return the files that a checkpoint names; none where it is broken."""
    try:
        with refusing(path, "the checkpoint"):
            text = open_npz(path).tensors[RECORD].read().tobytes()
            return list(json.loads(text).get("shards", {}).get("files", []))
    except ValueError:
        return []


def read_newest(folder: pathlib.Path) -> tuple[dict, dict] | None:
    """Read the newest whole checkpoint; warns of broken ones and skips them.

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
                f"The checkpoint {shown(path)!r} is broken; the run continues "
                f"from the previous one. {error}",
                stacklevel=2,
            )
    if found:
        raise ValueError(
            f"All checkpoints in {shown(folder)!r} are broken. Remove the run "
            "folder, or choose another --run_dir, to start again."
        )
    return None


def _read(path):
    with refusing(path, "the checkpoint"):
        tensors = open_npz(path).tensors
        arrays = {name: tensor.read() for name, tensor in tensors.items()}
        record = json.loads(arrays.pop(RECORD).tobytes())
        _check_record(record)
        if (shards := record.pop("shards", None)) is not None:
            arrays |= read_shards(path.parent, shards)
        return arrays, record


# What a checkpoint holds beside the variables.
KINDS = {
    "step": int,
    "interval": int,
    "ended": bool,
    "seconds": (int, float),
    "callbacks": list,
}
# And in the midst of an interval: see `MetricsLog.position`.
PART = {
    "batches": int,
    "logged": int,
    "means": dict,
    "seconds": (int, float),
    "open": (int, float),
}


def _check_record(record):
    for name, kind in KINDS.items():
        if not isinstance(record[name], kind):
            raise ValueError(f"Its {name} is {record[name]!r}.")
    if min(record["step"], record["interval"]) < 0:
        raise ValueError(f"Its step is {record['step']}.")
    part = record.get("part")
    if part is not None and not all(
        isinstance(part[name], kind) for name, kind in PART.items()
    ):
        raise ValueError(f"Its part is {part!r}.")


def restore(model, arrays: dict) -> None:
    """Restore a model and its optimizer from a checkpoint.

    Args:
        model: a compiled Keras model whose optimizer is built.
        arrays: as `read_newest` returns them, of any backend. Those of the
            variables are removed from the dictionary.

    Raises:
        ValueError: when they are of another model; this one is unchanged.
    """
    variables = _variables(model)
    found = [name for name in arrays if not name.startswith(BESIDE)]
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


def restore_model(folder: pathlib.Path, step: int, model) -> None:
    """Restore a model, without an optimizer, from the checkpoint of a step.

    Args:
        folder: the folder of the checkpoints.
        step: one of `checkpoint_steps`.
        model: a Keras model like the one that was trained.

    Raises:
        ValueError: when it is damaged, or of another model; this one is
            unchanged.
    """
    arrays, _ = _read(_path_of(folder, step))
    count = sum(name.startswith("model/") for name in arrays)
    known = len(own_variables(model))
    if count != known:
        raise ValueError(
            f"The checkpoint has {count} variables of a model, {model.name!r} "
            f"has {known}: another network was trained, as with "
            "LoRA, image_sizes or a method without labels."
        )
    _give(model, arrays)


def write_best(folder: pathlib.Path, step: int, model) -> None:
    """Write the variables of a model, without its optimizer's.

    All processes of a run call it, and the first one writes.

    Args:
        folder: the folder of the checkpoints.
        step: updates of the weights so far, in the name of the file.
        model: a Keras model, with the moving average in its weights where
            that is what is evaluated.
    """
    arrays = [
        (f"model/{i}", _array(variable))
        for i, variable in enumerate(own_variables(model))
    ]
    if is_first():
        folder.mkdir(exist_ok=True)
        with replacing(_best_path(folder, step)) as temporary:
            write_npz(temporary, arrays)


def restore_best(folder: pathlib.Path, step: int, model) -> None:
    """Give a model what `write_best` wrote after a step, in all processes.

    Raises:
        ValueError: when the file is missing, damaged or of another model;
            this one is unchanged.
    """
    path = _best_path(folder, step)
    agreed(lambda: None)  # The first process has written it.
    if not is_first():
        get(folder.parent, f"{FOLDER}/{path.name}")
    with refusing(path, "the best weights"):
        tensors = open_npz(path).tensors
        arrays = {name: tensor.read() for name, tensor in tensors.items()}
    _give(model, arrays)


def _give(model, arrays):
    """Assign the arrays of a model to its variables, all of them or none."""
    for i, variable in enumerate(own_variables(model)):
        _check(f"model/{i}", variable, arrays.get(f"model/{i}"))
    for i, variable in enumerate(own_variables(model)):
        variable.assign(arrays.pop(f"model/{i}").astype(variable.dtype))


def prune_best(folder: pathlib.Path, steps: Sequence[int | None]) -> None:
    """Remove what `write_best` wrote, but that of some steps."""
    kept = [_best_path(folder, x) for x in steps if x is not None]
    for path in folder.glob("best-*.npz"):
        if is_first() and path not in kept:
            path.unlink()


def _best_path(folder: pathlib.Path, step: int) -> pathlib.Path:
    return folder / f"best-{step:09d}.npz"


def restore_generators(arrays: dict) -> None:
    """Restore the backend's own random generators from a checkpoint.

    Right before the first step: data loaders of torch draw from them as well.
    """
    set_random_states(
        {
            name.removeprefix(GENERATOR): array
            for name, array in arrays.items()
            if name.startswith(GENERATOR)
        }
    )


def restore_metrics(variables, arrays: dict) -> None:
    """Restore the metrics of an interval that was begun.

    Args:
        variables: those of the metrics, in the order of `begin_checkpoint`.
        arrays: as `read_newest` returns them; none without such an interval.

    Raises:
        ValueError: when they are of other metrics.
    """
    found = [name for name in arrays if name.startswith(METRIC)]
    if found and len(found) != len(variables):
        raise ValueError(
            f"The checkpoint has {len(found)} variables of metrics, and there "
            f"are {len(variables)}. {CURE}"
        )
    pairs = [(x, variable) for x, variable in enumerate(variables) if found]
    for i, variable in pairs:
        _check(f"{METRIC}{i}", variable, arrays.get(f"{METRIC}{i}"))
    for i, variable in pairs:
        variable.assign(arrays.pop(f"{METRIC}{i}").astype(variable.dtype))


CURE = (
    "It was written by another version: continue with the versions that "
    "environment.json names, or start again in another --run_dir."
)


def _check(name, variable, array):
    """Raise a ValueError unless an array may be the value of a variable."""
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
    groups = {
        "model": own_variables(model),
        "optimizer": model.optimizer.variables,
    }
    return [
        (f"{group}/{i}", variable)
        for group, variables in groups.items()
        for i, variable in enumerate(variables)
    ]


def _array(variable):
    # torch has no NumPy bfloat16 and gives float32: cast back.
    return to_numpy(variable).astype(variable.dtype, copy=False)
