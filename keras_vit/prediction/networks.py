"""Models with the preprocessing of their weights, by name, folder or file.

How images are prepared, what the scores mean and the names of the classes are
in the `trained_as` of a model, wherever it was loaded from.
"""

import contextlib
import dataclasses
import functools
import math
import os
import warnings
from typing import TYPE_CHECKING, Any

import keras
import numpy as np

from keras_vit import applications
from keras_vit.checkpoints.engine.configure import configure
from keras_vit.checkpoints.engine.loading import load_checkpoint, open_source
from keras_vit.checkpoints.public import catalog
from keras_vit.checkpoints.public.fetch import resolve
from keras_vit.data import PreprocessingConfig
from keras_vit.data.config import MAX_SIDE, evaluation_of
from keras_vit.io.checks import check_kind, check_own_size, check_size
from keras_vit.models import BiT, Mixer, VisionTransformer
from keras_vit.runtime import machine
from keras_vit.runtime.workarounds import backend_is
from keras_vit.variants import VariantTransformer

if TYPE_CHECKING:
    from keras_vit.evaluation.config import ModelSource

__all__ = [
    "LoadedNetwork",
    "check_image_size",
    "check_network",
    "load_model",
    "load_network",
    "load_prepared",
    "size_of",
    "weights_path",
]

MODELS = (BiT, Mixer, VisionTransformer, VariantTransformer)
HEAD_OF_ZEROS = "The classification layer in"  # begins a warning.
ANY_SIZE = (
    "{} takes images of any size. Give one, such as 224: image_size= in "
    "Python, --image_size of a command, --model.image_size of a recipe."
)
FLOAT32 = 4  # bytes
GIGABYTE = 10**9


@dataclasses.dataclass(frozen=True)
class LoadedNetwork:
    """A model that was loaded, and how its images are prepared.

    Attributes:
        model: a Keras model from images in [0, 255].
        path: the file or folder of its weights.
        preprocessing: how images are resized and cropped.
    """

    model: keras.Model
    path: str
    preprocessing: PreprocessingConfig


def load_prepared(
    source: str | os.PathLike,
    image_size: int | tuple[int, int] | None = None,
    preprocessing: PreprocessingConfig | None = None,
    *,
    needs_head: bool = True,
) -> LoadedNetwork:
    """Loads a model and how its images are to be resized and cropped.

    The size of the images is that which the source prepares them in, where it
    is not given: DINOv2 has positions for 518 pixels, and takes 224.

    Args:
        source: see `keras_vit.prediction.load_classifier`.
        image_size: see `keras_vit.prediction.load_classifier`.
        preprocessing: how images are resized and cropped, where it is not as
            the source says.
        needs_head: bool, whether a classification layer of zeros is refused;
            if not, a head that is not one dense layer is left out.

    Raises:
        ValueError: when there are no such weights or they cannot be loaded.
        OSError: when they cannot be fetched.
    """
    entry, opened = _opened(os.fspath(source), image_size)
    if image_size is None:
        image_size = opened.trained_as.told_size
    with warnings.catch_warnings():
        action = "error" if needs_head else "ignore"
        warnings.filterwarnings(action, HEAD_OF_ZEROS)
        try:
            # A head that is not ours matters only where it is needed.
            headless = bool(opened.other_head) and not needs_head
            name = entry and entry.model
            model = _load(opened, name, image_size, headless=headless)
        except UserWarning as warning:
            raise ValueError(str(warning)) from warning
    path = opened.file.path
    if preprocessing is None:
        preprocessing = evaluation_of(model.trained_as, model.input_shape[1:3])
        for what in model.trained_as.assumed:
            _say_once(path, f"{what}: {model.trained_as}")
    return LoadedNetwork(model, path, preprocessing)


@functools.cache
def _say_once(path, what) -> None:
    """Once for each source: it is loaded more than once."""
    advice = "Give preprocessing= where it was otherwise."
    warnings.warn(f"{path!r}: {what}. {advice}", stacklevel=4)


def size_of(network: keras.Model, image_size: Any = None) -> tuple[int, int]:
    """Return (height, width) of a model's images, which it may leave open.

    Raises:
        ValueError: for another size than its own, or none of a model that
            takes any.
    """
    known = network.input_shape[1:3]
    if None not in known:
        check_own_size(known, image_size)
        return known
    if image_size is None:
        raise ValueError(ANY_SIZE.format(f"The model {network.name!r}"))
    return check_size("image_size", image_size)


# An attribute of what is no model by itself, and what to give instead.
INSTEAD = {
    "image_tower": "Give its image_tower, or labels to predict.",
    "runtime": "It is a program: take the weights that it was exported from.",
}


def check_network(model: Any) -> None:
    """Raises a ValueError unless this is a model of keras_vit."""
    if not isinstance(model, MODELS):
        hints = [y for x, y in INSTEAD.items() if hasattr(model, x)]
        raise ValueError(
            "A model is the name or path of its weights, or a model of "
            f"keras_vit. Received: {model!r} of type {type(model).__name__}."
            + "".join(f" {x}" for x in hints)
        )


