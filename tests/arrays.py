"""Arrays of an archive, which is closed again: open files are warned of."""

import os

import numpy as np


def read_arrays(path: str | os.PathLike) -> dict[str, np.ndarray]:
    with np.load(path) as file:
        return dict(file)
