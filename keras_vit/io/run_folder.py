"""The folder of a run, as far as it is read without a model."""

import os
import pathlib

from keras_vit.io.checks import MAX_YAML_BYTES, read_yaml
from keras_vit.io.stores import on_disk

__all__ = [
    "CONFIG",
    "MANIFEST",
    "RESULT",
    "RUN_MODEL",
    "folder_of",
    "read_config",
]

MANIFEST = "keras_vit_run.json"  # the first file of a run
CONFIG = "config.yaml"
RUN_MODEL = "model.keras"
RESULT = "result.json"  # the last


def folder_of(source: str | os.PathLike) -> pathlib.Path | None:
    """Return the folder of the run that a path or a model file belongs to."""
    path = pathlib.Path(on_disk(os.fspath(source)))
    folder = path.parent if path.name == RUN_MODEL else path
    files = (MANIFEST, CONFIG)
    return folder if all((folder / x).is_file() for x in files) else None


def read_config(folder: pathlib.Path, display_path: str | None = None) -> dict:
    """Read the config.yaml of a run.

    Args:
        folder: of the run, on this machine.
        display_path: of the file, where its user gave another.

    Raises:
        ValueError: when it is missing, or is no config.
    """
    path = folder / CONFIG
    problem = "is damaged"
    try:
        content = read_yaml(_bounded_text(path))
        if isinstance(content, dict):
            return content
    except FileNotFoundError:
        problem = "is gone"
    except ValueError:
        pass
    raise ValueError(
        f"{display_path or str(path)!r} {problem}, so that it is unknown "
        "what the run is. Put the file back, choose another --run_dir, or "
        "--overwrite true to begin anew."
    )


def _bounded_text(path) -> str:
    """Read no more of a file than is looked at."""
    with path.open("rb") as file:
        return file.read(MAX_YAML_BYTES + 1).decode("utf-8")
