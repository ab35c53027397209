"""Checks of the values that users give, and choices that several modules share.

`config` is a record and the names are its fields; None means not given.
"""

import contextlib
import dataclasses
import difflib
import functools
import importlib.util
import math
import numbers
import os
import pathlib
import re
import types
import typing
from typing import Any

__all__ = [
    "AXES",
    "BIAS_KINDS",
    "DISTRIBUTIONS",
    "EXTRAS",
    "MAX_YAML_BYTES",
    "MIXER_NORMALIZATIONS",
    "MIXINGS",
    "MLP_PLACEMENTS",
    "NORMALIZATIONS",
    "NORM_PLACEMENTS",
    "PAIRS",
    "PRECISIONS",
    "ROPES",
    "STANDARDIZATIONS",
    "check_at_least",
    "check_at_most",
    "check_choice",
    "check_classes",
    "check_divisible",
    "check_finite",
    "check_fraction",
    "check_heads",
    "check_installed",
    "check_kind",
    "check_limits",
    "check_multiple",
    "check_own_size",
    "check_positive",
    "check_regular",
    "check_size",
    "check_types",
    "check_whole",
    "check_unread",
    "check_yaml",
    "cpu_flags",
    "is_of",
    "numbers_of",
    "read_yaml",
]

CPU_INFO = pathlib.Path("/proc/cpuinfo")
# Dtype policy to the bytes of a number that a layer computes with.
PRECISIONS = {"float32": 4, "mixed_bfloat16": 2, "mixed_float16": 2}
DISTRIBUTIONS = (
    "auto",
    "single",
    "mirrored",
    "multiworker",
    "tpu",
    "data_parallel",
    "fsdp",
    "model_parallel",
)
# Extra of this distribution to modules and the packages that have them; what
# is missing is named by the first extra that brings all of it.
PLOTS = {"jinja2": "jinja2", "matplotlib": "matplotlib"}
PLOTS |= {"sklearn": "scikit-learn"}
DATA = {"tensorflow_datasets": "tensorflow-datasets"}
DATA |= {"importlib_resources": "importlib_resources"}
EXTRAS = {
    "plots": PLOTS,
    "data": DATA,
    "explain": {**PLOTS, "saliency": "saliency"},
    "recipes": {**PLOTS, **DATA, "tensorflow": "tensorflow"},
    "serve": {
        "prometheus_client": "prometheus-client",
        "python_multipart": "python-multipart",
        "starlette": "starlette",
        "uvicorn": "uvicorn",
    },
    "cv": {"keras_cv": "keras-cv"},
    "hub": {
        "huggingface_hub": "huggingface_hub",
        "kagglehub": "kagglehub",
        "safetensors": "safetensors",
    },
    "streams": {
        "array_record": "array_record",
        "huggingface_hub": "huggingface_hub",
        "pyarrow": "pyarrow",
    },
    "text": {
        "ftfy": "ftfy",
        "sentencepiece": "sentencepiece",
        "tokenizers": "tokenizers",
    },
    "storage": {"gcsfs": "gcsfs", "s3fs": "s3fs"},
    "tpu-compiler": {"libtpu": "libtpu"},
    "gpu-compiler": {"jax_cuda12_plugin": "jax-cuda12-plugin"},
    "mlflow": {"mlflow": "mlflow"},
    "wandb": {"wandb": "wandb"},
}
# What options of the layers may be.
ROPES = ("axial", "centered", "mixed")
PAIRS = ("neighbors", "halves")
AXES = ("row_first", "column_first")
BIAS_KINDS = ("table", "mlp", "mlp_swin")
NORMALIZATIONS = ("layer_norm", "rms_norm")
NORM_PLACEMENTS = ("before", "after")
MLP_PLACEMENTS = ("after", "beside")
MIXINGS = ("mlp", "linear", "spatial_gating")
MIXER_NORMALIZATIONS = ("layer_norm", "affine")
STANDARDIZATIONS = ("deviation", "variance")


def check_installed(what: str, *modules: str) -> None:
    """Raises a ValueError with the command that installs what is missing.

    Args:
        what: what needs the modules, the first words of the message.
        modules: of one extra of `EXTRAS`.

    Example:
        >>> check_installed("A report", "jinja2", "matplotlib")
    """
    missing = [x for x in modules if importlib.util.find_spec(x) is None]
    if missing:
        extra, packages = next(
            (extra, packages)
            for extra, packages in EXTRAS.items()
            if packages.keys() >= {*missing}
        )
        names = ", ".join(packages[module] for module in missing)
        verb, them = ("is", "it") if len(missing) == 1 else ("are", "them")
        raise ValueError(
            f"{what} needs {names}, which {verb} not installed. Install "
            f'{them}: pip install "keras-vision-transformer[{extra}]".'
            f"{_keeping_the_backend(missing)}"
        )


