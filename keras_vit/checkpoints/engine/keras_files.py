"""Keras's own files: `.keras` of one of our models, and `.weights.h5`.

A folder with what is in a `.keras` file, as Keras writes it to a hub, is read
like that file.
"""

import contextlib
import dataclasses
import functools
import io
import json
import math
import os
import pathlib
import re
import warnings
import zipfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NoReturn

import keras
import numpy as np

from keras_vit.checkpoints.engine.configure import configure
from keras_vit.checkpoints.engine.layout import (
    Dialect,
    Facts,
    Layout,
    Row,
    listed,
)
from keras_vit.checkpoints.engine.matching import REGISTERED_NAMES, LoadReport
from keras_vit.checkpoints.engine.recognition import Checkpoint
from keras_vit.checkpoints.files.config_values import read_json
from keras_vit.checkpoints.files.hdf5 import (
    check_heaps,
    datasets,
    list_datasets,
    read_dataset,
)
from keras_vit.checkpoints.files.tensors import (
    DAMAGED,
    HARMFUL,
    TensorFile,
    check_dtype,
    check_name,
    refuse,
    refusing,
)
from keras_vit.io.atomic_files import replacing
from keras_vit.models.options import CONFIGS, ViTConfig, options_of
from keras_vit.runtime.workarounds import without_optimizer
from keras_vit.trained_as import TrainedAs

__all__ = [
    "CLASS_NAMES",
    "MAX_CONFIG_BYTES",
    "check_class_names",
    "is_keras_folder",
    "load_model",
    "load_weights_h5",
    "open_keras",
    "read_class_names",
    "save_model",
    "write_class_names",
]

CONFIG, METADATA = "config.json", "metadata.json"
WEIGHTS = "model.weights.h5"
# What is unpacked may be this many times the file, and this much more: its
# weights barely compress and Keras stores them as they are.
MAX_RATIO = 20
MAX_EXTRA_BYTES = 2**24
MAX_CONFIG_BYTES = 2**20
CLASS_NAMES = "class_names.json"  # What a run of keras_vit adds.
SAVE_NAMES = (
    "Save it with keras_vit.save_checkpoint(model, path, format='keras', "
    "class_names=[...])."
)
# Of an image-text model: its name, the tower that is read as a model of its
# own, and where its tokenizer is, which is not.
PAIR, TOWER, ASSETS = "keras_vit>ImageTextModel", "image_tower", "assets/"
MAX_NAMES_BYTES = 2**24  # 21,843 names take 0.4 MB.
# Of a model's own config; its dtype policy is the one object within.
KEYS = {"name", "trainable", "dtype", "config", "frozen", "trained_as"}
POLICIES = {"DTypePolicy", "DTypePolicyMap", "FloatDTypePolicy"}
UNQUANTIZED = "Save the weights before model.quantize(...)."
POLICY_MODULES = {"keras", "keras.dtype_policies"}
# What a compiled model keeps beside its weights.
COMPANIONS = re.compile(r"(optimizer|metrics|.*seed_generator)/.*")
# Fields of the config that change what the weights are read as.
FLAGS = ("distillation_token", "norm_after_pooling")
# Last part of a layer's path and the number of its weights -> their names, of
# layers that have neither a kernel nor a scale.
OWN_WEIGHTS = {
    ("class_token", 1): ("token",),
    ("pool", 1): ("probe",),
    ("attention", 1): ("lambdas",),
    ("rotary", 1): ("frequencies",),
    ("position_bias", 1): ("table",),
    ("position_bias", 2): ("rows", "columns"),
    **{
        ("position_bias", 3 + bias): (
            *("hidden_weight", "hidden_bias", "head_weight"),
            *["head_bias"] * bias,
        )
        for bias in (0, 1)
    },
}
MOMENTS = ("moving_mean", "moving_variance")
# Fields of the config that shapes do not tell of every model.
NOT_IN_SHAPES = ("pooling", "position_embedding")
# What prefix tokens are, without the class token in front of them.
PREFIX = ("class_token", "register_tokens")
# Of axial attention the rows' part stands for the columns', which is alike.
AXIAL = r"^(block_\d+/)rows/(?:attention/(attention))?"
# Numbers that need not be in the file: a grid below this is never dangerous.
ALLOWANCE = 2**20


