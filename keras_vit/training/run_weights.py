"""The model of a finished run, as weights that another run starts from."""

import json
import pathlib
import zipfile

from keras_vit.checkpoints.keras_files import CLASS_NAMES

__all__ = ["class_names_of", "located"]

MODEL = "model.keras"


def located(source: str) -> str:
    """The path of the model in a run folder; any other source as it is.

    Args:
        source: path or name of weights, or path of a run folder.

    Returns:
        A source of weights.

    Example:
        >>> located("runs/quickstart")
        'runs/quickstart/model.keras'
    """
    inside = pathlib.Path(source, MODEL)
    return str(inside) if inside.is_file() else source


def class_names_of(source: str) -> tuple[str, ...] | None:
    """The class names in a `.keras` file that a run wrote.

    Args:
        source: path of the file, or of the run folder.

    Returns:
        The names; None of a file that has none.

    Example:
        >>> class_names_of("runs/quickstart")[:3]
        ('0', '1', '2')
    """
    path = located(source)
    if not zipfile.is_zipfile(path):
        return None
    with zipfile.ZipFile(path) as archive:
        if CLASS_NAMES not in archive.namelist():
            return None
        return tuple(json.loads(archive.read(CLASS_NAMES)))
