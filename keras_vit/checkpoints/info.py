"""Describes and checks weights without reading arrays."""

import dataclasses
import difflib
import math
import os
from pathlib import Path

from keras_vit.checkpoints.formats.configure import configure
from keras_vit.checkpoints.formats.recognition import Source
from keras_vit.checkpoints.loading import kind_of, open_source, split_subtree

__all__ = ["Info", "check_weights", "read_info"]


@dataclasses.dataclass(frozen=True)
class Info:
    """What a file of weights holds, as `read_info` returns it.

    Args:
        source: str, the file.
        format: str, its format.
        family: "vit", "mixer", "bit" or "variant".
        fields: dict, the config of the model that it holds.
        num_parameters: int, numbers in its weights.
        shapes: dict from the file's names to shapes.
        notes: what was assumed because the file cannot tell.
    """

    source: str
    format: str
    family: str
    fields: dict
    num_parameters: int
    shapes: dict
    notes: tuple

    def __str__(self):
        lines = [
            f"{self.source}: {self.family} in {self.format} format, "
            f"{self.num_parameters:,} parameters",
            *(f"  {name}: {value}" for name, value in self.fields.items()),
            *(f"note: {note}" for note in self.notes),
        ]
        return "\n".join(lines)


def read_info(source, *, num_heads: int | None = None) -> Info:
    """Describes what a file of weights holds, from its names and shapes.

    Arrays are not read and no model is built.

    Args:
        source: see `load_checkpoint`.
        num_heads: int, attention heads, where the file cannot tell.

    Returns:
        An `Info`; `print` shows it.

    Raises:
        ValueError: for a file that is damaged or of no known format.
        OSError: when it cannot be read.

    Example:

    >>> print(keras_vit.checkpoints.read_info("ViT-B_16.npz"))
    """
    source = open_source(source)
    configured = source.configured or configure(source, num_heads)
    shapes = {name: x.shape for name, x in source.file.tensors.items()}
    return Info(
        source.file.path,
        source.format.name,
        source.format.family,
        configured.fields,
        sum(
            math.prod(shapes[name])
            for row in source.rows.values()
            for name in row.names
        ),
        shapes,
        tuple(configured.notes),
    )


def check_weights(weights, model: str | None = None) -> None:
    """Raises a ValueError unless weights can be found; reads no arrays.

    Args:
        weights: None, or a source as in `load_checkpoint`.
        model: str, the application that they are for, such as "ViT_B16",
            without which a name of the catalogue must begin with it.

    Raises:
        ValueError: when there is no such file and no such name.
    """
    if weights is None or isinstance(weights, Source):
        return
    if not isinstance(weights, (str, os.PathLike)):
        raise ValueError(
            "weights must be None, a path or a name. Received: "
            f"weights={weights!r} of type {type(weights).__name__}."
        )
    text = os.fspath(weights)
    path, _ = split_subtree(text)
    if Path(path).exists():
        kind_of(path)
    elif "://" in text or text.startswith("timm/"):
        pass  # whether it is there shows when it is fetched
    elif text.startswith((".", "~", os.sep)) or path.endswith(SUFFIXES):
        raise _missing_file(Path(path))
    else:
        from keras_vit.checkpoints.public import catalog, fetch

        if fetch.shipped_path(text, model) is None:
            catalog.find(model, text)


SUFFIXES = (".npz", ".safetensors", ".h5", ".keras")


def _missing_file(path) -> ValueError:
    """The error for a path that is none, with names that are close."""
    hint = f" There is no folder {str(path.parent)!r}."
    if path.parent.is_dir():
        names = [x.name for x in path.parent.iterdir()]
        nearest = difflib.get_close_matches(path.name, names)
        hint = f" Did you mean {' or '.join(nearest)}?" if nearest else ""
    return ValueError(
        f"weights={str(path)!r} is no file. Expected None for random "
        "initialisation, the path of a file or folder of weights, or a name "
        f"that `keras-vit weights list` shows.{hint}"
    )