def open_keras(path) -> Checkpoint:
    """Open a `.keras` file or folder of one of our models; builds nothing.

    Nothing that its config names is imported, and a config of other sizes
    than those of the file's weights is refused. Of an image-text model the
    image tower is opened.

    Raises:
        ValueError: for a damaged file, or another model.
    """
    stored = _Stored(path)
    with refusing(path, "the file"):
        content = stored.read_config()
        family, record = _checked_record(path, content)
        known = TrainedAs.from_fields(
            content["config"].get("trained_as", {}), repr(str(path))
        )
        if names := stored.class_names():
            known = known.but(class_names=names)
        tensors = stored.list_weights()
        config = dataclasses.asdict(record)
        if config.get("relative_positions_shared"):
            # The first of the layers that share them has them in the file.
            tensors = {
                re.sub(r"^block_0/attention/(position_bias/)", r"\1", path): x
                for path, x in tensors.items()
            }
        facts = Facts(
            config.get("num_heads", 1), getattr(record, "num_prefix_tokens", 0)
        )
        checkpoint = Checkpoint(
            TensorFile(str(path), tensors, trained_as=known),
            dataclasses.replace(LAYOUT, family=family),
            {name for name in FLAGS if config.get(name)},
            {name: Row((name,), "same") for name in tensors},
            [],
            fields=config,
            facts=facts,
            grid=getattr(record, "grid", None),
        )
        _check_sizes(checkpoint)
    return checkpoint


LAYOUT = Layout(
    Dialect("Keras"),
    "keras",
    "vit",
    {},
    (),
    has_fixed_positions=True,
    optional=("patch_bias", "qkv_bias", "projection_bias"),
)


class ZipParts:
    """The members of a `.keras` file.

    Args:
        path: the file.

    Raises:
        ValueError: when it is no such file, or unpacks to far more than it
            takes.
        OSError: when it cannot be opened.
    """

    def __init__(self, path):
        self.path = path
        with refusing(path, "the file"), zipfile.ZipFile(path) as archive:
            self._check(archive.infolist())

    def _check(self, members):
        names = sorted(member.filename for member in members)
        for name in names:
            check_name(self.path, name)
        self.names = tuple(names)
        if not {CONFIG, WEIGHTS} <= set(names):
            _refuse_members(self.path, names)
        if len(set(names)) < len(names):
            refuse(self.path, "holds a member twice", HARMFUL)
        sizes = {member.filename: member.file_size for member in members}
        size, unpacked = Path(self.path).stat().st_size, sum(sizes.values())
        if unpacked > MAX_RATIO * size + MAX_EXTRA_BYTES:
            refuse(self.path, f"unpacks {size} bytes to {unpacked}", HARMFUL)
        _check_config(self.path, sizes[CONFIG])

    def read(self, name: str) -> bytes:
        with zipfile.ZipFile(self.path) as archive:
            return archive.read(name)

    @contextlib.contextmanager
    def opened(self, name: str) -> Iterator[BinaryIO]:
        with (
            zipfile.ZipFile(self.path) as archive,
            archive.open(name) as content,
        ):
            yield content  # pyright: ignore[reportReturnType]

    def around(self, name: str) -> BinaryIO:
        """Open a file that holds the bytes of a member somewhere.

        As Keras writes it, the weights stand in the file as they are.
        """
        with zipfile.ZipFile(self.path) as archive:
            stored = archive.getinfo(name).compress_type == zipfile.ZIP_STORED
            content = None if stored else io.BytesIO(archive.read(name))
        return content or Path(self.path).open("rb")


