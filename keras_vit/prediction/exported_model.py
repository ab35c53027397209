"""Models that were exported to other runtimes, opened for prediction.

Axes: B images of a batch, H and W height and width, C channels.
"""

import contextlib
import copy
import hashlib
import importlib
import json
import math
import os
import pathlib
import types
import warnings
import zipfile
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from keras_vit.io.checks import check_own_size, check_regular, cpu_flags
from keras_vit.runtime.machine import shortage
from keras_vit.trained_as import ACTIVATIONS, PROBLEMS

__all__ = [
    "RECORD",
    "RUNTIMES",
    "ExportedModel",
    "has_vnni",
    "parts_of",
    "read_record",
    "runtime_of",
]

# Name of the record inside a file, and the end of its name beside one.
RECORD = "model.json"
LARGEST_RECORD = 16 * 2**20  # bytes; ImageNet-21k's names take 0.4 MB.
LARGEST_SIDE = 16_384  # pixels
LARGEST_BATCH = 65_536  # images of a call
MOST_CHANNELS = 1_024
MOST_CLASSES = 1_000_000
FLOAT32 = 4  # bytes
NOT_OURS = (
    "{!r} has no record of keras_vit, so that its preprocessing and classes "
    "are unknown. Export the model with keras_vit.export."
)
INPUT, OUTPUT = "image", "scores"  # Names in every format.
OPENVINO_RECORD = "keras_vit"
LARGEST_XML = 256 * 2**20  # bytes, of a model without its weights
ONNX_METADATA = 14  # the field of a ModelProto
MOST_FIELDS = 10_000  # of a ModelProto, which has some ten
SAVED_MODEL = "saved_model.pb"
SAVED_MODEL_EXTRA = "assets.extra"
SAVED_MODEL_RECORD = f"{SAVED_MODEL_EXTRA}/{RECORD}"
# What TensorFlow and `keras_vit.export` write into the folder of a SavedModel.
SAVED_MODEL_PARTS = {
    *(SAVED_MODEL, "fingerprint.pb", "variables", "assets", "assets.extra"),
}


