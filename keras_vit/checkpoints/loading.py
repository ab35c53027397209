"""Opens a file or folder of weights, whatever its format."""

import functools
import os
import zipfile
from collections.abc import Callable
from pathlib import Path

import keras
import numpy as np

from keras_vit.checkpoints import keras_files
from keras_vit.checkpoints.containers.folders import open_folder
from keras_vit.checkpoints.containers.npz import open_npz
from keras_vit.checkpoints.containers.safetensors import open_safetensors
from keras_vit.checkpoints.containers.tensors import (
    TensorFile,
    is_stacked,
    refuse,
    refusing,
)
from keras_vit.checkpoints.formats.configure import configure
from keras_vit.checkpoints.formats.recognition import Source, recognise
from keras_vit.checkpoints.matching import Plan, build, plan_of, target_of
from keras_vit.checkpoints.surgery.adapt import adapted_fields
from keras_vit.workarounds import set_initializer, taken_over

__all__ = [
    "built_with",
    "kind_of",
    "load_checkpoint",
    "load_weights",
    "open_source",
    "open_tensors",
    "split_subtree",
]


def split_subtree(source) -> tuple[str, str]:
    """Splits `file.npz:img` into the file and the part of it.

    Args:
        source: path, or path and part.

    Returns:
        (path, part), the part "" without one.
    """
    text = str(source)
    path, colon, part = text.rpartition(":")
    if colon and not Path(text).exists() and Path(path).is_file():
        return path, part
    return text, ""


def kind_of(path) -> str:
    """Finds by its content what a file is.

    Args:
        path: path of a file or folder.

    Returns:
        "folder", "npz", "safetensors", "h5" or "keras".

    Raises:
        ValueError: for other kinds, said by name where they are known.
        OSError: when the file cannot be opened.
    """
    path = Path(path)
    if path.is_dir():
        return "folder"
    with path.open("rb") as file:
        start = file.read(16)
    for magic, kind in MAGIC.items():
        if start.startswith(magic):
            return kind_of_zip(path) if kind == "zip" else kind
    if start[8:9] == b"{" or path.suffix == ".safetensors":
        return "safetensors"
    for magic, what in REFUSED.items():
        if start.lstrip().startswith(magic):
            refuse(path, f"is {what}", CURES.get(magic, DOWNLOAD))
    refuse(
        path,
        f"begins with {start[:8]!r}, which no file of weights does"
        if start
        else "is empty",
        DOWNLOAD,
    )


MAGIC = {b"PK\x03\x04": "zip", b"\x89HDF\r\n\x1a\n": "h5"}
DOWNLOAD = "Fetch it again, and look at what the server sent."
PICKLE = (
    "Unpickling runs code of the file's author, so it is not done: convert "
    "it with safetensors.torch.save_file."
)
REFUSED = {
    b"<": "a web page, not a file of weights",
    b"{": "JSON, not a file of weights",
    b"version https://": "a pointer of Git LFS, not the file itself",
    b"\x80": "a Python pickle",
    b"\x1f\x8b": "compressed by gzip",
    b"PK": "an empty or damaged zip archive",
}
CURES = {b"\x80": PICKLE, b"\x1f\x8b": "Unpack it."}


def kind_of_zip(path):
    with refusing(path, "the file"), zipfile.ZipFile(path) as archive:
        names = archive.namelist()
    if "model.weights.h5" in names:
        return "keras"
    if any(name.endswith("data.pkl") for name in names):
        refuse(path, "is a Python pickle of torch", PICKLE)
    return "npz"


OPENERS = {
    "folder": open_folder,
    "npz": open_npz,
    "safetensors": open_safetensors,
}


def open_tensors(path) -> TensorFile:
    """Opens a file or folder of named tensors.

    Args:
        path: path of an `.npz` or `.safetensors` file or of a folder.

    Returns:
        A `TensorFile`; nothing but names and shapes is read yet.

    Raises:
        ValueError: for other kinds and damaged files.
        OSError: when the file cannot be opened.
    """
    return OPENERS[kind_of(path)](path)


def built_with(build: Callable, plan_of: Callable) -> keras.Model:
    """Builds a model whose weights are read when they are made.

    Keras defers the weights that are made in a stateless scope and makes them
    when it ends; until then each can be given another initializer. So nothing
    is drawn that is thrown away, and memory holds the model once.

    Args:
        build: function that returns the model.
        plan_of: function from the model to the `Plan` of what is read.

    Returns:
        The model with its `load_report`. Weights without a step have their
        own initial values.

    Raises:
        Exception: what a step raises; the model is lost then.
    """
    starts = {}
    with keras.StatelessScope():
        model = build()
        try:
            plan = plan_of(model)
        except Exception:
            for variable in model.variables:
                set_initializer(variable, np.zeros)
            raise
        for variable in model.variables:
            if variable.path in plan.steps:
                start = Start(plan.steps[variable.path], starts)
                starts[variable.path] = start
                set_initializer(variable, start)
    for start in starts.values():
        if start.error:
            raise start.error
    for variable in model.variables:
        # Inside another stateless scope, and should Keras no longer defer.
        if variable.path in starts and not starts[variable.path].was_read:
            variable.assign(plan.steps[variable.path]())
    model.load_report = plan.report
    return model


class Start:
    """An initializer that reads; after an error the rest are zeros.

    Keras makes all deferred weights in one go, and would try again those that
    an exception left out.
    """

    def __init__(self, step, starts):
        self.step = step
        self.starts = starts
        self.error = None
        self.was_read = False

    def __call__(self, shape, dtype=None):
        if any(start.error for start in self.starts.values()):
            return np.zeros(shape, dtype)
        try:
            array = taken_over(self.step())
        except Exception as error:
            self.error = error
            return np.zeros(shape, dtype)
        self.was_read = True
        return array