class FolderParts:
    """The files of a folder that Keras wrote; others beside them are ignored.

    Args:
        path: the folder.

    Raises:
        ValueError: when its config is oversized.
        OSError: when it cannot be read.
    """

    names = ()

    def __init__(self, path):
        self.path = Path(path)
        _check_config(path, (self.path / CONFIG).stat().st_size)

    def read(self, name: str) -> bytes:
        return (self.path / name).read_bytes()

    def opened(self, name: str) -> BinaryIO:
        return (self.path / name).open("rb")

    around = opened


def _refuse_members(path, names) -> NoReturn:
    refuse(
        path,
        f"holds the members {', '.join(names[:5])}",
        f"Expected {CONFIG}, {METADATA} and {WEIGHTS} alone.",
    )


def _check_config(path, size) -> None:
    if size > MAX_CONFIG_BYTES:
        refuse(path, "has an oversized config.json", HARMFUL)


class _Stored:
    """The parts of a saved model, checked before they are read."""

    def __init__(self, path):
        self.path = path
        self.tower = ""
        is_folder = Path(path).is_dir()
        self.parts = FolderParts(path) if is_folder else ZipParts(path)

    def class_names(self) -> tuple[str, ...] | None:
        """Read the names of the classes that a run puts into its file."""
        if Path(self.path).is_dir():
            return None
        with zipfile.ZipFile(self.path) as archive:
            if CLASS_NAMES not in archive.namelist():
                return None
            return read_class_names(self.path, archive)

    def read_config(self):
        """Read the config of the model; of two towers the one of images."""
        content = json.loads(self.parts.read(CONFIG))
        if type(content) is dict and content.get("registered_name") == PAIR:
            self.tower = TOWER
            content = content["config"][TOWER]
        others = {*self.parts.names} - {CONFIG, WEIGHTS, METADATA, CLASS_NAMES}
        if not all(self.tower and x.startswith(ASSETS) for x in others):
            _refuse_members(self.path, self.parts.names)
        return content

    def list_weights(self) -> dict:
        """List the weights by our paths, such as block_0/mlp/dense/kernel."""
        import h5py

        self._check_heaps()
        with (
            self.parts.opened(WEIGHTS) as content,
            h5py.File(content, "r") as file,
        ):
            group = file
            if self.tower:
                link = file.get(self.tower, getlink=True)
                if not isinstance(link, h5py.HardLink):
                    refuse(self.path, "holds no weights of images", HARMFUL)
                group = file[self.tower]
            found = list_datasets(self.path, group, self._reader)
            names = [name for name in found if not COMPANIONS.match(name)]
            shapes = {name: found[name].shape for name in names}
            paths = _paths_of(group, shapes)
        for name in names:
            if found[name].dtype.kind in "iu":
                refuse(
                    self.path,
                    f"is of dtype {found[name].dtype}: the model is quantised",
                    UNQUANTIZED,
                    name,
                )
            check_dtype(self.path, name, found[name].dtype)
        unknown = [name for name in names if name not in paths]
        if unknown or len(set(paths.values())) < len(paths):
            refuse(
                self.path,
                "holds arrays of no layer, or two of the same weight; unused: "
                f"{listed(unknown)}",
                DAMAGED,
            )
        return {paths[name]: found[name] for name in names}

    def _check_heaps(self):
        with self.parts.around(WEIGHTS) as file:
            check_heaps(self.path, file)

    def _reader(self, name):
        place = f"{self.tower}/{name}"
        return lambda: read_dataset(self._weights, place)

    @functools.cached_property
    def _weights(self):
        """Read all weights into memory, their checksum compared."""
        import h5py

        return h5py.File(io.BytesIO(self.parts.read(WEIGHTS)), "r")


def is_keras_folder(path) -> bool:
    """Return whether Keras wrote one of our models into a folder, unzipped."""
    config, weights = Path(path, CONFIG), Path(path, WEIGHTS)
    if not (config.is_file() and weights.is_file()):
        return False
    name = read_json(config).get("registered_name")
    return name in REGISTERED_NAMES.values()


