"""Loads, describes and averages files and folders of weights, of any format."""

import dataclasses
import difflib
import math
import os
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NoReturn

import keras
import numpy as np

from keras_vit.checkpoints.engine.configure import (
    NOT_IN_TENSORS,
    adapted_fields,
    check_input_shape,
    configure,
)
from keras_vit.checkpoints.engine.keras_files import (
    is_keras_folder,
    load_weights_h5,
    open_keras,
)
from keras_vit.checkpoints.engine.layout import listed
from keras_vit.checkpoints.engine.matching import (
    LoadPlan,
    build,
    checked_class,
    plan_loading,
    weights_of,
)
from keras_vit.checkpoints.engine.recognition import (
    OPENERS,
    Checkpoint,
    kind_of,
    recognise,
)
from keras_vit.checkpoints.files.tensors import (
    refuse,
    refusing,
    refusing_damage,
)
from keras_vit.io.checks import (
    check_kind,
    check_own_size,
    check_regular,
    is_of,
)
from keras_vit.io.run_folder import RUN_MODEL
from keras_vit.models.configured_model import ConfiguredModel, remade
from keras_vit.models.options import AROUND, PLACES, TENSORS, TRAINING
from keras_vit.runtime.workarounds import (
    set_initializer,
    taken_over,
    values_at_the_end,
)
from keras_vit.trained_as import TrainedAs