def load_checkpoint(
    source,
    *,
    classes: int | None = None,
    input_shape: tuple | None = None,
    include_top: bool = True,
    num_heads: int | None = None,
    resampling: str | None = None,
    keep_representation: bool = False,
    name: str | None = None,
    dtype=None,
    **config_overrides,
) -> keras.Model:
    """Builds the model that a file of weights holds, and loads it.

    The format is recognised by the content: `.npz` of the original code
    (ViT, hybrids, MLP-Mixer, BiT) and of big_vision, safetensors of Hugging
    Face, timm and torchvision, folders of Hugging Face and keras-hub, and
    Keras's `.keras`. GELU form, epsilons and class token follow the file's
    family, so that its own numbers come out.

    Args:
        source: path of a file or folder, `file.npz:part` for one of several
            models in a file, a name or address that
            `keras_vit.checkpoints.public.fetch` knows, or what `open_source`
            returned.
        classes: int, another number of classes gives a classification layer
            of zeros; None keeps that of the file.
        input_shape: (height, width, channels) in pixels; another size
            resamples the position embedding, another number of channels
            adapts the first convolution. None keeps that of the file.
        include_top: bool, False leaves out the classification layer and the
            layer before it, and returns all tokens unless `pooling` is given.
        num_heads: int, attention heads, where the file cannot tell.
        resampling: "linear_aligned", "linear", "bicubic" or
            "bicubic_antialiased"; by default as the file's family does it.
        keep_representation: bool, whether a new number of classes keeps the
            pre-logits layer of the file.
        name: str, name of the model.
        dtype: dtype policy of the model.
        **config_overrides: other fields of the model's config, such as
            pooling="mean", patch_size or dropout_rate.

    Returns:
        A `VisionTransformer`, `Mixer` or `BiT`. `model.load_report` says
        what was loaded, resampled, dropped and left fresh.

    Raises:
        ValueError: for a file that is damaged, unknown, or does not fit.
        OSError: when it cannot be read.

    Example:

    >>> model = keras_vit.checkpoints.load_checkpoint(
    ...     "ViT-B_16.npz", classes=10, input_shape=(384, 256, 3))
    >>> print(model.load_report)
    """
    found = open_source(source, dtype=dtype)
    image_size = tuple(input_shape[:2]) if input_shape else None
    configured = found.configured or configure(found, num_heads, image_size)
    fields = adapted_fields(
        configured,
        found.format.family,
        classes=classes,
        input_shape=input_shape,
        include_top=include_top,
        keep_representation=keep_representation,
        overrides=config_overrides,
    )

    def planned(model):
        return plan_of(found, configured, target_of(model), resampling)

    make = functools.partial(
        build, found.format.family, fields, name=name, dtype=dtype
    )
    # A stacked file is read in its own order, all blocks' share at a time.
    # Weights that devices share have initializers that Keras traces: what a
    # file holds would be compiled as a constant.
    if is_stacked(found.file) or keras.distribution.distribution() is not None:
        model = make()
        return filled(model, planned(model))
    return built_with(make, planned)


def load_weights(
    model: keras.Model, source, *, resampling: str | None = None
) -> keras.Model:
    """Fills a model with weights of any known format.

    Everything is checked before the model is touched: when this raises, the
    model is as it was. A classification layer of another number of classes
    than the file's stays as it is.

    Args:
        model: a model of keras_vit.
        source: None, which leaves the model as it is, or a source as in
            `load_checkpoint`, or a `.weights.h5` file of this model.
        resampling: see `load_checkpoint`.

    Returns:
        The model. `model.load_report` says what was loaded, resampled,
        dropped and left as it was.

    Raises:
        ValueError: for a file that is damaged, unknown, or does not fit.
        OSError: when it cannot be read.

    Example:

    >>> model = keras_vit.ViT_B16(classes=10)
    >>> keras_vit.checkpoints.load_weights(model, "ViT-B_16.npz")
    """
    if source is None:
        return model
    path, _ = located(source)
    if kind_of(path) == "h5":
        return keras_files.load_weights_h5(model, path)
    found = open_source(source)
    target = target_of(model)
    configured = found.configured or configure(
        found, target.facts.num_heads, target.config.get("image_size")
    )
    plan = plan_of(found, configured, target, resampling)
    for read in plan.steps.values():
        read()  # damage shows here, before anything is assigned
    return filled(model, plan)


def filled(model, plan: Plan):
    variables = {variable.path: variable for variable in model.variables}
    for path, read in plan.steps.items():
        variables[path].assign(read())
    model.load_report = plan.report
    return model


def located(source) -> tuple[str, str]:
    """(path on this machine, part of the file) of what a user names."""
    if not isinstance(source, (str, os.PathLike)):
        raise ValueError(
            "A source of weights is a path or a name. Received: "
            f"{source!r} of type {type(source).__name__}."
        )
    path, part = split_subtree(source)
    if Path(path).exists():
        return path, part
    from keras_vit.checkpoints.public import fetch

    return split_subtree(fetch.resolve(source))


def open_source(source, dtype=None) -> Source:
    """Opens a source and recognises its format, without reading arrays.

    Args:
        source: see `load_checkpoint`.
        dtype: dtype policy for a `.keras` file, whose model is built.

    Returns:
        A `Source`.

    Raises:
        ValueError: for a file that is damaged or unknown.
        OSError: when it cannot be read.
    """
    if isinstance(source, Source):
        return source
    path, part = located(source)
    kind = kind_of(path)
    if kind in keras_files.OPENERS:
        return keras_files.OPENERS[kind](path)
    return recognise(open_tensors(path), part)
