"""The shards of variables that the devices of several processes share.

Each process copies and writes its own: `step-000000010-3f9a0c21-1.npz` has
those of the second process, each array under the name of its variable and the
place where it begins, as in `optimizer/5@0,384`. The checkpoint itself is
written last and names these files; without it they are nothing.
"""

import pathlib
import re
import secrets
from collections.abc import Sequence

import keras
import numpy as np

from keras_vit.checkpoints.files.npz import open_npz, write_npz
from keras_vit.checkpoints.files.tensors import refusing
from keras_vit.io.atomic_files import replacing
from keras_vit.training.distribution.processes import (
    agreed,
    place,
    say,
    wait_for,
)
from keras_vit.training.run.store import put

__all__ = ["Shards", "read_shards", "remove_shards"]

WRITTEN = "written"
NAME = re.compile(r"step-\d{9,15}-[0-9a-f]{8}-\d+\.npz")


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
        """Writes the file of this process; the first waits for all others.

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
            if (told := wait_for(f"{key}{other}")) != WRITTEN:
                raise OSError(f"Process {other} could not write: {told}")


def _own_shards(variable):
    """Pairs of a shard that this process is to write, and its copy.

    Of those that several devices hold alike, one is written.
    """
    for shard in variable.value.addressable_shards:
        if shard.replica_id == 0:
            yield shard, np.array(shard.data)


def read_shards(folder: pathlib.Path, record: dict) -> dict[str, np.ndarray]:
    """Reads the whole of each variable from the files of all processes.

    Raises:
        ValueError: when a file is missing or damaged, or they do not fill the
            variables.
    """
    arrays, filled = {}, {}
    for file in record["files"]:
        path = folder / str(file)
        if NAME.fullmatch(str(file)) is None:
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
    """Removes the shards of checkpoints that are not there.

    Args:
        folder: the folder of the checkpoints.
        files: the names of those that stay.
    """
    for path in folder.glob("step-*-*-*.npz"):
        if NAME.fullmatch(path.name) and path.name not in files:
            path.unlink(missing_ok=True)