def _keeping_the_backend(missing):
    """TensorFlow, once it is there, is what Keras takes by default."""
    backend = os.environ.get("KERAS_BACKEND")
    if "tensorflow" not in missing or not backend:
        return ""
    return (
        f" TensorFlow then reads the images; KERAS_BACKEND={backend} goes on "
        f"computing with {backend}."
    )


def check_choice(name: str, value, choices) -> None:
    """Raises a ValueError with the nearest names unless value is a choice."""
    if value not in list(choices):
        nearest = difflib.get_close_matches(str(value), map(str, choices), n=1)
        hint = f" Did you mean {nearest[0]!r}?" if nearest else ""
        raise ValueError(
            f"Unknown {name}: {value!r}. Expected one of "
            f"{', '.join(map(repr, choices))}.{hint}"
        )


def check_types(config, *but: str) -> None:
    """Raise a ValueError unless each field has a value of its type.

    An int is a float, too, a list a tuple, and a number of NumPy one of Python.
    Infinity and NaN are no numbers, and True is not 1.

    Args:
        config: a dataclass.
        *but: fields that are checked as they are converted.

    Example:
        >>> check_types(OptimizerConfig(learning_rate="1e-3"))
        Traceback (most recent call last):
        ValueError: learning_rate must be float | None. Received:
        learning_rate='1e-3', a str.
    """
    for name, kind, default in _kinds(type(config)):
        value = getattr(config, name)
        if value is default or name in but:
            continue
        check_kind(kind, **{name: value})
        if hasattr(value, "item"):  # A number of NumPy, which JSON has not.
            object.__setattr__(config, name, value.item())


def check_kind(kind: Any, /, **values: Any) -> None:
    """Raise a ValueError unless the values are of a type; see `check_types`.

    Example:
        >>> check_kind(tuple[str, ...] | None, class_names="cat")
        Traceback (most recent call last):
        ValueError: class_names must be tuple[str, ...] | None. Received:
        class_names='cat', a str.
    """
    for name, value in values.items():
        if not is_of(kind, value):
            raise ValueError(_wrong_type(name, kind, value))


def check_classes(count: int, /, **values: Any) -> None:
    """Raise a ValueError unless arrays have numbers of `count` classes."""
    import numpy as np

    for name, value in values.items():
        found = np.asarray(value)
        if not found.size:
            continue
        whole = found.dtype.kind in "iub"
        if not whole or found.min() < 0 or found.max() >= count:
            met = np.unique(found)[[0, -1]].tolist()
            raise ValueError(
                f"{name} are classes, numbers from 0 to {count - 1}. Received: "
                f"{met[0]!r} to {met[1]!r}."
            )


def numbers_of(name: str, value: Any, dtype: str | None = "float32") -> Any:
    """Return an array of what a user gave, or raise a ValueError."""
    import numpy as np

    try:
        return np.asarray(value, dtype)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"{name} must be an array of numbers. Received: a "
            f"{type(value).__name__}, which is none ({error})."
        ) from error


def check_finite(**values: Any) -> None:
    """Raise a ValueError unless arrays have finite numbers alone."""
    import numpy as np

    for name, value in values.items():
        if not np.isfinite(value).all():
            raise ValueError(
                f"{name} must have finite numbers. Received: some that are "
                "NaN or infinite. Look for a division by 0 in how they were "
                "computed."
            )


def check_whole(least: int, /, **values: Any) -> None:
    """Raise a ValueError unless the values are ints of at least `least`."""
    bound = "above 0" if least == 1 else f"of at least {least}"
    for name, value in values.items():
        if not is_of(int, value) or value < least:
            raise ValueError(
                f"{name} must be an int {bound}. Received: {name}={value!r}."
            )


@functools.cache
def _kinds(config_class) -> list[tuple[str, Any, Any]]:
    """List the name, the type and the default of each field."""
    hints = typing.get_type_hints(config_class)
    fields = dataclasses.fields(config_class)
    return [(x.name, hints[x.name], x.default) for x in fields]