__all__ = [
    "Info",
    "average_weights",
    "built_with",
    "check_weights",
    "load_checkpoint",
    "load_weights",
    "located",
    "located_part",
    "open_source",
    "read_info",
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
    prefix: str | None = None,
    name: str | None = None,
    dtype=None,
    **config_overrides,
) -> keras.Model:
    """Build the model that a file of weights holds, and loads it.

    The format is recognised by the content; `help(keras_vit.checkpoints)` and
    docs/formats.md list all that are known. GELU form, epsilons and class
    token follow the file's publisher, so that its own numbers come out. What
    `save_checkpoint` wrote brings back softmax and scaling of pixels as well.

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
        architecture: str, the publisher's name of the architecture, such as
            "vit_base_patch16_clip_224", for files without a config.json whose
            own name does not tell it.
        resampling: "linear_aligned", "linear", "bicubic", "linear_antialiased"
            or "bicubic_antialiased"; by default as the file's family does it.
        keep_representation: bool, whether a new number of classes keeps the
            pre-logits layer of the file.
        prefix: str, what stands before the names of the model to take, such
            as "teacher.backbone", in a file of several; None takes the only
            one, whatever stands before its names.
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
    check_kind(str | None, architecture=architecture, prefix=prefix)
    source = open_source(source, prefix=prefix)
    keeps_head = include_top and classes is None
    if keeps_head and "num_classes" not in config_overrides:
        source = _with_head(source, ACTIVATION in config_overrides)
    image_size = None
    if input_shape is not None:
        shape = check_input_shape(input_shape, source.layout.family)
        image_size = shape[:2]
    with refusing_damage(source.file.path):
        checkpoint = configure(
            source, num_heads, image_size, architecture, config_overrides
        )
    family = checkpoint.layout.family
    fields = adapted_fields(
        checkpoint.fields,
        family,
        classes=classes,
        input_shape=input_shape,
        include_top=include_top,
        keep_representation=keep_representation,
        overrides=config_overrides,
    )
    own = checkpoint.fields
    if family == "mixer" and fields["patch_size"] == own["patch_size"]:
        check_own_size(
            tuple(own["image_size"]),
            fields["image_size"],
            subject="A Mixer has weights of each patch: this one takes",
            advice="Leave it out.",
        )

    def planned(model):
        target = weights_of(model)
        plan = plan_loading(checkpoint, target, resampling, is_built=True)
        if config_overrides.get("head_bias") and HEAD in plan.steps:
            raise ValueError(
                "head_bias is where the bias of a new classification layer "
                f"starts, and {source.file.path!r} has that layer. Received: "
                f"head_bias={config_overrides['head_bias']!r}. Leave it out, "
                "or give another number of classes."
            )
        return plan

    def make():
        # A config that a file holds may be damaged, which Keras finds out.
        as_held = fields == source.fields
        where = refusing(source.file.path, "the config")
        with where if as_held else nullcontext():
            return build(family, fields, name=name, dtype=dtype)

    # A stacked file is read in its own order, all blocks' share at a time.
    # Weights that devices share have initializers that Keras traces: what a
    # file holds would be compiled as a constant.
    if source.is_stacked or keras.distribution.distribution() is not None:
        model = make()
        return _filled(model, planned(model))
    return built_with(make, planned)


ACTIVATION = "representation_activation"


def _with_head(source, is_told) -> Checkpoint:
    """Return a source whose head is of a model here, or refuse it.

    Args:
        source: a `Checkpoint`.
        is_told: bool, whether the activation between the dense layers of
            the head is known.
    """
    if not source.other_head:
        return source
    if source.dense_head and is_told:
        return source.with_dense_head()
    names = listed(source.other_head)
    if source.dense_head:
        what = (
            f"two dense layers ({names}), and no tensor shows what is between"
        )
        cure = f'{ACTIVATION}="relu", or what it is, keeps it. '
    else:
        what = f"what the models here do not have ({names})"
        cure = "One or two dense layers would be kept. "
    refuse(
        source.file.path,
        f"has a head of its own: {what}",
        f"{cure}load_checkpoint(..., classes=...) loads the encoder with a new "
        "head of zeros, include_top=False or classes=0 without one.",
    )


def load_weights(
    model: keras.Model,
    source,
    *,
    resampling: str | None = None,
    architecture: str | None = None,
    prefix: str | None = None,
) -> keras.Model:
    """Fill a model with weights of any known format.

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
        prefix: see `load_checkpoint`.

    Returns:
        The model. `model.load_report` says what was loaded, resampled,
        dropped and left as it was, and in which options, such as the
        activation, the model computes otherwise than the file's own.

    Raises:
        ValueError: for a file that is damaged, unknown, or does not fit.
        OSError: when it cannot be read.

    Example:

    >>> model = keras_vit.ViT_B16(classes=10)
    >>> keras_vit.checkpoints.load_weights(model, "ViT-B_16.npz")
    """
    check_kind(str | None, architecture=architecture, prefix=prefix)
    if source is None:
        return model
    if not isinstance(source, Checkpoint):
        path, part = located_part(source)
        kind = kind_of(path)
        if kind == "h5" and not prefix:
            return load_weights_h5(model, path)
        source = _opened(path, prefix or part, kind)
    target = weights_of(model)
    if HEAD in target.variables:
        source = _with_head(source, REPRESENTATION in target.variables)
    unknown = target.config.keys() - source.file.config
    has_heads = source.layout.family in ("vit", "variant")
    checkpoint = configure(
        source,
        target.facts.num_heads if has_heads else None,
        target.config.get("image_size"),
        architecture,
        {x: target.config[x] for x in NOT_IN_TENSORS if x in unknown},
    )
    plan = plan_loading(checkpoint, target, resampling)
    for read in plan.steps.values():
        read()  # Damage shows here, before anything is assigned.
    return _filled(model, plan)


def check_weights(weights, model: str | None = None) -> None:
    """Raise a ValueError unless weights can be found; reads no arrays.

    Args:
        weights: None, or a source as in `load_checkpoint`.
        model: str, the application that they are for, such as "ViT_B16",
            without which a name of the catalogue must begin with it.

    Raises:
        ValueError: when there is no such file and no such name.
    """
    if weights is None or isinstance(weights, Checkpoint):
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
        return
    from keras_vit.checkpoints.public import catalog, fetch

    if fetch.is_address(text):
        pass  # whether it is there shows when it is fetched
    elif text.startswith((".", "~", os.sep)) or path.endswith(SUFFIXES):
        raise _missing_file(Path(path))
    elif fetch.shipped_path(text, model) is None:
        catalog.find(model, text)


def _missing_file(path) -> ValueError:
    """Make the error for a path that is none, with names that are close."""
    hint = f" There is no folder {str(path.parent)!r}."
    if path.parent.is_dir():
        nearest = difflib.get_close_matches(path.name, os.listdir(path.parent))
        hint = f" Did you mean {' or '.join(nearest)}?" if nearest else ""
    return ValueError(
        f"weights={str(path)!r} is no file. Expected None for random "
        "initialisation, the path of a file or folder of weights, or a name "
        f"that `keras-vit weights list` shows.{hint}"
    )


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
        trained_as: `TrainedAs`, what the model was trained on.
    """

    source: str
    format: str
    family: str
    fields: dict
    num_parameters: int
    shapes: dict
    notes: tuple
    trained_as: TrainedAs

    def __str__(self):
        lines = [
            f"{self.source}: {self.family} in {self.format} format, "
            f"{self.num_parameters:,} parameters",
            *(f"  {name}: {value}" for name, value in self.fields.items()),
            *(f"note: {note}" for note in self.notes),
        ]
        return "\n".join(lines)


