"""Loads and describes files and folders of weights, whatever their format."""

import difflib
import os
import zipfile
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import keras
import numpy as np

from keras_vit.checkpoints.engine.adaptation import (
    adapted_fields,
    check_input_shape,
)
from keras_vit.checkpoints.engine.configure import UNTOLD, configure
from keras_vit.checkpoints.engine.keras_files import (
    is_keras_folder,
    load_weights_h5,
    located,
    open_keras,
)
from keras_vit.checkpoints.engine.matching import (
    Plan,
    build,
    plan_of,
    target_of,
)
from keras_vit.checkpoints.engine.recognition import Source, recognise
from keras_vit.checkpoints.files.folders import open_file, open_folder
from keras_vit.checkpoints.files.npz import open_npz
from keras_vit.checkpoints.files.tensors import (
    TensorFile,
    is_stacked,
    refuse,
    refusing,
)
from keras_vit.io.atomic_files import check_regular
from keras_vit.runtime.workarounds import set_initializer, taken_over

__all__ = [
    "check_weights",
    "kind_of",
    "load_checkpoint",
    "load_weights",
    "open_source",
    "open_tensors",
    "split_subtree",
]


def load_checkpoint(
    source,
    *,
    classes: int | None = None,
    input_shape: tuple | None = None,
    include_top: bool = True,
    num_heads: int | None = None,
    architecture: str | None = None,
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
    family, so that its own numbers come out. What `save_checkpoint` wrote
    brings back softmax and scaling of pixels as well.

    Args:
        source: path of a file or folder, also of a run, `file.npz:part` for
            one of several models in a file, a name or address that
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
        architecture: str, timm's name, such as "vit_base_patch16_clip_224",
            for files of timm without a config.json and of another name.
        resampling: "linear_aligned", "linear", "bicubic", "linear_antialiased"
            or "bicubic_antialiased"; by default as the file's family does it.
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
    source = open_source(source)
    image_size = None
    if input_shape is not None:
        shape = check_input_shape(input_shape, source.format.family)
        image_size = shape[:2]
    configured = source.configured or configure(
        source, num_heads, image_size, architecture, config_overrides
    )
    fields = adapted_fields(
        configured,
        source.format.family,
        classes=classes,
        input_shape=input_shape,
        include_top=include_top,
        keep_representation=keep_representation,
        overrides=config_overrides,
    )

    def planned(model):
        target = target_of(model)
        return plan_of(source, configured, target, resampling, is_built=True)

    def make():
        # A config that a file holds may be damaged, which Keras finds out.
        as_held = fields == configured.fields and source.configured
        where = refusing(source.file.path, "the config")
        with where if as_held else nullcontext():
            return build(source.format.family, fields, name=name, dtype=dtype)

    # A stacked file is read in its own order, all blocks' share at a time.
    # Weights that devices share have initializers that Keras traces: what a
    # file holds would be compiled as a constant.
    if is_stacked(source.file) or keras.distribution.distribution() is not None:
        model = make()
        return _filled(model, planned(model))
    return _built_with(make, planned)


def load_weights(
    model: keras.Model,
    source,
    *,
    resampling: str | None = None,
    architecture: str | None = None,
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
        architecture: see `load_checkpoint`; what neither this nor the file
            tells, such as the activation, is as in the model.

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
    if not isinstance(source, Source):
        path, part = _located(source)
        kind = kind_of(path)
        if kind == "h5":
            return load_weights_h5(model, path)
        source = _opened(path, part, kind)
    target = target_of(model)
    stored = source.file.config
    configured = source.configured or configure(
        source,
        target.facts.num_heads,
        target.config.get("image_size"),
        architecture,
        {
            x: target.config[x]
            for x in UNTOLD
            if x in target.config.keys() - stored
        },
    )
    plan = plan_of(source, configured, target, resampling)
    for read in plan.steps.values():
        read()  # Damage shows here, before anything is assigned.
    return _filled(model, plan)


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
    check_regular(path)
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


def _missing_file(path) -> ValueError:
    """The error for a path that is none, with names that are close."""
    hint = f" There is no folder {str(path.parent)!r}."
    if path.parent.is_dir():
        nearest = difflib.get_close_matches(path.name, os.listdir(path.parent))
        hint = f" Did you mean {' or '.join(nearest)}?" if nearest else ""
    return ValueError(
        f"weights={str(path)!r} is no file. Expected None for random "
        "initialisation, the path of a file or folder of weights, or a name "
        f"that `keras-vit weights list` shows.{hint}"
    )


def open_source(source, model: str | None = None) -> Source:
    """Opens a source of weights and recognises its format; reads no arrays.

    Args:
        source: see `load_checkpoint`; an opened source is returned as it is.
        model: str, the application that a name of the catalogue is of, where
            the name does not say it.

    Raises:
        ValueError: for a file that is damaged or unknown.
        OSError: when it cannot be read.

    Example:

    >>> source = open_source("ViT-B_16.npz")
    >>> model = load_checkpoint(source)
    """
    if isinstance(source, Source):
        return source
    path, part = _located(source, model)
    opened = _opened(path, part, kind_of(path))
    if not os.path.exists(source):
        from keras_vit.checkpoints.public.fetch import architecture_of

        architecture = architecture_of(source, model)
        opened.file.config.update(architecture)
    return opened


def open_tensors(path) -> TensorFile:
    """Opens a file or folder of named tensors: only their names and shapes.

    Raises:
        ValueError: for other kinds and damaged files.
        OSError: when the file cannot be opened.
    """
    return OPENERS[kind_of(path)](path)


OPENERS = {
    "folder": open_folder,
    "npz": open_npz,
    "safetensors": open_file,
}


def _opened(path, part, kind) -> Source:
    if kind == "h5":
        refuse(
            path,
            "holds weights but not the model that they are of",
            "Build the model, such as keras_vit.ViT_B16(...), and call "
            "keras_vit.checkpoints.load_weights(model, path).",
        )
    if kind == "keras" or kind == "folder" and is_keras_folder(path):
        return open_keras(path)
    return recognise(OPENERS[kind](path), part)


def _located(source, model=None) -> tuple[str, str]:
    """(path on this machine, part of the file) of what a user names."""
    if not isinstance(source, (str, os.PathLike)):
        raise ValueError(
            "A source of weights is a path or a name. Received: "
            f"{source!r} of type {type(source).__name__}."
        )
    path, part = split_subtree(source)
    check_regular(path)
    if Path(path).exists():
        return located(path), part
    from keras_vit.checkpoints.public.fetch import resolve

    path, part = split_subtree(resolve(source, model))
    return located(path), part


def split_subtree(source) -> tuple[str, str]:
    """Splits `file.npz:img` into the path and the part, "" without one."""
    text = str(source)
    path, colon, part = text.rpartition(":")
    if colon and not Path(text).exists() and Path(path).is_file():
        return path, part
    return text, ""


SUFFIXES = (".npz", ".safetensors", ".h5", ".keras")
DOWNLOAD = "Fetch it again, and look at what the server sent."
PICKLE = (
    "Unpickling runs code of the file's author, so it is not done: convert "
    "it with safetensors.torch.save_file."
)
MAGIC = {b"PK\x03\x04": "zip", b"\x89HDF\r\n\x1a\n": "h5"}
# How other files begin: what they are, what to do about it.
REFUSED = {
    b"<": ("a web page, not a file of weights", DOWNLOAD),
    b"{": ("JSON, not a file of weights", DOWNLOAD),
    b"version https://": (
        "a pointer of Git LFS, not the file itself",
        DOWNLOAD,
    ),
    b"\x80": ("a Python pickle", PICKLE),
    b"\x1f\x8b": ("compressed by gzip", "Unpack it."),
    b"PK": ("an empty or damaged zip archive", DOWNLOAD),
}


def kind_of(path) -> str:
    """Recognises the kind of a file or folder by its first bytes.

    Returns:
        "folder", "npz", "safetensors", "h5" or "keras".

    Raises:
        ValueError: for other kinds, with their name where it is known.
        OSError: when the file cannot be opened.
    """
    path = Path(path)
    if path.is_dir():
        return "folder"
    with path.open("rb") as file:
        start = file.read(16)
    for magic, kind in MAGIC.items():
        if start.startswith(magic):
            return _kind_of_zip(path) if kind == "zip" else kind
    if start[8:9] == b"{" or path.suffix == ".safetensors":
        return "safetensors"
    for magic, (what, cure) in REFUSED.items():
        if start.lstrip().startswith(magic):
            refuse(path, f"is {what}", cure)
    what = f"begins with {start[:8]!r}, which no file of weights does"
    refuse(path, what if start else "is empty", DOWNLOAD)


def _kind_of_zip(path):
    with refusing(path, "the file"), zipfile.ZipFile(path) as archive:
        names = archive.namelist()
    if "model.weights.h5" in names:
        return "keras"
    if any(name.endswith("data.pkl") for name in names):
        refuse(path, "is a Python pickle of torch", PICKLE)
    return "npz"


def _filled(model, plan: Plan):
    variables = {variable.path: variable for variable in model.variables}
    for path, read in plan.steps.items():
        variables[path].assign(read())
    model.load_report = plan.report
    return model


def _built_with(build: Callable, plan_of: Callable) -> keras.Model:
    """Builds a model whose weights are read when they are made.

    Keras defers the weights that are made in a stateless scope and makes them
    when it ends; until then each can be given another initializer. So nothing
    is drawn only to be overwritten, and memory holds the model once. Weights
    without a step of the plan have their own initial values.
    """
    starts, errors = {}, []
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
                start = Start(plan.steps[variable.path], errors)
                starts[variable.path] = start
                set_initializer(variable, start)
    if errors:
        raise errors[0]
    for variable in model.variables:
        # Inside another stateless scope, and should Keras no longer defer.
        if variable.path in starts and not starts[variable.path].was_read:
            variable.assign(plan.steps[variable.path]())
    model.load_report = plan.report
    return model


class Start:
    """An initializer that reads; after an error the rest are zeros.

    Keras makes all deferred weights in one go, and would try again those that
    an exception left out: errors are kept in a list that all share.
    """

    def __init__(self, step, errors):
        self.step = step
        self.errors = errors
        self.was_read = False

    def __call__(self, shape, dtype=None):
        if self.errors:
            return np.zeros(shape, dtype)
        try:
            array = taken_over(self.step())
        except Exception as error:
            self.errors.append(error)
            return np.zeros(shape, dtype)
        self.was_read = True
        return array