def _wrong_type(name, kind, value) -> str:
    words = str(kind) if typing.get_args(kind) else kind.__name__
    words = re.sub(r"\b(\w+\.)+", "", words)  # of modules
    if isinstance(value, float) and not math.isfinite(value):
        words += ", and finite"
    article = "an" if type(value).__name__[0] in "aeiou" else "a"
    found = f"{repr(value)[:200]}, {article} {type(value).__name__}"
    return f"{name} must be {words}. Received: {name}={found}."


def _is_real(value) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def is_of(kind: Any, value: Any) -> bool:
    """Return whether a value is of an annotated type, as in `check_types`."""
    if kind is Any:
        return True
    if kind is None or kind is type(None):
        return value is None
    parts = typing.get_args(kind)
    origin = typing.get_origin(kind)
    if origin in (types.UnionType, typing.Union):
        return any(is_of(part, value) for part in parts)
    if origin is tuple:
        if not isinstance(value, (tuple, list)):
            return False
        if parts[-1] is ...:
            parts = parts[:1] * len(value)
        return len(parts) == len(value) and all(map(is_of, parts, value))
    if kind is bool:
        return type(value).__name__ in ("bool", "bool_")  # of NumPy
    if kind in (int, float):
        number = numbers.Integral if kind is int else numbers.Real
        right = _is_real(value) and isinstance(value, number)
        return right and value == value and value not in (math.inf, -math.inf)
    return isinstance(value, origin or kind)


def check_positive(config, *names: str) -> None:
    """Raises a ValueError unless the named fields are above 0, or None."""
    for name in names:
        value = getattr(config, name)
        if value is not None and not (_is_real(value) and value > 0):
            raise ValueError(
                f"{name} must be above 0. Received: {name}={value!r}."
            )


def check_at_least(config, bound: int, *names: str) -> None:
    """Raises a ValueError unless the fields are at least `bound`, or None."""
    for name in names:
        value = getattr(config, name)
        if value is not None and not (_is_real(value) and value >= bound):
            raise ValueError(
                f"{name} must be at least {bound}. Received: {name}={value!r}."
            )


def check_at_most(config, bound: float, *names: str) -> None:
    """Raises a ValueError unless the fields are at most `bound`, or None."""
    for name in names:
        value = getattr(config, name)
        if value is not None and not (_is_real(value) and value <= bound):
            raise ValueError(
                f"{name} must be at most {bound}. Received: {name}={value!r}."
            )


def check_fraction(config, *names: str) -> None:
    """Raises a ValueError unless the fields are in [0, 1]."""
    for name in names:
        value = getattr(config, name)
        if not (_is_real(value) and 0 <= value <= 1):
            raise ValueError(
                f"{name} must be between 0 and 1. Received: {name}={value!r}."
            )


def check_limits(config, limit: float, *names: str) -> None:
    """Raises a ValueError unless the fields are in [0, limit)."""
    for name in names:
        value = getattr(config, name)
        if not (_is_real(value) and 0 <= value < limit):
            raise ValueError(
                f"{name} must be at least 0 and below {limit}. Received: "
                f"{name}={value!r}."
            )


def check_multiple(config, name: str, divisor: str) -> None:
    """Raises a ValueError unless a field is a multiple of another, or None."""
    value, unit = getattr(config, name), getattr(config, divisor)
    if value is not None and unit is not None and value % unit:
        raise ValueError(
            f"{name} must be a multiple of {divisor}. Received: "
            f"{name}={value}, {divisor}={unit}."
        )


def check_unread(config, case: str, *names: str) -> None:
    """Raise a ValueError for fields that nothing reads in a case.

    Args:
        config: a dataclass whose fields have default values.
        case: the case, as 'data.folder="flowers"'.
        *names: fields that must have their default values.
    """
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if field.name in names and value != field.default:
            raise ValueError(
                f"{field.name} does nothing with {case}. Received: "
                f"{field.name}={value!r}. Expected its default, "
                f"{field.default!r}: leave it out."
            )


def check_size(name: str, value) -> tuple:
    """(height, width) of one side or both; a ValueError unless above 0."""
    both = isinstance(value, (tuple, list))
    pair = tuple(value) if both else (value, value)
    if not is_of(tuple[int, int], pair) or min(pair) < 1:
        raise ValueError(
            f"{name} must be a positive integer or a pair (height, width) of "
            f"them. Received: {name}={value!r}."
        )
    return tuple(map(int, pair))


