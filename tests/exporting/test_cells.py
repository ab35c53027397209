"""Each kind of model in one format, each format in its precisions."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from export_cells import FIELDS, KINDS, cells, model_of
from PIL import Image

import keras_vit
from keras_vit.exporting import FORMATS
from keras_vit.exporting.writers import quantization_of
from keras_vit.prediction import as_classifier

for name in ("ai_edge_litert", "onnx", "onnxruntime", "openvino"):
    pytest.importorskip(name)

# torch's compiler forks when it is imported, of which JAX warns.
pytestmark = pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning"
)
# By precision, and of kinds that are rounded themselves.
ERRORS = {
    "float32": 1e-5,
    "float16": 2e-3,
    "bfloat16": 2e-2,
    "int8": 0.1,
    "int8_weights": 0.02,
    "mixed_bfloat16": 2e-2,
    "mixed_float16": 2e-3,
}
# Each format in each of its precisions, of one kind after the other.
COLUMNS = [
    (format, precision)
    for format, kind in FORMATS.items()
    for precision in kind.precisions
]
# Whose exports went wrong before, in the format where they did; and kinds
# that not all formats have, or that are rounded themselves.
CHOSEN = {
    "BiT": "onnx",
    "hybrid": "openvino",
    "int8": "openvino",
    "int4": "stablehlo",
    "mixed_bfloat16": "litert",
    "mixed_float16": "saved_model",
}
FREE = [x for x in KINDS if x not in ("token", *CHOSEN)]
CELLS = [
    *(
        ("token", format, "float32")
        for format in ("onnx", "openvino", "litert")
    ),
    *((kind, format, "float32") for kind, format in CHOSEN.items()),
    *((kind, *COLUMNS[i % len(COLUMNS)]) for i, kind in enumerate(FREE)),
]


ALONE = ("token_onnx_float32.onnx", "token_openvino_float32.xml")
ALONE += ("token_litert_float32.tflite",)
# Classifies with each file given, in Python and by the command, where neither
# Keras nor a backend can be imported.
WITHOUT_KERAS = """
import contextlib, io, json, sys
for name in ("keras", "jax", "torch", "tensorflow"):
    sys.modules[name] = None
import keras_vit
from keras_vit.cli import main

image, *files = sys.argv[1:]
for file in files:
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        assert main(["predict", file, image, "--format", "json"]) == 0
    found = keras_vit.predict(file, image)[0].classes
    print(json.dumps([found, json.loads(output.getvalue())[0]["classes"]]))
"""


@pytest.fixture(scope="module", autouse=True)
def one_layer():
    """Exporters write each block alike, in half of the time for two."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(FIELDS, "num_layers", 1)
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("files")


@pytest.fixture(scope="module")
def found(folder):
    return cells(CELLS, folder)


@pytest.mark.parametrize("cell", CELLS, ids="-".join)
def test_the_file_gives_the_scores_of_the_model(found, cell):
    check = found[cell]
    assert not isinstance(check, str), check
    kind, _, precision = cell
    rounded = kind if kind.startswith("mixed") else precision
    assert check["relative_error"] <= ERRORS[rounded]


def test_int8_weights_are_of_8_bits(found, folder):
    import onnx

    (cell,) = [x for x in found if x[2] == "int8_weights"]
    graph = onnx.load(folder / f"{'_'.join(cell)}.onnx").graph
    weights = {x.name for x in graph.initializer if len(x.dims) > 1}
    products = [x for x in graph.node if x.op_type == "MatMulNBits"]
    bits = [y.i for x in products for y in x.attribute if y.name == "bits"]
    assert set(bits) == {8}
    # None of float32 is left: attention multiplies activations.
    plain = [x for x in graph.node if x.op_type == "MatMul"]
    assert not weights & {name for x in plain for name in x.input}


def test_openvino_splits_the_product_of_each_attention(found, folder):
    """Slices of it would be a copy each."""
    import openvino

    model = openvino.Core().read_model(folder / "token_openvino_float32.xml")
    nodes = [x.get_type_name() for x in model.get_ordered_ops()]
    blocks = nodes.count("Gelu")
    assert blocks and nodes.count("Split") == blocks
    assert nodes.count("Slice") <= 2  # the class token of the last block


def test_every_kind_and_every_column_is_there():
    assert {kind for kind, _, _ in CELLS} == set(KINDS)
    assert {(format, precision) for _, format, precision in CELLS} == set(
        COLUMNS
    )


@pytest.mark.once
@pytest.mark.parametrize("backend", ["tensorflow", "jax", "torch"])
def test_the_page_has_every_kind_and_every_precision(backend):
    """As tools/make_export_matrix.py measures them."""
    path = Path(__file__).parents[2] / "docs/results" / f"export_{backend}.json"
    measured = [tuple(x[:3]) for x in json.loads(path.read_text("utf-8"))]
    every = [(x, name, "float32") for x in KINDS for name in FORMATS]
    every += [("token", *column) for column in COLUMNS]
    assert sorted(measured) == sorted(set(every))


def test_quantised_kinds_are_quantised():
    found = {x: quantization_of(model_of(x)) for x in ("token", "int8", "int4")}
    assert found == {"token": None, "int8": "int8", "int4": "int4"}


def test_weights_of_the_kinds_are_not_where_they_start():
    weights = model_of("DINOv3").get_weights()
    assert all(np.ptp(x) > 0.01 for x in weights if x.size > 1)


def test_a_file_is_classified_with_its_runtime_alone(found, folder):
    pixels = np.random.default_rng(0).integers(0, 256, (20, 30, 3))
    Image.fromarray(pixels.astype("uint8")).save(folder / "image.png")
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_KERAS, "image.png", *ALONE],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    model = as_classifier(model_of("token"))
    (wanted,) = keras_vit.predict(model, str(folder / "image.png"))
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(lines) == len(ALONE)
    for in_python, by_command in lines:
        printed = [(x["class"], x["probability"]) for x in by_command]
        for classes in (in_python, printed):
            assert [x for x, _ in classes] == [x for x, _ in wanted.classes]
            given, scores = (
                [share for _, share in x] for x in (classes, wanted.classes)
            )
            np.testing.assert_allclose(given, scores, atol=1e-6)
