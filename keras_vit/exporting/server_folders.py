"""The folders of models that inference servers read.

TensorFlow Serving: <model>/<version>/saved_model.pb. Triton:
<model>/config.pbtxt and <model>/<version>/model.onnx, see the model
repository in its user guide.
"""

import pathlib
import warnings
from collections.abc import Callable
from typing import NamedTuple

from keras_vit.exporting.writers import write_record_beside
from keras_vit.io.atomic_files import replacing
from keras_vit.prediction.exported_model import INPUT, OUTPUT

__all__ = ["LAYOUTS", "Layout"]


class Layout(NamedTuple):
    """A server's folder.

    Attributes:
        format: what it holds.
        file: name of the file in its version's folder.
        arrange: puts a file of that name and its record into a folder.
    """

    format: str
    file: str
    arrange: Callable[[pathlib.Path, pathlib.Path, dict], None]


CONFIG = """\
name: "{name}"
backend: "onnxruntime"
max_batch_size: {batch}
input [
  {{ name: "{input}", data_type: TYPE_FP32, dims: [ {dims} ] }}
]
output [
  {{ name: "{output}", data_type: TYPE_FP32, dims: [ {scores} ] }}
]
{batching}"""


def _version(path):
    """Return the next version in a folder: numbers, from 1."""
    versions = [int(x.name) for x in path.glob("*") if x.name.isdecimal()]
    return path / str(max(versions, default=0) + 1)


def _arrange_tensorflow_serving(file, path, record):
    path.mkdir(exist_ok=True)
    file.rename(version := _version(path))
    write_record_beside(version, record)


def _arrange_triton(file, path, record):
    path.mkdir(exist_ok=True)
    version = _version(path)
    rows, *sides = record["input"]["shape"]
    dims = [-1 if x is None else x for x in sides]
    _, *scores = record["output"]["shape"]
    # A server adds the axis of the batch to models that take any.
    config = CONFIG.format(
        name=path.name,
        batch=32 if rows is None else 0,
        input=INPUT,
        output=OUTPUT,
        dims=", ".join(map(str, dims if rows is None else [rows, *dims])),
        scores=", ".join(map(str, scores if rows is None else [rows, *scores])),
        batching="dynamic_batching { }\n" if rows is None else "",
    )
    _write_config(path / "config.pbtxt", config)
    write_record_beside(file, record)
    file.parent.rename(version)


def _write_config(path, config):
    """Write a config, unless there is one, which may be tuned."""
    if not path.exists():
        with replacing(path) as temporary:
            temporary.write_text(config, encoding="utf-8")
    elif path.read_text(encoding="utf-8", errors="replace") != config:
        warnings.warn(
            f"{str(path)!r} is kept as it is. For this model alone it would "
            "be:\n" + config,
            stacklevel=2,
        )


LAYOUTS = {
    "tensorflow_serving": Layout(
        "saved_model", "model", _arrange_tensorflow_serving
    ),
    "triton": Layout("onnx", "model.onnx", _arrange_triton),
}
