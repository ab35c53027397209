"""Write models in a format, with their records inside and beside the file.

A program, run in a process of its own:

    KERAS_BACKEND=torch python -m keras_vit.exporting.writers JOBS.json

JOBS.json has a list of jobs: format, precision, batch (an int, or None for
any), path (to write), model (a `.keras` file), geometry (the fields of a
`Geometry` to resize by, or None), calibration (a `.npy` file of inputs, or
None) and answer (a file that gets the error, or nothing).

Axes: B images of a batch, H and W height and width, C channels.
"""

import json
import os
import pathlib
import sys
import tempfile
import traceback
import warnings
import zipfile
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from keras_vit.data import PreprocessingConfig
from keras_vit.data.resizing import Geometry, tensor_crop
from keras_vit.io.atomic_files import replacing
from keras_vit.layers.standardized_conv import StandardizedConv2D
from keras_vit.models.configured_model import remade
from keras_vit.prediction.exported_model import (
    INPUT,
    OPENVINO_RECORD,
    OUTPUT,
    RECORD,
    SAVED_MODEL_RECORD,
    has_vnni,
    parts_of,
)
from keras_vit.runtime.workarounds import sublayers
from keras_vit.text.tower import TextTransformer

__all__ = [
    "LAYOUTS",
    "Layout",
    "embed",
    "main",
    "write_record_beside",
]


def main(jobs: Sequence[dict]) -> None:
    """Writes each job's file; what goes wrong is in its answer."""
    warnings.simplefilter(
        "ignore"
    )  # The exporters' own; the result is checked.
    for job in jobs:
        answer = ""
        try:
            model = rebuilt(job["model"], job["format"], job["precision"])
            # The exporter to ONNX takes numbers below 1e-8 for zeros, such as
            # what is added to the variance of a kernel.
            for layer in sublayers(model):
                if isinstance(layer, StandardizedConv2D):
                    layer.fold()
            if options := job["geometry"]:
                config = PreprocessingConfig(**options.pop("config"))
                geometry = Geometry(**options, config=config)
                model = WithResizing(model, geometry)
            WRITERS[job["format"]](model, job)
        except Exception as error:  # Each exporter has errors of its own.
            traceback.print_exc()
            line = (str(error).strip() or repr(error)).partition("\n")[0]
            answer = f"{type(error).__name__}: {line}"
        pathlib.Path(job["answer"]).write_text(answer, encoding="utf-8")


# Formats whose bfloat16 is Keras's; OpenVINO computes in it by itself.
COMPUTED = ("saved_model", "stablehlo", "pt2")


def rebuilt(path: str, format: str, precision: str):
    """Load a model in the precision that its export computes in.

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


class WithResizing:
    """A model behind the resizing of its evaluation.

    Args:
        model: from images (B, h, w, C) in [0, 255] to scores.
        geometry: a `Geometry`, how images are resized and cropped.
    """

    def __init__(self, model: Any, geometry: Geometry):
        self.model = model
        self.geometry = geometry
        self.variables = model.variables
        self.input_shape = (None, None, None, geometry.channels)

    def __call__(self, images, training=None):
        return self.model(tensor_crop(images, self.geometry), training=training)


def quantization_of(model) -> str | None:
    """Return how Keras quantized a model, such as "int8", or None."""
    modes = (
        getattr(x.dtype_policy, "quantization_mode", None)
        for x in sublayers(model)
    )
    return next(filter(None, modes), None)


def _input_of(model, job) -> tuple[str, tuple, str]:
    """Return the name, the shape and the dtype of a model's input."""
    shape = (job["batch"], *model.input_shape[1:])
    if isinstance(model, TextTransformer):
        return "token_ids", shape, "int32"
    return INPUT, shape, "float32"


# --- torch: ONNX, OpenVINO, pt2 ---
def _torch_program(model, job):
    """Return the model as a torch module, an example, and its free axes."""
    import torch

    class Program(torch.nn.Module):
        def __init__(self):
            super().__init__()
            # In a function, so that the weights are there once, as constants.
            self.run = lambda image: model(image, training=False).float()

        def forward(self, image):
            return self.run(image)

    _, shape, dtype = _input_of(model, job)
    names = ("batch", "height", "width")
    free = {
        axis: torch.export.Dim(name, min=1)
        for axis, (name, size) in enumerate(zip(names, shape, strict=False))
        if size is None
    }
    # 1 would be taken for fixed, and equal sides for one.
    sizes = [x or free for x, free in zip(shape, (2, 48, 40, 3), strict=False)]
    example = torch.zeros(sizes, dtype=getattr(torch, dtype))
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
    if job["precision"] == "int8_weights":
        _round_weights(path)


