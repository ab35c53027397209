"""Writes models in a format: a program, run in a process of its own.

    KERAS_BACKEND=torch python -m keras_vit.exporting.writers JOBS.json

JOBS.json has a list of jobs: format, precision, batch (an int, or None for
any), path (to write), model (a `.keras` file), calibration (a `.npy` file of
inputs, or None) and answer (a file that gets the error, or nothing).

Axes: B images of a batch, H and W height and width, C channels.
"""

import json
import os
import pathlib
import sys
import tempfile
import traceback
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from keras_vit.models.configured_model import remade
from keras_vit.prediction.exported_model import INPUT, OUTPUT
from keras_vit.workarounds import sublayers

__all__ = ["main"]


def main(jobs: Sequence[dict]) -> None:
    """Writes each job's file; what goes wrong is in its answer."""
    warnings.simplefilter(
        "ignore"
    )  # The exporters' own; the result is checked.
    for job in jobs:
        answer = ""
        try:
            model = rebuilt(job["model"], job["format"], job["precision"])
            WRITERS[job["format"]](model, job)
        except Exception as error:  # Each exporter has errors of its own.
            traceback.print_exc()
            line = (str(error).strip() or repr(error)).partition("\n")[0]
            answer = f"{type(error).__name__}: {line}"
        pathlib.Path(job["answer"]).write_text(answer, encoding="utf-8")


# Formats whose bfloat16 is Keras's; OpenVINO computes in it by itself.
COMPUTED = ("saved_model", "stablehlo", "pt2")


def rebuilt(path: str, format: str, precision: str):
    """The model of a file in the precision that its export computes in.

    Keras's int8 and int4 models stay as they are.
    """
    import keras

    model = keras.saving.load_model(path)
    if quantization_of(model):
        return model
    mixed = precision == "bfloat16" and format in COMPUTED
    # No kernels of an accelerator, and nothing to compute again.
    plain = {
        name: value
        for name, value in (
            ("flash_attention", False),
            ("rematerialize", False),
        )
        if hasattr(model.config, name)
    }
    return remade(
        model,
        {x.path: keras.ops.convert_to_numpy(x) for x in model.weights},
        dtype="mixed_bfloat16" if mixed else "float32",
        **plain,
    )


def quantization_of(model) -> str | None:
    """How Keras quantised a model, such as "int8"; None if it did not."""
    modes = (
        getattr(x.dtype_policy, "quantization_mode", None)
        for x in sublayers(model)
    )
    return next(filter(None, modes), None)


# --- torch: ONNX, OpenVINO, pt2 ---


def _torch_program(model, job):
    """The model as a torch module, an example, and which axes are free."""
    import torch

    class Program(torch.nn.Module):
        def __init__(self):
            super().__init__()
            # In a function, so that the weights are there once, as constants.
            self.run = lambda image: model(image, training=False).float()

        def forward(self, image):
            return self.run(image)

    rows = job["batch"] or 2  # 1 would be taken for fixed.
    example = torch.zeros((rows, *model.input_shape[1:]))
    free = None if job["batch"] else {0: torch.export.Dim("batch", min=1)}
    return Program().eval(), (example,), {INPUT: free} if free else None


def _write_pt2(model, job):
    import torch

    program, example, free = _torch_program(model, job)
    with torch.no_grad():
        exported = torch.export.export(
            program, example, dynamic_shapes=free, strict=False
        )
    torch.export.save(exported, job["path"])


def _write_onnx(model, job):
    import onnx

    _write_plain_onnx(model, job)
    path = job["path"]
    if job["precision"] == "float16":
        content = onnx.load(path)
        _halve_weights(content)
        onnx.save(content, path)
    if job["precision"] == "int8":
        _quantize_onnx(path, job["calibration"])


def _write_plain_onnx(model, job):
    import onnx
    import torch

    program, example, free = _torch_program(model, job)
    with torch.no_grad():
        exported: Any = torch.onnx.export(
            program,
            example,
            dynamo=True,
            input_names=[INPUT],
            output_names=[OUTPUT],
            dynamic_shapes=free,
            verbose=False,
        )
    exported.save(job["path"])
    content = onnx.load(job["path"], load_external_data=False)
    if _keep_padding(content):
        onnx.save(content, job["path"])


def _keep_padding(content):
    """Changes padding with zeros before maxima, which ONNX Runtime drops.

    It fuses the padding into MaxPool, whose own is of minus infinity
    (microsoft/onnxruntime#18136), unless it is of another number than zero.
    """
    import onnx

    # Pad and MaxPool, or Pad, Transpose and MaxPool.
    pooled: set[str] = set()
    for kind in ("MaxPool", "Transpose"):
        pooled |= {
            x.input[0]
            for x in content.graph.node
            if x.op_type == kind
            and (kind == "MaxPool" or x.output[0] in pooled)
        }
    found = [
        x
        for x in content.graph.node
        if x.op_type == "Pad" and x.output[0] in pooled
    ]
    for i, node in enumerate(found):
        value = np.array(1e-30, "float32")
        name = f"padding_{i}"
        tensor = onnx.numpy_helper.from_array(value, name)
        content.graph.initializer.append(tensor)
        node.input[:] = [*node.input[:2], name, *node.input[3:]]
    return bool(found)


