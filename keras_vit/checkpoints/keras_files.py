"""Weights in Keras's own files."""

import difflib
import os
from pathlib import Path

__all__ = ["check_weights", "load_weights"]

SUFFIXES = (".weights.h5", ".keras")


def check_weights(weights) -> None:
    """Raises a ValueError unless `weights` is None or a file of weights.

    Args:
        weights: None or a path.
    """
    if weights is None:
        return
    if not isinstance(weights, (str, os.PathLike)):
        raise ValueError(
            "weights must be None or the path of a weights file. Received: "
            f"weights={weights!r} of type {type(weights).__name__}."
        )
    path = Path(weights)
    if not path.is_file():
        raise ValueError(
            f"weights={str(weights)!r} is no file. Expected None for random "
            "initialisation, or the path of a weights file "
            f"({' or '.join(SUFFIXES)}).{_nearest_files(path)}"
        )
    if not path.name.endswith(SUFFIXES):
        raise ValueError(
            f"weights={str(weights)!r} is of an unknown format. Expected a "
            f"file whose name ends with {' or '.join(SUFFIXES)}."
        )


def load_weights(model, weights):
    """Fills a model with the weights of a file.

    Args:
        model: a Keras model.
        weights: None, which leaves the model as it is, or the path of a
            weights file of the same architecture.

    Returns:
        The model.

    Raises:
        ValueError: when there is no such file, or when it does not fit the
            model.
    """
    check_weights(weights)
    if weights is None:
        return model
    try:
        model.load_weights(weights)
    except ValueError as error:
        raise ValueError(
            f"The weights in {str(weights)!r} do not fit {model.name}, "
            f"which takes {model.input_shape} and returns "
            f"{model.output_shape}. Build the model with the arguments that "
            "the file was saved with (classes, input_shape and its channels, "
            f"include_top, pooling). Keras says: {error}"
        ) from error
    return model


def _nearest_files(path):
    if not path.parent.is_dir():
        return f" There is no folder {str(path.parent)!r}."
    names = [p.name for p in path.parent.iterdir()]
    nearest = difflib.get_close_matches(path.name, names)
    return f" Did you mean {' or '.join(nearest)}?" if nearest else ""
