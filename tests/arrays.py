"""Arrays of an archive, which is closed again: open files are warned of."""

import os
from typing import Any

import numpy as np


def read_arrays(path: str | os.PathLike) -> dict[str, Any]:
    with np.load(path) as file:
        return dict(file)