def read_info(
    source,
    *,
    num_heads: int | None = None,
    architecture: str | None = None,
    prefix: str | None = None,
    **config_overrides,
) -> Info:
    """Describe what a file of weights holds, from its names and shapes.

    Arrays are not read and no model is built.

    Args:
        source: see `load_checkpoint`.
        num_heads: int, attention heads, where the file cannot tell.
        architecture: see `load_checkpoint`.
        prefix: see `load_checkpoint`.
        **config_overrides: other fields of the model's config that the file
            leaves open, such as activation="quick_gelu".

    Returns:
        An `Info`; `print` shows it.

    Raises:
        ValueError: for a file that is damaged or of no known format, that
            leaves open what only an argument can tell, or shows another value
            than an argument has.
        OSError: when it cannot be read.

    Example:

    >>> print(keras_vit.checkpoints.read_info("ViT-B_16.npz"))
    """
    source = open_source(source, prefix=prefix)
    family = source.layout.family
    config_class = checked_class(family, config_overrides).config_class
    with refusing_damage(source.file.path):
        checkpoint = configure(
            source, num_heads, None, architecture, config_overrides
        )
    places = PLACES.get(family, PLACES["vit"])
    in_record = source.fields or source.file.config
    for name, value in config_overrides.items():
        is_shown = places.get(name) == TENSORS or name in in_record
        stored = vars(config_class(**checkpoint.fields))[name]
        given = vars(config_class(**checkpoint.fields | {name: value}))[name]
        if is_shown and given != stored:
            what = f"has {name}={stored!r}, but {name}={given!r} is given"
            refuse(source.file.path, what, "Leave it out.")
    shapes = {name: x.shape for name, x in source.file.tensors.items()}
    return Info(
        source.file.path,
        source.layout.name,
        family,
        checkpoint.fields | config_overrides,
        sum(
            math.prod(shapes[name])
            for row in source.rows.values()
            for name in row.names
        ),
        shapes,
        tuple(checkpoint.notes),
        source.trained_as,
    )