def read_class_names(path, archive: zipfile.ZipFile) -> tuple[str, ...]:
    """Read the class names in a `.keras` file.

    Raises:
        KeyError: when it has none.
        ValueError: when they are no list of texts, or too long.
    """
    size = archive.getinfo(CLASS_NAMES).file_size
    if size > MAX_NAMES_BYTES:
        refuse(
            path,
            f"has class names of {size:,} bytes",
            f"There are {MAX_NAMES_BYTES:,} at most.",
        )
    with refusing(path, "the class names"):
        names = json.loads(archive.read(CLASS_NAMES))
    return _texts(path, names)


def _texts(path, names) -> tuple[str, ...]:
    if not isinstance(names, list) or not all(map(_is_text, names)):
        refuse(
            path,
            "has class names that are not a list of texts",
            SAVE_NAMES,
        )
    return tuple(names)


def _is_text(name) -> bool:
    """Return whether it is a str that UTF-8 can hold."""
    return isinstance(name, str) and not re.search("[\ud800-\udfff]", name)


def _paths_of(file, shapes: dict) -> dict:
    """Return our path of each array whose layers tell their names.

    Keras numbers the layers of a class, and writes their names as attributes.
    """
    layers = {}
    for name in shapes:
        group, _, index = name.rpartition("/vars/")
        layers.setdefault(group, {})[int(index)] = name
    paths = {}
    for group, arrays in layers.items():
        parts = group.split("/")
        groups = ["/".join(parts[:end]) for end in range(2, len(parts) + 1)]
        found = [file.get(f"{group}/vars") for group in groups]
        names = [None if x is None else x.attrs.get("name") for x in found]
        if None in names or not names:
            continue
        layer = "/".join(map(str, names))
        arrays = [arrays[index] for index in sorted(arrays)]
        weights = _weight_names(layer, [shapes[name] for name in arrays])
        pairs = zip(arrays, weights, strict=False)
        paths |= {name: f"{layer}/{weight}" for name, weight in pairs}
    return paths


def _weight_names(layer, shapes) -> tuple:
    """Return the names of a layer's weights, in the order it makes them."""
    rank, count = len(shapes[0]), len(shapes)
    if layer.startswith("position_embedding"):
        tables = ("columns", "rows") if count == 2 else ("offsets",)
        return ("embedding",) if rank == 3 else tables
    if names := OWN_WEIGHTS.get((layer.rpartition("/")[2], count)):
        return names
    if rank > 1:
        return ("kernel", "bias")
    return ("gamma", "beta", *(("gate",) if count == 3 else MOMENTS))


def _checked_record(path, content) -> tuple:
    """Return family and record of a `config.json` of one of our models."""
    name = content.get("registered_name") if type(content) is dict else None
    families = {value: key for key, value in REGISTERED_NAMES.items()}
    if not isinstance(name, str) or name not in families:
        refuse(
            path,
            f"holds {str(name)[:80]!r}, which is no model of keras_vit",
            "Classes of others are not imported from files. Load a model of "
            "your own with keras.saving.load_model, if you trust it.",
        )
    config = content.get("config")
    if not isinstance(config, dict) or not set(config) <= KEYS:
        refuse(path, "has a config with unknown fields", DAMAGED)
    _check_policy(path, config.get("dtype"))
    fields = config.get("config")
    if not isinstance(fields, dict):
        refuse(path, "has a model without a config", DAMAGED)
    config_class = keras.saving.get_registered_object(name).config_class
    _check_numbers(path, config_class, fields)
    return families[name], config_class(**fields)


def _check_policy(path, dtype) -> None:
    """Refuse objects of which a dtype policy has no need."""
    waiting = [dtype]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            kind = str(value.get("class_name", "DTypePolicy"))
            module = str(value.get("module", "keras"))
            if module not in POLICY_MODULES or "DTypePolicy" not in kind:
                refuse(path, f"names {kind[:80]!r} as its dtype", DAMAGED)
            if kind not in POLICIES:
                what = f"has the policy {kind[:80]!r}: the model is quantised"
                refuse(path, what, UNQUANTIZED)
            waiting += [x for key, x in value.items() if key != "module"]
        elif isinstance(value, list):
            refuse(path, "has a list in its dtype", DAMAGED)