def load_network(
    source: str,
    *,
    image_size: int | tuple[int, int] | None = None,
    precision: str = "float32",
) -> keras.Model:
    """Loads a model from images in [0, 255], with classes or without.

    Args:
        source: see `load_classifier`; or the name of an application alone,
            such as "ViT_B16", for random weights.
        image_size: see `load_classifier`.
        precision: "float32", "mixed_bfloat16" or "mixed_float16".

    Returns:
        A Keras model from images in [0, 255].

    Raises:
        ValueError: when there are no such weights.
        OSError: when they cannot be fetched.
    """
    check_kind(str | os.PathLike, source=source)
    if source not in applications.__all__ or os.path.exists(source):
        entry, opened = _opened(source, image_size)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", HEAD_OF_ZEROS)
            return _load(opened, entry and entry.model, image_size, precision)
    sides = _check_side(224 if image_size is None else image_size)
    return getattr(applications, source)(
        weights=None,
        input_shape=(*sides, 3),
        include_preprocessing=True,
        dtype=precision,
    )


def _check_side(image_size):
    """Refuse an image whose attention over 32 x 32 pixels has no room."""
    height, width = check_size("image_size", image_size)
    tokens = (height // 32) * (width // 32)
    needed = FLOAT32 * max(3 * height * width, tokens**2)
    if max(height, width) > MAX_SIDE or machine.shortage(needed):
        raise ValueError(
            f"There is no room for an image of {height}x{width} pixels. "
            f"Received: image_size={image_size!r}. Give a smaller one."
        )
    return height, width


def _opened(source, image_size):
    """Return the catalogue's entry of a source, or None, and its weights."""
    entry = None
    if not os.path.exists(source):
        with contextlib.suppress(ValueError):  # Opening it raises the error.
            entry = catalog.find(None, source)
    if entry is not None and entry.image_size is None and image_size is None:
        raise ValueError(ANY_SIZE.format(entry.key))
    return entry, open_source(source)


def load_model(source: "ModelSource", *, with_head: bool = True) -> keras.Model:
    """Loads a model with its own classification layer.

    Args:
        source: a `ModelSource`: the weights and how to read them.
        with_head: bool, whether to warn of a classification layer of zeros.

    Returns:
        A Keras model from images in [0, 255] to logits.

    Raises:
        ValueError: when there are no such weights, or they have no image
            size and none is given.
        OSError: when they cannot be fetched.
    """
    opened = open_source(weights_path(source))
    with warnings.catch_warnings():
        if not with_head:
            warnings.filterwarnings("ignore", HEAD_OF_ZEROS)
        return _load(opened, source.name, source.image_size, source.precision)


def weights_path(source: "ModelSource") -> str:
    """Return the file or folder of weights, downloaded if need be."""
    return resolve(str(source.weights), source.name)


def _load(opened, name, image_size, precision="float32", headless=False):
    fields = configure(opened).fields
    size = fields["image_size"] if image_size is None else image_size
    if size is None or None in np.atleast_1d(size):
        raise ValueError(ANY_SIZE.format(opened.file.path))
    height, width = check_image_size(fields, size)
    options = {
        "input_shape": (height, width, fields["channels"]),
        "classifier_activation": None,
        "include_preprocessing": True,
        "dtype": precision,
        "classes": 0 if headless else None,
    }
    if name is None:
        return load_checkpoint(opened, **options)
    return getattr(applications, name)(weights=opened, **options)


def check_image_size(fields: dict, image_size) -> tuple:
    """Return (height, width) of a size; refuse an image without room.

    What one image takes at least is compared with the memory that is free: on
    processors JAX and TensorFlow keep the attention of all pairs of tokens.

    Args:
        fields: fields of the config of the model; a model without patches is
            not looked at.
        image_size: one side or (height, width), in pixels.
    """
    height, width = check_size("image_size", image_size)
    if not {"patch_size", "hidden_dim"} <= fields.keys():
        return height, width
    free = machine.available_memory()
    needed = FLOAT32 * _numbers(fields, height, width)
    if free is None or needed < free:
        return height, width
    raise ValueError(
        f"There is no room for an image of {height}x{width} pixels: the model "
        f"takes {needed / GIGABYTE:,.1f} GB for one at least, and "
        f"{max(free, 0) / GIGABYTE:,.1f} GB are free. Received: "
        f"image_size={image_size!r}. Give a smaller one."
    )


def _numbers(fields, height, width) -> int:
    """Count the numbers that a block holds at least, or the pixels if more."""
    rows, columns = check_size("patch_size", fields["patch_size"])
    if fields.get("resnet_units") is not None:
        shrunk = 4 * 2 ** max(len(fields["resnet_units"]) - 1, 0)
        rows, columns = rows * shrunk, columns * shrunk
    tokens = (height // rows) * (width // columns)
    per_token = 4 * fields["hidden_dim"]  # The stream, query, key and value.
    numbers = tokens * per_token
    if fields.get("num_heads") and _keeps_attention():
        keys = tokens
        if fields.get("window_size") and not fields["global_attention_blocks"]:
            keys = min(keys, fields["window_size"] ** 2)
        numbers += fields["num_heads"] * tokens * keys
    return max(numbers, math.prod((height, width, fields["channels"])))


def _keeps_attention() -> bool:
    on_processor = all(x.startswith("cpu") for x in machine.devices())
    return on_processor and backend_is("jax", "tensorflow")