def open_source(
    source, model: str | None = None, *, prefix: str | None = None
) -> Checkpoint:
    """Open a source of weights and recognise its format; read no arrays.

    Args:
        source: see `load_checkpoint`; an opened source is returned as it is.
        model: str, the application that a name of the catalogue is of, where
            the name does not say it.
        prefix: see `load_checkpoint`; None for an opened source.

    Raises:
        ValueError: for a file that is damaged or unknown.
        OSError: when it cannot be read.

    Example:

    >>> source = open_source("ViT-B_16.npz")
    >>> model = load_checkpoint(source)
    """
    if isinstance(source, Checkpoint):
        if prefix:
            _refuse_prefix(source.file.path, prefix, "is opened already")
        return source
    path, part = located_part(source, model)
    with refusing_damage(path):
        opened = _opened(path, prefix or part, kind_of(path))
    from keras_vit.checkpoints.public import catalog

    entry = catalog.entry_of(os.fspath(source), model)
    if entry is not None and entry.architecture:
        # Some repositories serve two: CLIP's with two activations.
        opened.file.config["architecture"] = entry.architecture
    entry = entry or catalog.FILES.get(Path(path).name)
    shipped = os.fspath(source).lower() in catalog.SHIPPED
    known = catalog.SHIPPED_AS if shipped else entry and entry.trained_as
    if known is not None and opened.trained_as.assumed:
        opened.known = known
    return opened


def located(source: str) -> str:
    """Return the path of the model in a run folder, else the source."""
    inside = Path(source, RUN_MODEL)
    return str(inside) if inside.is_file() else source


def _refuse_prefix(path, prefix, why) -> NoReturn:
    refuse(path, f"{why}, and prefix={prefix!r} is given", "Leave it out.")


def _opened(path, part, kind) -> Checkpoint:
    is_keras = kind == "keras" or kind == "folder" and is_keras_folder(path)
    if part and (is_keras or kind == "h5"):
        _refuse_prefix(path, part, "is a file of Keras, of one model")
    if kind == "h5":
        refuse(
            path,
            "holds weights but not the model that they are of",
            "Build the model, such as keras_vit.ViT_B16(...), and call "
            "keras_vit.checkpoints.load_weights(model, path); "
            'model.save("model.keras") then writes both.',
        )
    if is_keras:
        return open_keras(path)
    return recognise(OPENERS[kind](path), part)


def located_part(source, model=None, *, texts=False) -> tuple[str, str]:
    """Return the path, and the part of the file, of what a user names.

    With texts, a repository's file of both halves is fetched, too.
    """
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

    path, part = split_subtree(resolve(source, model, texts=texts))
    if not os.path.exists(path):
        raise FileNotFoundError(
            f"There is no file or folder {str(source)!r}. Give the path of a "
            "file of weights or of a run, or a name of `keras-vit weights "
            "list`."
        )
    return located(path), part


def split_subtree(source) -> tuple[str, str]:
    """Split `file.npz:img` into the path and the part, "" without one."""
    text = str(source)
    path, colon, part = text.rpartition(":")
    if colon and not Path(text).exists() and Path(path).is_file():
        return path, part
    return text, ""


SUFFIXES = (".npz", ".safetensors", ".h5", ".keras")


def _filled(model, plan: LoadPlan):
    variables = {variable.path: variable for variable in model.variables}
    for path, read in plan.steps.items():
        variables[path].assign(read())
    return _reported(model, plan)


def _reported(model, plan: LoadPlan):
    """Give a model the report, and the record of what it was trained on."""
    model.load_report = plan.report
    known = plan.report.trained_as
    if HEAD not in plan.steps:
        known = known.but(
            class_names=None, problem="classification", activation=None
        )
    model.trained_as = known.for_outputs(model.output_shape[-1])
    return model


HEAD = "predictions/kernel"

REPRESENTATION = "pre_logits/kernel"


def built_with(build: Callable, plan_of: Callable) -> keras.Model:
    """Build a model whose weights are read when they are made.

    Keras defers the weights that are made in a stateless scope and makes them
    when it ends; until then each can be given another initializer. So nothing
    is drawn only to be overwritten, and memory holds the model once. Weights
    without a step of the plan have their own initial values.
    """
    starts = {}
    with values_at_the_end():
        model = build()
        plan = plan_of(model)
        for variable in model.variables:
            if variable.path in plan.steps:
                start = Start(plan.steps[variable.path])
                starts[variable.path] = start
                set_initializer(variable, start)
    for variable in model.variables:
        # Inside another stateless scope, and should Keras no longer defer.
        if variable.path in starts and not starts[variable.path].was_read:
            variable.assign(plan.steps[variable.path]())
    return _reported(model, plan)


