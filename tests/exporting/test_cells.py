"""Each kind of model in one format, each format in its precisions."""

import numpy as np
import pytest
from export_cells import KINDS, cells, model_of

from keras_vit.exporting import FORMATS
from keras_vit.exporting.writers import quantization_of

# By precision, and of kinds that are rounded themselves.
ERRORS = {
    "float32": 1e-5,
    "float16": 2e-3,
    "bfloat16": 2e-2,
    "int8": 5e-2,
    "mixed_bfloat16": 2e-2,
    "mixed_float16": 2e-3,
}
PRECISIONS = [
    ("token", format, precision)
    for format, kind in FORMATS.items()
    for precision in kind.precisions
]
# Whose exports went wrong before, in the format where they did.
CHOSEN = {"BiT": "onnx", "hybrid": "openvino", "int8": "openvino"}
FREE = [x for x in KINDS if x not in ("token", "int4", *CHOSEN)]
PAIRS = [
    *((kind, format, "float32") for kind, format in CHOSEN.items()),
    ("int4", "stablehlo", "float32"),
    *(
        (kind, list(FORMATS)[i % len(FORMATS)], "float32")
        for i, kind in enumerate(FREE)
    ),
]


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    return cells([*PRECISIONS, *PAIRS], tmp_path_factory.mktemp("files"))


@pytest.mark.parametrize("cell", [*PRECISIONS, *PAIRS], ids="-".join)
def test_the_file_gives_the_scores_of_the_model(found, cell):
    check = found[cell]
    assert not isinstance(check, str), check
    kind, _, precision = cell
    rounded = kind if kind.startswith("mixed") else precision
    assert check["relative_error"] <= ERRORS[rounded]


def test_every_kind_and_every_format_is_there():
    assert {x for x, _, _ in PAIRS} | {"token"} == set(KINDS)
    assert {x for _, x, _ in PAIRS} == set(FORMATS)


def test_quantised_kinds_are_quantised():
    found = {x: quantization_of(model_of(x)) for x in ("token", "int8", "int4")}
    assert found == {"token": None, "int8": "int8", "int4": "int4"}


def test_weights_of_the_kinds_are_not_where_they_start():
    weights = model_of("DINOv3").get_weights()
    assert all(np.ptp(x) > 0.01 for x in weights if x.size > 1)