def _halve_weights(content):
    """Stores matrices in float16; runtimes cast them back when they load."""
    import onnx

    for tensor in content.graph.initializer:
        if tensor.data_type != onnx.TensorProto.FLOAT or len(tensor.dims) < 2:
            continue
        value = onnx.numpy_helper.to_array(tensor)
        if np.abs(value).max(initial=0) > np.finfo("float16").max:
            continue
        name, stored = tensor.name, f"{tensor.name}_half"
        half = onnx.numpy_helper.from_array(value.astype("float16"), stored)
        tensor.CopyFrom(half)
        cast = onnx.helper.make_node(
            "Cast", [stored], [name], to=onnx.TensorProto.FLOAT
        )
        content.graph.node.insert(0, cast)


def _quantize_onnx(path, calibration):
    from onnxruntime import quantization

    # Products of matrices: the convolution of the patches stays as it is.
    options = {
        "op_types_to_quantize": ["MatMul", "Gemm"],
        "weight_type": quantization.QuantType.QInt8,
        "per_channel": True,
    }
    if calibration is None:
        quantization.quantize_dynamic(path, path, **options)
        return

    class Images(quantization.CalibrationDataReader):
        def __init__(self):
            self.images = iter(np.load(calibration))

        def get_next(self):
            image = next(self.images, None)
            return None if image is None else {INPUT: image[np.newaxis]}

    quantization.quantize_static(path, path, Images(), **options)


def _write_openvino(model, job):
    import openvino

    with tempfile.TemporaryDirectory() as folder:
        plain = os.path.join(folder, "model.onnx")
        _write_plain_onnx(model, {**job, "path": plain})
        content = openvino.convert_model(plain)
        if job["precision"] == "int8":
            content = _quantized_openvino(content, job["calibration"])
        halve = job["precision"] == "float16"
        openvino.save_model(content, job["path"], compress_to_fp16=halve)


def _quantized_openvino(content, calibration):
    import nncf

    if calibration is None:
        return nncf.compress_weights(
            content, mode=nncf.CompressWeightsMode.INT8_ASYM
        )
    images = np.load(calibration)[:, np.newaxis]  # (N, 1, H, W, C)
    # Its preset for transformers changes two classes of three.
    return nncf.quantize(
        content,
        nncf.Dataset(images),
        subset_size=len(images),
        advanced_parameters=nncf.AdvancedQuantizationParameters(
            overflow_fix=nncf.OverflowFix.ENABLE
        ),
    )


# --- TensorFlow: SavedModel, LiteRT ---


def _tensorflow_program(model, job):
    """A module that has the weights once, with a function of images."""
    import tensorflow as tf

    shape = (job["batch"], *model.input_shape[1:])
    module: Any = tf.Module()
    module.weights = [x.value for x in model.variables]
    module.scores = tf.function(
        lambda image: {
            OUTPUT: tf.cast(model(image, training=False), tf.float32)
        },
        input_signature=[tf.TensorSpec(shape, tf.float32, name=INPUT)],
    )
    return module


def _write_saved_model(model, job):
    import tensorflow as tf

    module = _tensorflow_program(model, job)
    signatures = {"serving_default": module.scores}
    tf.saved_model.save(module, job["path"], signatures)


def _write_litert(model, job):
    import tensorflow as tf

    module = _tensorflow_program(model, job)
    converter = tf.lite.TFLiteConverter.from_concrete_functions(
        [module.scores.get_concrete_function()], module
    )
    if job["precision"] != "float32":
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
    if job["precision"] == "float16":
        converter.target_spec.supported_types = [tf.float16]
    if job["calibration"] is not None:
        images = np.load(job["calibration"])
        converter.representative_dataset = lambda: (
            {INPUT: image[np.newaxis]} for image in images
        )
    pathlib.Path(job["path"]).write_bytes(converter.convert())


# --- JAX: StableHLO ---


def _write_stablehlo(model, job):
    import jax

    rows = job["batch"] or jax.export.symbolic_shape("batch")[0]
    image = jax.ShapeDtypeStruct((rows, *model.input_shape[1:]), "float32")
    run = jax.jit(lambda image: model(image, training=False).astype("float32"))
    platforms = ("cpu", "cuda", "rocm", "tpu")
    exported = jax.export.export(run, platforms=platforms)(image)
    pathlib.Path(job["path"]).write_bytes(exported.serialize())


WRITERS = {
    "onnx": _write_onnx,
    "openvino": _write_openvino,
    "litert": _write_litert,
    "saved_model": _write_saved_model,
    "stablehlo": _write_stablehlo,
    "pt2": _write_pt2,
}


if __name__ == "__main__":
    main(json.loads(pathlib.Path(sys.argv[1]).read_text(encoding="utf-8")))