def check_own_size(
    own: tuple,
    image_size: Any,
    *,
    subject: str = "The model takes",
    advice: str = "Leave it out, or give the name or path of the weights "
    "instead of a model.",
) -> None:
    """Refuse a size where a model in memory has its own (height, width)."""
    if image_size is None or check_size("image_size", image_size) == own:
        return
    raise ValueError(
        f"{subject} images of {own[0]}x{own[1]}. Received: "
        f"image_size={image_size!r}. {advice}"
    )


def cpu_flags() -> frozenset[str]:
    """What the CPU can compute, as Linux names it, such as "avx2".

    Empty where the system does not say.
    """
    try:
        return frozenset(CPU_INFO.read_text(encoding="utf-8").split())
    except (OSError, UnicodeDecodeError):
        return frozenset()


MAX_YAML_BYTES = 2**18  # The largest config of the recipes has 5 KB.

MAX_YAML_DEPTH = 50


def read_yaml(text: str | bytes) -> Any:
    """Return the plain values of a text.

    Names that stand for parts (`&name`, `*name`) are refused: a few of them,
    each of which names the one before twice, are billions of values.

    Raises:
        ValueError: when it is no YAML, or larger or deeper than configs are.

    Example:
        >>> read_yaml("seed: 0")
        {'seed': 0}
    """
    import yaml

    check_yaml(text)
    try:
        return yaml.safe_load(text)
    except (yaml.YAMLError, OverflowError, TypeError) as error:
        reason = " ".join(str(error).split())[:300]
        raise ValueError(f"It is no YAML: {reason}") from error


def check_regular(path: str | os.PathLike) -> None:
    """Raises a ValueError for what is there and neither file nor folder.

    To open a FIFO waits for who writes into it, without end; an empty text
    would be the current folder.
    """
    if not os.fspath(path):
        raise ValueError("A path is empty, as of an unset variable: ''.")
    path = pathlib.Path(path)
    if path.exists() and not path.is_file() and not path.is_dir():
        raise ValueError(
            f"{str(path)!r} is no regular file. Copy its content into one."
        )


def check_yaml(text: str | bytes) -> None:
    """Refuse a text that takes long to read: too large, too deep, references.

    Raises:
        ValueError: for such a text. One that is no YAML passes.
    """
    import yaml

    if len(text) > MAX_YAML_BYTES:
        raise ValueError(
            f"A YAML text has at most {MAX_YAML_BYTES:,} characters. "
            f"Received: {len(text):,}."
        )
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    with contextlib.suppress(yaml.YAMLError):
        _check_events(yaml.parse(text, Loader=loader))


def _check_events(events) -> None:
    import yaml

    depth = 0
    for event in events:
        depth += isinstance(event, yaml.CollectionStartEvent)
        depth -= isinstance(event, yaml.CollectionEndEvent)
        if depth > MAX_YAML_DEPTH:
            raise ValueError(
                f"A YAML text has at most {MAX_YAML_DEPTH} levels."
            )
        if isinstance(event, yaml.AliasEvent):
            raise ValueError(
                f"A YAML text names no parts of itself. Received: "
                f"*{event.anchor[:100]}. Write the part out."
            )


def check_heads(dim: int, num_heads: int) -> None:
    """Raises a ValueError unless the heads divide the hidden dimension."""
    if num_heads < 1 or dim % num_heads:
        raise ValueError(
            f"num_heads={num_heads} does not divide the hidden dimension "
            f"{dim}, so the heads cannot be of equal size. Choose one of "
            f"{[n for n in range(1, min(dim, 64) + 1) if dim % n == 0]}."
        )


def check_divisible(
    image_size: tuple, patch_size: tuple, what: str = "Images", unit="pixels"
) -> None:
    """Raises a ValueError unless the patch divides the image."""
    if any(
        size % patch for size, patch in zip(image_size, patch_size, strict=True)
    ):
        nearest = tuple(
            max(patch, round(size / patch) * patch)
            for size, patch in zip(image_size, patch_size, strict=True)
        )
        raise ValueError(
            f"{what} of {image_size[0]}x{image_size[1]} {unit} (height x "
            f"width) cannot be cut into patches of {patch_size[0]}x"
            f"{patch_size[1]}: the patch must divide both sides. Choose "
            f"another patch size, or a size of {nearest[0]}x{nearest[1]}."
        )