class ExportedModel:
    """A model in a file of another runtime.

    Its file is a program: open only what you trust.

    Args:
        path: what `keras_vit.export` wrote.
        record: dict, of a file that has no record yet.

    Attributes:
        runtime: the `Runtime` that runs it.
        record: dict, what the file says of itself.
        config: the fields of the model's config.
        input_shape: (None or B, H, W, C), or (None or B, None, None, C).
        image_size: (H, W) of the model.
        after: function from the outputs of the file to scores.
        resizes: bool, whether the file resizes and crops images to that.

    Raises:
        ValueError: when the file has no record of keras_vit, or its runtime
            is not installed.

    Example:
        >>> ExportedModel("vit.onnx").record["precision"]
        'int8'
    """

    def __init__(self, path: str | os.PathLike, record: dict | None = None):
        self.path, runtime = _named(path)
        self.runtime = runtime
        self.record = record or read_record(path)
        check_installed(runtime)
        if record is None:
            _check_parts(self.path, runtime, self.record)
        with naming(runtime, self.path):
            self._run = runtime.open(self.path, self.record)
        self.after: Callable = lambda scores: scores
        self.config = types.SimpleNamespace(**self.record["config"])
        self.input_shape = tuple(self.record["input"]["shape"])
        self.resizes = self.input_shape[1] is None
        self.image_size = self.input_shape[1:3]
        if self.resizes:
            self.image_size = tuple(self.config.image_size)

    def __repr__(self):
        return f"ExportedModel({str(self.path)!r})"

    def check_image_size(self, image_size: Any) -> None:
        """Raise a ValueError for a size in pixels other than the file's."""
        check_own_size(
            self.image_size,
            image_size,
            subject=f"{str(self.path)!r} takes",
            advice="Export the model with that size.",
        )

    def predict_on_batch(self, images: np.ndarray) -> np.ndarray:
        """Computes the scores of images (B, H, W, C), of any number.

        Raises:
            ValueError: when the file cannot be run, or its scores are not of
                the shape that its record says.
        """
        images = np.ascontiguousarray(images, "float32")
        rows = self.input_shape[0]
        if rows is None:
            return self._scores(images)
        padding = [(0, -len(images) % rows), *[(0, 0)] * 3]
        padded = np.pad(images, padding)  # (a multiple of `rows`, H, W, C)
        batches = np.split(padded, len(padded) // rows)
        scores = [self._scores(x) for x in batches]
        return np.concatenate(scores)[: len(images)]

    def then(self, function: Callable, size: int) -> "ExportedModel":
        """Return the model with a function (B, ...) to (B, size) behind it."""
        found = copy.copy(self)
        found.after = function
        rows = self.input_shape[0]
        output = {**self.record["output"], "shape": [rows, size]}
        found.record = {**self.record, "output": output}
        return found

    def _scores(self, images):
        with naming(self.runtime, self.path, "run"):
            found = self.after(np.asarray(self._run(images), "float32"))
        said = self.record.get("output", {}).get("shape", (None,))[1:]
        expected = (len(images), *said) if said else (len(images),)
        if found.shape[: len(expected)] != expected:
            raise ValueError(
                f"{str(self.path)!r} returns scores of shape {found.shape}, "
                f"and its record says {expected}. Export the model again."
            )
        return found


class Runtime(NamedTuple):
    """What runs a format.

    Attributes:
        name: of the runtime, for people.
        module: the Python module.
        install: what pip installs.
        record: from a path to the text of its record, None without one; runs
            nothing of the file.
        open: from a path and its record to a function from images to scores.
        parts: from a path to the files without the record, by their names.
    """

    name: str
    module: str
    install: str
    record: Callable[[pathlib.Path], str | None]
    open: Callable[[pathlib.Path, dict], Callable]
    parts: Callable[[pathlib.Path], dict[str, pathlib.Path]] = lambda path: {}


@contextlib.contextmanager
def naming(
    runtime: Runtime, path: os.PathLike, verb: str = "open"
) -> Iterator[None]:
    """Turns the errors of a runtime into a ValueError that names the file."""
    try:
        yield
    except Exception as error:  # Each runtime has errors of its own.
        reason = str(error).strip().partition("\n")[0][:500]
        raise ValueError(
            f"{runtime.name} cannot {verb} {str(path)!r}: {reason}"
        ) from error


def runtime_of(path: str | os.PathLike) -> Runtime | None:
    """Return what runs what is named as an exported model; None for others.

    A file is named by how it ends, a SavedModel by the path of its
    saved_model.pb. A folder is one only where it holds nothing but a
    SavedModel with a record of ours: what lies beside weights is not run.
    """
    path = pathlib.Path(path)
    if path.name == SAVED_MODEL:
        return RUNTIMES[""]
    if path.is_dir():
        return RUNTIMES[""] if _is_saved_model_alone(path) else None
    return RUNTIMES.get(path.suffix) if path.suffix else None


def _is_saved_model_alone(folder):
    parts = {x.name for x in folder.iterdir()}
    if SAVED_MODEL not in parts or not parts <= SAVED_MODEL_PARTS:
        return False
    return (folder / SAVED_MODEL_RECORD).is_file()


def _named(path) -> tuple[pathlib.Path, Runtime]:
    """Return the file or folder that a path names, and what runs it.

    Who asks for an `ExportedModel` of a folder names it as one.
    """
    path = pathlib.Path(path)
    check_regular(path)
    runtime = runtime_of(path)
    if path.name == SAVED_MODEL:
        path = path.parent
    if (path / SAVED_MODEL).is_file():
        runtime = RUNTIMES[""]
    if runtime is None or not path.exists():
        raise ValueError(
            f"{str(path)!r} is no exported model. Expected a file or "
            f"folder of {', '.join(x.name for x in RUNTIMES.values())}."
        )
    return path, runtime


def read_record(path: str | os.PathLike) -> dict[str, Any]:
    """Read the record of an exported model; nothing of the file is run.

    Raises:
        ValueError: when it has none, a damaged one, or one of a model that
            takes more memory than there is.
    """
    path, runtime = _named(path)
    with naming(runtime, path):
        text = runtime.record(path)
    return checked_record(text, path)


def parts_of(path: str | os.PathLike) -> dict[str, dict]:
    """Return size and SHA-256 of each file that a record stands apart from."""
    path, runtime = _named(path)
    found = {}
    for name, part in runtime.parts(path).items():
        with part.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        found[name] = {"bytes": part.stat().st_size, "sha256": digest}
    return found


def _check_parts(path, runtime, record):
    """Refuse files that are not those which the record was written for."""
    known, found = record.get("parts", {}), runtime.parts(path)
    sizes = {x: part.stat().st_size for x, part in found.items()}
    same = sizes == {x: about["bytes"] for x, about in known.items()}
    if not same or parts_of(path) != known:
        raise ValueError(
            f"The record in {str(path)!r} is of other files than lie there: "
            "their sizes and checksums differ. Export the model again."
        )


def check_installed(runtime: Runtime) -> None:
    """Raises a ValueError with what to install where a runtime is missing."""
    try:
        importlib.import_module(runtime.module)
    except ModuleNotFoundError as error:
        raise ValueError(
            f"{runtime.name} is not installed: pip install {runtime.install}"
        ) from error


def checked_record(text: str | None, path: os.PathLike) -> dict[str, Any]:
    """Parse the record in a text; refuse one that is none of ours."""
    try:
        record = json.loads(text or "null")
    except (ValueError, RecursionError):
        record = None
    if record is None:
        raise ValueError(NOT_OURS.format(str(path)))
    if not isinstance(record, dict):
        record = {}
    wrong = [name for name, fits in FIELDS.items() if not fits(record)]
    if wrong:
        raise ValueError(
            f"The record in {str(path)!r} is damaged: {', '.join(wrong)}. "
            "Export the model again."
        )
    _check_room(record, path)
    return record


def _check_room(record, path):
    """Refuse a model whose input alone takes more memory than is free."""
    shape, config = record["input"]["shape"], record["config"]
    sides = shape[1:3] if shape[1] else config["image_size"]
    needed = math.prod((shape[0] or 1, *sides, shape[3])) * FLOAT32
    if short := shortage(needed):
        raise ValueError(
            f"The record in {str(path)!r} says that it takes images of "
            f"{sides[0]}x{sides[1]} pixels, {shape[0] or 1} at a time: "
            f"{short}. Export the model with another size or batch."
        )


def _is_length(value, most=LARGEST_SIDE):
    return type(value) is int and 0 < value <= most


def _is_pair(value):
    return (
        isinstance(value, list)
        and len(value) == 2
        and all(_is_length(x) for x in value)
    )


def _is_input(record):
    found = record.get("input")
    shape = found.get("shape") if isinstance(found, dict) else None
    if not isinstance(shape, list) or len(shape) != 4:
        return False
    rows, *sides, channels = shape
    free = sides == [None, None]
    return (
        (rows is None or _is_length(rows, LARGEST_BATCH))
        and (free or _is_pair(sides))
        and _is_length(channels, MOST_CHANNELS)
    )


def _is_config(record):
    """Return whether what is read of a config is what it should be."""
    config = record.get("config")
    if not isinstance(config, dict):
        return False
    count = config.get("num_classes")
    scaled = (config.get(x) for x in ("pixel_mean", "pixel_std"))
    return (
        (count == 0 or _is_length(count, MOST_CLASSES))
        and type(count) is int
        and _is_pair(config.get("image_size"))
        and isinstance(config.get("include_preprocessing"), bool)
        and isinstance(config.get("classifier_activation", 0), str | None)
        and all(x is None or _are_numbers(x) for x in scaled)
    )


def _are_numbers(value):
    return isinstance(value, list) and all(
        type(x) in (int, float) and math.isfinite(x) for x in value
    )


def _is_output(record):
    found = record.get("output", {"shape": []})
    shape = found.get("shape") if isinstance(found, dict) else None
    return isinstance(shape, list) and all(
        x is None or type(x) is int for x in shape
    )


def _are_parts(record):
    parts = record.get("parts", {})
    return isinstance(parts, dict) and all(
        isinstance(x, dict) and type(x.get("bytes")) is int
        for x in parts.values()
    )


def _are_class_names(record):
    names = record.get("class_names")
    return (
        isinstance(names, list)
        and len(names) <= MOST_CLASSES
        and all(isinstance(x, str) for x in names)
    )


def _has(name, kind):
    return lambda record: isinstance(record.get(name), kind)


# Field of a record -> whether a record has it as it should be.
FIELDS: dict[str, Callable[[dict], bool]] = {
    **{x: _has(x, str) for x in ("format", "precision", "model")},
    "batch": lambda record: (
        record.get("batch") == "any"
        or _is_length(record.get("batch"), LARGEST_BATCH)
    ),
    "config": _is_config,
    "input": _is_input,
    "output": _is_output,
    "preprocessing": _has("preprocessing", dict),
    "class_names": _are_class_names,
    "parts": _are_parts,
    "activation": lambda x: x.get("activation") in ACTIVATIONS,
    "problem": lambda x: x.get("problem", "classification") in [*PROBLEMS],
}


# --- The text of a record, and opening ---


def _record_in_onnx(path):
    """Return the metadata of a ModelProto, past its graph."""
    from keras_vit.io.protobuf import messages

    with path.open("rb") as file:
        size = path.stat().st_size
        for count, (field, start, length) in enumerate(messages(file, 0, size)):
            if count > MOST_FIELDS:
                raise ValueError("it is no ONNX file.")
            if field == ONNX_METADATA and length <= LARGEST_RECORD:
                pair = dict(
                    (number, (first, found))
                    for number, first, found in messages(file, start, length)
                )
                if {1, 2} <= pair.keys():
                    key, value = (_part(file, *pair[x]) for x in (1, 2))
                    if key == RECORD:
                        return value
    return None


def _part(file, start, size):
    file.seek(start)
    return file.read(size).decode()


def _open_onnx(path, record):
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(
        path, options, providers=onnxruntime.get_available_providers()
    )
    name = record["input"]["name"]
    return lambda images: session.run([OUTPUT], {name: images})[0]


# Precision -> what OpenVINO computes in by a hint; of int8 the rest is in
# what it finds best.
HINTS = {"float32": "f32", "float16": "f32", "bfloat16": "bf16"}
# What processors name products of 8 bits with sums of 32, or have with them.
VNNI = {"avx512_vnni", "avx_vnni", "amx_int8", "asimddp"}


def _record_in_xml(path):
    """Return the record in the notes of an OpenVINO file, building no tree."""
    from xml.parsers import expat

    if path.stat().st_size > LARGEST_XML:
        raise ValueError(f"it is larger than {LARGEST_XML:,} bytes.")
    found, place = [], []

    def start(name, attributes):
        place.append(name)
        if len(place) == 3 and place[1:] == ["rt_info", OPENVINO_RECORD]:
            found.append(attributes.get("value"))

    parser = expat.ParserCreate()
    parser.StartElementHandler = start
    parser.EndElementHandler = lambda name: place.pop()
    with path.open("rb") as file:
        parser.ParseFile(file)
    return found[0] if found else None


def _weights_beside(path):
    weights = path.with_suffix(".bin")
    return {".bin": weights} if weights.is_file() else {}


def _open_openvino(path, record):
    import openvino

    hint = HINTS.get(record["precision"])
    options = {"INFERENCE_PRECISION_HINT": hint} if hint else {}
    if record.get("needs_vnni") and has_vnni() is False:
        warnings.warn(
            f"{path.name} was calibrated for a processor that sums 8-bit "
            "products in 32 bits (VNNI). Sums of this one may overflow: "
            "export the model again here.",
            stacklevel=2,
        )
    core = openvino.Core()
    compiled = core.compile_model(core.read_model(path), "CPU", options)
    return lambda images: compiled([images])[0]


def has_vnni() -> bool | None:
    """Return whether the processor sums 8-bit products in 32 bits, or None."""
    flags = cpu_flags()
    return not VNNI.isdisjoint(flags) if flags else None


def _open_litert(path, record):
    with path.open("rb") as file:
        if file.read(8)[4:] != b"TFL3":  # What fails to open fails to close.
            raise ValueError("it does not begin as a file of LiteRT.")
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(
        model_path=str(path), num_threads=os.cpu_count() or 1
    )
    taken = interpreter.get_input_details()[0]["index"]
    given = interpreter.get_output_details()[0]["index"]
    shapes = []  # that memory was taken for; one at most

    def run(images):
        if shapes != [images.shape]:
            interpreter.resize_tensor_input(taken, images.shape)
            interpreter.allocate_tensors()
            shapes[:] = [images.shape]
        interpreter.set_tensor(taken, images)
        interpreter.invoke()
        return interpreter.get_tensor(given)

    return run


def _record_in_folder(path):
    beside = path / SAVED_MODEL_RECORD
    if not beside.is_file() or beside.stat().st_size > LARGEST_RECORD:
        return None
    return beside.read_text(encoding="utf-8")


def _parts_of_folder(path):
    """Return the files of a SavedModel but for what servers add to it."""
    names = {x.relative_to(path): x for x in path.rglob("*") if x.is_file()}
    return {
        name.as_posix(): part
        for name, part in names.items()
        if name.parts[0] != SAVED_MODEL_EXTRA
    }


def _open_saved_model(path, record):
    import tensorflow as tf

    model = tf.saved_model.load(str(path))

    def run(images):  # The signature does not keep its model alive.
        signature = model.signatures["serving_default"]
        return signature(**{INPUT: tf.constant(images)})[OUTPUT].numpy()

    return run


def _open_stablehlo(path, record):
    import jax

    exported = jax.export.deserialize(bytearray(path.read_bytes()))
    compute = jax.jit(exported.call)
    # Not JAX's own memory, to which nothing can be written.
    return lambda images: np.array(compute(images))


def _open_pt2(path, record):
    import torch

    with _without_pickle():
        module = torch.export.load(str(path)).module()

    def run(images):
        with torch.inference_mode():
            return module(torch.from_numpy(images)).float().numpy()

    return run


@contextlib.contextmanager
def _without_pickle():
    """Has torch refuse objects that are no tensors, which run as they load."""
    name = "TORCH_FORCE_WEIGHTS_ONLY_LOAD"
    before = os.environ.get(name)
    os.environ[name] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


def _record_in_zip(path):
    """Read the record of a zip, or of a file with one appended."""
    if not zipfile.is_zipfile(path):
        return None
    with zipfile.ZipFile(path) as file:
        for entry in file.infolist():
            name = entry.filename.split("/")
            ours = name[-2:] in ([RECORD], ["extra", RECORD])
            if ours and entry.file_size <= LARGEST_RECORD:
                return file.read(entry).decode()
    return None


# How the name of a file ends, "" for a folder.
RUNTIMES: dict[str, Runtime] = {
    ".onnx": Runtime(
        *("ONNX Runtime", "onnxruntime", "onnxruntime"),
        _record_in_onnx,
        _open_onnx,
    ),
    ".xml": Runtime(
        *("OpenVINO", "openvino", "openvino"),
        _record_in_xml,
        _open_openvino,
        _weights_beside,
    ),
    ".tflite": Runtime(
        *("LiteRT", "ai_edge_litert", "ai-edge-litert"),
        _record_in_zip,
        _open_litert,
    ),
    "": Runtime(
        *("TensorFlow", "tensorflow", "tensorflow"),
        _record_in_folder,
        _open_saved_model,
        _parts_of_folder,
    ),
    ".stablehlo": Runtime("JAX", "jax", "jax", _record_in_zip, _open_stablehlo),
    ".pt2": Runtime("torch", "torch", "torch", _record_in_zip, _open_pt2),
}
