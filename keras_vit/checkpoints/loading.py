"""Loads weights of any known format."""

import functools
import os
from pathlib import Path

import keras

from keras_vit.checkpoints import keras_files
from keras_vit.checkpoints.containers.opening import (
    kind_of,
    open_tensors,
    split_subtree,
)
from keras_vit.checkpoints.containers.stack import is_stacked
from keras_vit.checkpoints.deferred import built_with
from keras_vit.checkpoints.formats.configure import configure
from keras_vit.checkpoints.formats.recognition import recognise
from keras_vit.checkpoints.formats.source import Source
from keras_vit.checkpoints.plan import Plan, plan_of
from keras_vit.checkpoints.surgery.model_fields import adapted_fields
from keras_vit.checkpoints.target import build, target_of

__all__ = ["load_checkpoint", "load_weights", "open_source"]


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
            models in a file, or a name or address that
            `keras_vit.checkpoints.public.fetch` knows.
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
    path, part = located(source)
    kind = kind_of(path)
    if kind in keras_files.OPENERS:
        return keras_files.OPENERS[kind](path)
    return recognise(open_tensors(path), part)