def _check_numbers(path, config_class, fields) -> None:
    """Refuse texts and fractions where whole numbers belong."""
    for name, value in fields.items():
        default = getattr(config_class, name, None)
        numbers = value if isinstance(value, (list, tuple)) else [value]
        if name in ("units", "resnet_units", "patch_stem", "image_size"):
            numbers = [x for x in numbers if x is not None]
        elif type(default) not in (int, tuple):
            continue
        wrong = [x for x in numbers if type(x) is not int or x < 0]
        if wrong:
            refuse(path, f"has {name}={str(value)[:80]!r}", DAMAGED)


def _check_sizes(checkpoint) -> None:
    """Refuse the config of another model than that of the file's weights.

    So no model is built that is larger than the file.
    """
    path, tensors = checkpoint.file.path, checkpoint.file.tensors
    config, grid = checkpoint.fields, checkpoint.grid
    given, untold = dict(config), NOT_IN_SHAPES
    if not config.get("class_token"):  # Others may stand in its place.
        given["class_token"] = checkpoint.facts.num_prefix_tokens
        untold += PREFIX
    if config.get("mlp_placement") == "beside":  # One scale is for both.
        untold += ("mlp_layer_scale",)
    config_class = CONFIGS.get(checkpoint.layout.family, ViTConfig)
    for field, row in options_of(config_class).items():
        if not row.weights or not isinstance(getattr(config_class, field), int):
            continue
        found = [x for x in checkpoint.rows if any(y in x for y in row.weights)]
        if bool(given.get(field)) != bool(found):
            refuse(
                path,
                f"has {field}={config.get(field)!r} in its config, and "
                f"{'a' if found else 'no'} weight {(found or row.weights)[0]}",
                DAMAGED,
            )
    fields = {name: x for name, x in config.items() if name not in untold}
    rows = {
        re.sub(AXIAL, r"\1\2", name): x for name, x in checkpoint.rows.items()
    }
    found = configure(
        dataclasses.replace(
            checkpoint,
            fields={},
            file=dataclasses.replace(checkpoint.file, config=fields),
            rows=rows,
        )
    )
    lengths = dict(zip(("rows", "columns"), grid or (), strict=False))
    tables = [
        tensor.shape[0] != lengths[name.rpartition("/")[2]]
        for name, tensor in tensors.items()
        if re.fullmatch(r"position_embedding(_\d+)?/(rows|columns)", name)
    ]
    units = found.fields.get("resnet_units")
    room = sum(math.prod(x.shape) for x in tensors.values()) + ALLOWANCE
    positions = math.prod(grid or ()) * config.get("hidden_dim", 0)
    if (
        any(tables)
        or (found.grid, units) != (grid, config.get("resnet_units"))
        or positions > room
    ):
        refuse(
            path,
            f"has a config of {grid} patches and resnet_units="
            f"{config.get('resnet_units')}, and weights for {found.grid} and "
            f"{units}",
            DAMAGED,
        )