def _write_plain_onnx(model, job):
    import onnx
    import torch

    program, example, free = _torch_program(model, job)
    with torch.no_grad():
        exported: Any = torch.onnx.export(
            program,
            example,
            dynamo=True,
            input_names=[_input_of(model, job)[0]],
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
    constants = {
        x.name: onnx.numpy_helper.to_array(x)
        for x in content.graph.initializer
        if not x.dims
    }
    found = [
        x
        for x in content.graph.node
        if x.op_type == "Pad"
        and x.output[0] in pooled
        and not any(constants.get(name) for name in x.input[2:3])
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
    # Signed ones are summed in 16 bits, too few, by processors without VNNI;
    # on those with it one function computes both.
    options = {
        "op_types_to_quantize": ["MatMul", "Gemm"],
        "weight_type": quantization.QuantType.QUInt8,
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

    options["activation_type"] = quantization.QuantType.QUInt8
    quantization.quantize_static(path, path, Images(), **options)


def _round_weights(path):
    """Stores kernels in 8 bits, with a scale for each 128 numbers of a column.

    Scales of whole activations lose the small ones beside outliers, as CLIP's:
    docs/export.md has what each keeps.

    Raises:
        ValueError: when ONNX Runtime is too old to have it.
    """
    import onnx
    import onnxruntime

    try:
        from onnxruntime.quantization import matmul_nbits_quantizer as blocks
    except ImportError as error:
        raise ValueError(
            "precision='int8_weights' needs a newer ONNX Runtime. Received: "
            f"onnxruntime {onnxruntime.__version__}. Install 1.31, or choose "
            "int8."
        ) from error
    rounded = blocks.MatMulNBitsQuantizer(
        onnx.load(path),
        bits=8,
        block_size=128,
        is_symmetric=True,
        accuracy_level=4,
    )
    rounded.process()
    rounded.model.save_model_to_file(path, False)


def _write_openvino(model, job):
    import openvino

    with tempfile.TemporaryDirectory() as folder:
        plain = os.path.join(folder, "model.onnx")
        _write_plain_onnx(model, {**job, "path": plain})
        content = openvino.convert_model(plain)
        quantised = job["precision"] == "int8"
        _avoid_slices(content, apart=quantised)
        if quantised:
            content = _quantized_openvino(content, job["calibration"])
        halve = job["precision"] == "float16"
        openvino.save_model(content, job["path"], compress_to_fp16=halve)


def _avoid_slices(content, apart: bool):
    """Gives query, key and value without slices, each a copy of a third.

    They are parts of one transpose, whose split along the first axis copies
    nothing. Apart, they are products of their own, which is faster in int8 and
    slower otherwise (docs/decisions/exports.md).
    """
    from openvino import opset13 as opset

    nodes = content.get_ordered_ops()
    found = [x for x in map(_third_of_product, nodes) if x is not None]
    products = {x.product.get_friendly_name(): x.product for x in found}
    for name, product in products.items():
        dense: Any = _dense(product.input_value(0).get_node())
        x, kernel, bias = dense
        shape = product.get_output_partial_shape(0)
        heads = [shape[i].get_length() for i in (2, 3, 4)]  # H, 3, d
        kernel, bias = (w.reshape(-1, *heads) for w in (kernel, bias))
        thirds = [x for x in found if x.product.get_friendly_name() == name]
        for third in thirds:
            if third.index == 0:
                factor = _take_factor(third.node)
                kernel[:, :, 0] *= factor
                bias[:, :, 0] *= factor

        def multiplied(kernel, bias, shape, x=x):
            kernel = opset.constant(kernel.reshape(len(kernel), -1))
            result = opset.matmul(x, kernel, False, False)
            result = opset.add(result, bias.ravel())
            # Of zeros it keeps B and N.
            return opset.reshape(result, [0, 0, *shape], special_zero=True)

        if apart:  # each (B, N, H, d)
            shape = [heads[0], heads[2]]
            parts = [
                multiplied(kernel[:, :, i], bias[:, :, i], shape)
                for i in range(3)
            ]
        else:  # each (B, H, N, d)
            kernel, bias = (w.swapaxes(1, 2) for w in (kernel, bias))
            whole = multiplied(kernel, bias, [3, heads[0], heads[2]])
            split = opset.split(opset.transpose(whole, [2, 0, 3, 1, 4]), 0, 3)
            parts = [opset.squeeze(split.output(i), [0]) for i in range(3)]
        for third in thirds:
            result = parts[third.index]
            if third.heads_first == apart:
                result = opset.transpose(result, [0, 2, 1, 3])
            third.node.output(0).replace(result.output(0))


class _Third(NamedTuple):
    """A node that is `product[:, :, :, index]`."""

    node: Any
    product: Any  # a node, (B, N, H, 3, d)
    index: int
    heads_first: bool  # Whether it is (B, H, N, d), or (B, N, H, d).


def _third_of_product(node) -> _Third | None:
    """Find a third of a dense layer, as torch's attention takes them."""
    if not _is(node, "Squeeze"):
        return None
    inputs = _inputs(node.input_value(0).get_node())
    # A slice of one: torch unbinds so.
    if not (_is(node.input_value(0).get_node(), "Slice") and len(inputs) == 5):
        return None
    product, place, _, _, axis = inputs
    if not (_is(axis, "Constant") and _is(place, "Constant")):
        return None
    where = [x % 5 for x in axis.get_data().ravel()]
    heads_first = _is(product, "Transpose") and where == [0]
    if heads_first:
        product, order = _inputs(product)
        if order.get_data().tolist() != [3, 0, 2, 1, 4]:
            return None
    if not (_is(product, "Reshape") and (heads_first or where == [3])):
        return None
    shape = product.get_output_partial_shape(0)
    if len(shape) != 5 or shape[3] != 3:
        return None
    if _dense(product.input_value(0).get_node()) is None:
        return None
    return _Third(node, product, place.get_data().item(), heads_first)


def _dense(node):
    """Return x, W and b of a node `x W + b`; None of another."""
    bias = np.float32(0)
    if _is(node, "Add"):
        node, bias = _inputs(node)
        if not _is(bias, "Constant"):
            return None
        bias = bias.get_data()
    if not _is(node, "MatMul"):
        return None
    x, kernel = node.input_values()
    turned = node.get_attributes()
    if turned["transpose_a"] or not _is(kernel.get_node(), "Constant"):
        return None
    kernel = kernel.get_node().get_data()
    kernel = np.array(kernel.T if turned["transpose_b"] else kernel)
    return x, kernel, np.broadcast_to(bias, (1, 1, kernel.shape[1])).copy()


def _take_factor(query) -> float:
    """Return what a query is multiplied by in the graph, and no longer is."""
    from openvino import opset13 as opset

    total, node, taken = 1.0, query, []
    while len(readers := list(node.output(0).get_target_inputs())) == 1:
        node, place = readers[0].get_node(), readers[0].get_index()
        factor = _inputs(node)[1 - place] if _is(node, "Multiply") else None
        if factor is not None and _is_number(factor):
            total *= factor.get_data().item()
            taken.append((node, place))
        elif not _is(node, "Transpose"):
            break
    if _is(node, "ScaledDotProductAttention") and node.get_input_size() == 5:
        total *= _inputs(node)[4].get_data().item()
        one = opset.constant(np.float32(1))
        node.input(4).replace_source_output(one.output(0))
    for node, place in taken:
        node.output(0).replace(node.input_value(place))
    return total


def _is_number(node):
    return _is(node, "Constant") and node.get_data().size == 1


def _inputs(node):
    return [x.get_node() for x in node.input_values()]


def _is(node, kind):
    return node.get_type_name() == kind


def _quantized_openvino(content, calibration):
    import nncf
    from nncf.quantization.range_estimator import RangeEstimatorParametersSet

    if calibration is None:
        return nncf.compress_weights(
            content, mode=nncf.CompressWeightsMode.INT8_ASYM
        )
    images = np.load(calibration)[:, np.newaxis]  # (N, 1, H, W, C)
    # With its smoothing two classes of three are others.
    smoothing = nncf.AdvancedSmoothQuantParameters(convolution=-1, matmul=-1)
    overflow = nncf.OverflowFix
    return nncf.quantize(
        content,
        nncf.Dataset(images),
        subset_size=len(images),
        model_type=nncf.ModelType.TRANSFORMER,
        advanced_parameters=nncf.AdvancedQuantizationParameters(
            # Sums of other processors overflow unless weights have 7 bits.
            overflow_fix=overflow.DISABLE if has_vnni() else overflow.ENABLE,
            smooth_quant_alphas=smoothing,
            activations_range_estimator_params=(
                RangeEstimatorParametersSet.HISTOGRAM
            ),
        ),
    )


# --- TensorFlow: SavedModel, LiteRT ---
def _tensorflow_program(model, job):
    """Return a module that has the weights once, with a function."""
    import tensorflow as tf

    name, shape, dtype = _input_of(model, job)
    module: Any = tf.Module()
    module.weights = [x.value for x in model.variables]
    module.scores = tf.function(
        lambda image: {
            OUTPUT: tf.cast(model(image, training=False), tf.float32)
        },
        input_signature=[tf.TensorSpec(shape, dtype, name=name)],
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

    _, shape, dtype = _input_of(model, job)
    free = jax.export.symbolic_shape("batch, height, width, channels")
    sizes = [x or free[i] for i, x in enumerate(shape)]
    image = jax.ShapeDtypeStruct(sizes, dtype)
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


def embed(path: pathlib.Path, record: Mapping) -> dict[str, Any]:
    """Write a record into the file or folder that it is about.

    Returns:
        The record, with the checksums of the files that it stands apart from.
    """
    whole = {**record, "parts": parts_of(path)}
    EMBED[record["format"]](path, json.dumps(whole))
    return whole


def write_record_beside(path: pathlib.Path, record: Mapping) -> None:
    """Writes the record for people, and for programs without the runtime."""
    beside = path.with_name(f"{path.name}.{RECORD}")
    text = json.dumps(record, indent=2, ensure_ascii=False)
    with replacing(beside) as temporary:
        temporary.write_text(text + "\n", encoding="utf-8")


def _into_onnx(path, text):
    import onnx

    content = onnx.load(path, load_external_data=False)
    onnx.helper.set_model_props(content, {RECORD: text})
    onnx.save(content, path)


def _into_openvino(path, text):
    from xml.etree import ElementTree

    tree = ElementTree.parse(path)
    root = tree.getroot()
    if (about := root.find("rt_info")) is None:
        about = ElementTree.SubElement(root, "rt_info")
    # It has the path of a file that is gone.
    for part in about.findall("conversion_parameters"):
        about.remove(part)
    ElementTree.SubElement(about, OPENVINO_RECORD, value=text)
    tree.write(path, encoding="utf-8", xml_declaration=True)


def _into_zip(path, text):
    """Appends to a zip, or a zip to what ignores what is behind its end."""
    with zipfile.ZipFile(path, "a") as file:
        names = file.namelist()
        # torch reads other entries of its files in a folder of this name.
        folder = f"{names[0].partition('/')[0]}/extra/" if names else ""
        file.writestr(folder + RECORD, text)


def _into_saved_model(path, text):
    record = path / SAVED_MODEL_RECORD
    record.parent.mkdir(exist_ok=True)
    record.write_text(text, encoding="utf-8")


EMBED: dict[str, Callable[[pathlib.Path, str], None]] = {
    "onnx": _into_onnx,
    "openvino": _into_openvino,
    "litert": _into_zip,
    "saved_model": _into_saved_model,
    "stablehlo": _into_zip,
    "pt2": _into_zip,
}


class Layout(NamedTuple):
    """The folder that an inference server reads.

    TensorFlow Serving: <model>/<version>/saved_model.pb. Triton:
    <model>/config.pbtxt and <model>/<version>/model.onnx, see the model
    repository in its user guide.

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


if __name__ == "__main__":
    main(json.loads(pathlib.Path(sys.argv[1]).read_text(encoding="utf-8")))