class Start:
    """An initializer that reads the value of a weight."""

    def __init__(self, step):
        self.step = step
        self.was_read = False

    def __call__(self, shape, dtype=None):
        array = taken_over(self.step())
        self.was_read = True
        # TensorFlow makes no weight of another dtype than the value's.
        same = dtype in (None, "float32")
        return array if same else keras.ops.cast(array, dtype)


def average_weights(
    models: Sequence[Any], shares: Sequence[float] | None = None
) -> Any:
    """Make a model whose weights are the average of those of others.

    Two of them, one classifying by words and one fine-tuned from it, are the
    ensemble in the space of weights of "Robust fine-tuning of zero-shot
    models" (arXiv:2109.01903, equation 1); fine-tuned runs of one start are
    the uniform soup of "Model soups" (arXiv:2203.05482, table 2). Models that
    were trained from other first weights have no average that is of use.

    Args:
        models: two or more models of this package, or their sources, see
            `load_checkpoint`. Two of them at a time are in memory.
        shares: a float for each of them; they sum to 1. None for equal ones.

    Returns:
        A new model like the first one, all of it trainable.

    Raises:
        ValueError: for models that differ in more than their weights, or
            shares that do not fit.
        OSError: when a source cannot be fetched.

    Example:
        >>> model = average_weights(["zero_shot.keras", "runs/flowers"])
        >>> model.save("robust.keras")
    """
    several = isinstance(models, Sequence) and not isinstance(models, str)
    models = list(models) if several else [models]
    count = len(models)
    equal = [1 / max(count, 1)] * count
    shares = equal if shares is None else np.ravel(shares).tolist()
    fits = len(shares) == count and all(is_of(float, x) for x in shares)
    if count < 2 or not fits or not math.isclose(sum(shares), 1, abs_tol=1e-6):
        raise ValueError(
            "An average is of two models or more, with a share for each that "
            f"sum to 1. Received: {count} models, shares={shares}."
        )
    first = _model_of(models[0])
    totals = _weights(first, shares[0])
    for other, share in zip(models[1:], shares[1:], strict=True):
        model = _model_of(other)
        _check_alike(first, model, other)
        for path, values in _weights(model, share).items():
            totals[path] += values
    return remade(first, totals)


def _model_of(model):
    found = model
    if not isinstance(model, keras.Model):
        found = load_checkpoint(model)
    if not isinstance(found, ConfiguredModel):
        raise ValueError(
            "Averages are of the models of this package. Received: "
            f"{type(found).__name__}."
        )
    return found


def _weights(model, share) -> dict[str, np.ndarray]:
    return {
        x.path: share * np.asarray(keras.ops.convert_to_numpy(x), "float64")
        for x in model.weights
    }


def _check_alike(first, model, source) -> None:
    """Refuse models that differ in more than their weights."""
    both = [_facts(x) for x in (first, model)]
    names = sorted({*both[0], *both[1]})
    differences = [
        f"{name}: {str(both[0].get(name))[:200]} in the first, "
        f"{str(both[1].get(name))[:200]} in {str(source)[:200]!r}"
        for name in names
        if both[0].get(name) != both[1].get(name)
    ]
    if differences:
        raise ValueError(
            "Models whose weights are averaged differ in nothing else. "
            f"Received: {'; '.join(differences)}. Give models that were "
            "trained from the same start on the same classes."
        )


def _facts(model) -> dict[str, Any]:
    """Return what two models that are averaged must share."""
    family = type(model).__name__
    idle = {x for y in PLACES.values() for x, z in y.items() if z == TRAINING}
    config = {
        name: value
        for name, value in dataclasses.asdict(model.config).items()
        if name not in {*idle, *AROUND}  # The first one's are taken.
    }
    known = model.trained_as
    return {
        **config,
        "family": family,
        "class_names": known.class_names,
        "preprocessing": known.preprocessing,
    }