def load_weights_h5(model: keras.Model, path) -> keras.Model:
    """Fill a model from a `.weights.h5` file of the same architecture.

    Keras assigns while it reads, so the values before are kept until it has
    succeeded: this takes the memory of the weights once more.

    Raises:
        ValueError: when the file does not fit the model, which is then as
            it was.
        OSError: when it cannot be read.
    """
    # Of a compiled model the file may hold the optimiser's variables too.
    optimizer = getattr(model, "optimizer", None)
    variables = [*model.variables, *getattr(optimizer, "variables", ())]
    before = [keras.ops.convert_to_numpy(x).copy() for x in variables]
    try:
        with refusing(path, "the file"), warnings.catch_warnings():
            _check_shapes(path, model, datasets(path))
            # Keras warns of what it raises an error for in the end.
            warnings.simplefilter("ignore")
            model.load_weights(path)
            _check_finite(path, model)
    except BaseException as error:
        for variable, value in zip(variables, before, strict=True):
            variable.assign(value)
        if not isinstance(error, (ValueError, OSError)):
            raise
        raise ValueError(
            f"The weights in {str(path)!r} do not fit {model.name}, "
            f"which takes {model.input_shape} and returns "
            f"{model.output_shape}. Build the model with the arguments that "
            "the file was saved with (classes, input_shape and its channels, "
            f"include_top, pooling). The reason: {error}"
        ) from error
    paths = tuple(weight.path for weight in model.weights)
    model.load_report = LoadReport(str(path), "keras", paths)
    return model


def _check_shapes(path, model, tensors) -> None:
    """Refuse a file with other arrays, of which Keras would say nothing."""
    found = Counter(
        x.shape for name, x in tensors.items() if not COMPANIONS.match(name)
    )
    wanted = Counter(tuple(x.shape) for x in model.weights)
    if found != wanted:
        refuse(
            path,
            "does not fit: shapes missing in the file: "
            f"{listed(map(str, (wanted - found).elements()))}; unused: "
            f"{listed(map(str, (found - wanted).elements()))}",
            "Build the model with the arguments that it was saved with.",
        )


def _check_finite(path, model) -> None:
    for weight in model.weights:
        if not np.isfinite(keras.ops.convert_to_numpy(weight)).all():
            refuse(
                path,
                "holds NaN or infinity",
                "The file was damaged or its training diverged.",
                weight.path,
            )


def save_model(model, class_names, path: str | os.PathLike) -> None:
    """Save a model with its class names, without optimizer.

    Args:
        model: the Keras model to save, without LoRA.
        class_names: sequence of str, in the order of the model's outputs;
            None for a model without classes, such as one of features.
        path: the file, with the suffix .keras.

    Raises:
        ValueError: when there is not one name per output.

    Example:
        >>> save_model(model, ["cat", "dog"], "model.keras")
    """
    check_class_names(model, class_names)
    path = pathlib.Path(path)
    path.parent.mkdir(exist_ok=True)
    with replacing(path) as temporary:
        with without_optimizer(model):
            model.save(temporary)
        if class_names is not None:
            write_class_names(temporary, class_names)


def write_class_names(path: str | os.PathLike, class_names) -> None:
    """Add the names of the classes to a .keras file that has none."""
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr(CLASS_NAMES, json.dumps(list(class_names)))


def check_class_names(model, class_names) -> None:
    """Raise a ValueError unless there is one name per output, or None."""
    if class_names is None:
        return
    TrainedAs(class_names=tuple(class_names))  # Refuses what is no text.
    if len(class_names) != model.output_shape[-1]:
        raise ValueError(
            f"The model has {model.output_shape[-1]} classes. Received: "
            f"{len(class_names)} class names."
        )


def load_model(path: str | os.PathLike) -> tuple[keras.Model, tuple[str, ...]]:
    """Load what `save_model` saved, without running code of the file.

    Returns:
        The model, not compiled, and its class names.

    Raises:
        ValueError: when the file is missing, is no model, or has no names.

    Example:
        >>> model, class_names = load_model("runs/quickstart/model.keras")
    """
    path = pathlib.Path(path)
    try:
        with zipfile.ZipFile(path) as archive:
            class_names = read_class_names(path, archive)
    except FileNotFoundError as error:
        raise ValueError(f"There is no file {str(path)!r}.") from error
    except zipfile.BadZipFile as error:
        raise ValueError(f"{str(path)!r} is not a .keras file.") from error
    except KeyError as error:
        raise ValueError(
            f"The model {str(path)!r} has no class names in it. Load it with "
            f"keras.saving.load_model. {SAVE_NAMES}"
        ) from error
    return keras.saving.load_model(path, compile=False), class_names
