"""Models that were exported to other runtimes, opened for prediction.

Axes: B images of a batch, H and W height and width, C channels.
"""

import contextlib
import importlib
import json
import os
import pathlib
import types
import warnings
import zipfile
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from keras_vit.io.checks import cpu_flags

__all__ = ["RECORD", "RUNTIMES", "ExportedModel", "has_vnni", "runtime_of"]

# Name of the record inside a file, and the end of its name beside one.
RECORD = "model.json"
LARGEST_RECORD = 16 * 2**20  # bytes; ImageNet-21k's names take 0.4 MB.
NOT_OURS = (
    "{!r} has no record of keras_vit, so that its preprocessing and classes "
    "are unknown. Export the model with keras_vit.export."
)
INPUT, OUTPUT = "image", "scores"  # Names in every format.
OPENVINO_RECORD = "keras_vit"
SAVED_MODEL_RECORD = f"assets.extra/{RECORD}"
FIELDS: dict[str, type | tuple[type, ...]] = {
    "format": str,
    "precision": str,
    "batch": (int, str),
    "model": str,
    "config": dict,
    "input": dict,
    "preprocessing": dict,
    "class_names": list,
    "activation": str,
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
        resizes: bool, whether the file resizes and crops images to that.

    Raises:
        ValueError: when the file has no record of keras_vit, or its runtime
            is not installed.

    Example:
        >>> ExportedModel("vit.onnx").record["precision"]
        'int8'
    """

    def __init__(self, path: str | os.PathLike, record: dict | None = None):
        path = pathlib.Path(path)
        runtime = runtime_of(path)
        if runtime is None or not path.exists():
            raise ValueError(
                f"{str(path)!r} is no exported model. Expected a file or "
                f"folder of {', '.join(x.name for x in RUNTIMES.values())}."
            )
        check_installed(runtime)
        self.runtime = runtime
        with naming(runtime, path):
            text, start = runtime.open(path)
        self.record = record or checked_record(text, path)
        with naming(runtime, path):
            self._run = start(self.record)
        self.config = types.SimpleNamespace(**self.record["config"])
        self.input_shape = tuple(self.record["input"]["shape"])
        self.resizes = self.input_shape[1] is None
        self.image_size = self.input_shape[1:3]
        if self.resizes:
            self.image_size = tuple(self.config.image_size)

    def predict_on_batch(self, images: np.ndarray) -> np.ndarray:
        """Computes the scores of images (B, H, W, C), of any number."""
        images = np.ascontiguousarray(images, "float32")
        rows = self.input_shape[0]
        if rows is None:
            return np.asarray(self._run(images), "float32")
        padding = [(0, -len(images) % rows), *[(0, 0)] * 3]
        padded = np.pad(images, padding)  # (a multiple of `rows`, H, W, C)
        batches = np.split(padded, len(padded) // rows)
        scores = [np.asarray(self._run(x), "float32") for x in batches]
        return np.concatenate(scores)[: len(images)]


class Runtime(NamedTuple):
    """What runs a format.

    Attributes:
        name: of the runtime, for people.
        module: the Python module.
        install: what pip installs.
        open: from a path to the text of its record, None without one, and a
            function from the record to one from images to scores.
    """

    name: str
    module: str
    install: str
    open: Callable[[pathlib.Path], tuple[str | None, Callable]]


@contextlib.contextmanager
def naming(runtime: Runtime, path: os.PathLike) -> Iterator[None]:
    """Turns the errors of a runtime into a ValueError that names the file."""
    try:
        yield
    except Exception as error:  # Each runtime has errors of its own.
        reason = str(error).strip().partition("\n")[0]
        raise ValueError(
            f"{runtime.name} cannot open {str(path)!r}: {reason}"
        ) from error


def runtime_of(path: str | os.PathLike) -> Runtime | None:
    """Return what runs the file or folder; None for no exported model."""
    path = pathlib.Path(path)
    if (path / "saved_model.pb").is_file():
        return RUNTIMES[""]
    return RUNTIMES.get(path.suffix) if path.suffix else None


def check_installed(runtime: Runtime) -> None:
    """Raises a ValueError with what to install where a runtime is missing."""
    try:
        importlib.import_module(runtime.module)
    except ModuleNotFoundError:
        raise ValueError(
            f"{runtime.name} is not installed: pip install {runtime.install}"
        ) from None


def checked_record(text: str | None, path: os.PathLike) -> dict[str, Any]:
    """Parse the record in a text; refuse one that is none of ours."""
    try:
        record = json.loads(text or "null")
    except (ValueError, RecursionError):
        record = None
    if record is None:
        raise ValueError(NOT_OURS.format(str(path)))
    wrong = [
        name
        for name, kind in FIELDS.items()
        if not isinstance(record, dict)
        or not isinstance(record.get(name), kind)
    ]
    if not wrong and not _fits(record):
        wrong = ["input"]
    if wrong:
        raise ValueError(
            f"The record in {str(path)!r} is damaged: {', '.join(wrong)}. "
            "Export the model again."
        )
    return record


def _fits(record):
    shape = record["input"].get("shape")
    names = all(isinstance(x, str) for x in record["class_names"])
    return names and (
        isinstance(shape, list)
        and len(shape) == 4
        and (shape[1:3] == [None, None] or all(map(_is_length, shape[1:3])))
        and _is_length(shape[3])
        and (shape[0] is None or _is_length(shape[0]))
    )


def _is_length(value):
    return isinstance(value, int) and value > 0


# --- Opening: the text of the record, and from the record to a function ---


def _open_onnx(path):
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(
        path, options, providers=onnxruntime.get_available_providers()
    )
    text = session.get_modelmeta().custom_metadata_map.get(RECORD)
    return (
        text,
        lambda record: lambda images: session.run([OUTPUT], {INPUT: images})[0],
    )


# Precision -> what OpenVINO computes in by a hint; of int8 the rest is in
# what it finds best.
HINTS = {"float32": "f32", "float16": "f32", "bfloat16": "bf16"}
# What processors name products of 8 bits with sums of 32, or have with them.
VNNI = {"avx512_vnni", "avx_vnni", "amx_int8", "asimddp"}


def _open_openvino(path):
    import openvino

    core = openvino.Core()
    model = core.read_model(path)
    ours = model.has_rt_info(OPENVINO_RECORD)
    text = model.get_rt_info(OPENVINO_RECORD).value if ours else None

    def start(record):
        hint = HINTS.get(record["precision"])
        options = {"INFERENCE_PRECISION_HINT": hint} if hint else {}
        if record.get("needs_vnni") and has_vnni() is False:
            warnings.warn(
                f"{path.name} was calibrated for a processor that sums 8-bit "
                "products in 32 bits (VNNI). Sums of this one may overflow: "
                "export the model again here.",
                stacklevel=2,
            )
        compiled = core.compile_model(model, "CPU", options)
        return lambda images: compiled([images])[0]

    return text, start


def has_vnni() -> bool | None:
    """Return whether the processor sums 8-bit products in 32 bits, or None."""
    flags = cpu_flags()
    return not VNNI.isdisjoint(flags) if flags else None


def _open_litert(path):
    from ai_edge_litert.interpreter import Interpreter

    with path.open("rb") as file:
        if file.read(8)[4:] != b"TFL3":  # What fails to open fails to close.
            raise ValueError("it does not begin as a file of LiteRT.")
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

    return _record_in_zip(path), lambda record: run


def _open_saved_model(path):
    import tensorflow as tf

    model = tf.saved_model.load(str(path))

    def run(images):  # The signature does not keep its model alive.
        signature = model.signatures["serving_default"]
        return signature(**{INPUT: tf.constant(images)})[OUTPUT].numpy()

    beside = path / SAVED_MODEL_RECORD
    text = beside.read_text(encoding="utf-8") if beside.is_file() else None
    return text, lambda record: run


def _open_stablehlo(path):
    import jax

    exported = jax.export.deserialize(bytearray(path.read_bytes()))
    return _record_in_zip(path), lambda record: jax.jit(exported.call)


def _open_pt2(path):
    import torch

    module = torch.export.load(str(path)).module()

    def run(images):
        with torch.inference_mode():
            return module(torch.from_numpy(images)).float().numpy()

    return _record_in_zip(path), lambda record: run


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
    ".onnx": Runtime("ONNX Runtime", "onnxruntime", "onnxruntime", _open_onnx),
    ".xml": Runtime("OpenVINO", "openvino", "openvino", _open_openvino),
    ".tflite": Runtime(
        "LiteRT", "ai_edge_litert", "ai-edge-litert", _open_litert
    ),
    "": Runtime("TensorFlow", "tensorflow", "tensorflow", _open_saved_model),
    ".stablehlo": Runtime("JAX", "jax", "jax", _open_stablehlo),
    ".pt2": Runtime("torch", "torch", "torch", _open_pt2),
}
