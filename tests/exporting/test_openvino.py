"""What is done to models on their way to OpenVINO."""

import numpy as np
import pytest

from keras_vit.exporting.writers import _separate_products
from keras_vit.io import checks
from keras_vit.prediction.exported_model import ExportedModel

openvino = pytest.importorskip("openvino")

B, N, H, D_HEAD = 2, 5, 3, 4
DIM = H * D_HEAD


def graph(thirds: int, has_bias: bool):
    """`thirds` parts of one product of x (B, N, DIM), as torch exports it."""
    from openvino import opset13 as opset

    random = np.random.default_rng(0)
    width = H * thirds * D_HEAD
    x = opset.parameter([-1, -1, DIM], dtype=np.float32, name="image")
    kernel = random.normal(size=(DIM, width)).astype("float32")
    result = opset.matmul(x, opset.constant(kernel), False, False)
    if has_bias:
        bias = random.normal(size=width).astype("float32")
        result = opset.add(result, opset.constant(bias))
    shape = [0, 0, H, thirds, D_HEAD]
    result = opset.reshape(result, shape, special_zero=True)
    axis = np.array([3])
    parts = [
        opset.squeeze(
            opset.slice(
                result, np.array([i]), np.array([i + 1]), np.array([1]), axis
            ),
            axis,
        )
        for i in range(thirds)
    ]
    return openvino.Model(parts, [x], "parts")


def kinds(model):
    return [x.get_type_name() for x in model.get_ordered_ops()]


@pytest.mark.parametrize("has_bias", [True, False])
def test_query_key_and_value_get_products_of_their_own(has_bias):
    model = graph(3, has_bias)
    x = np.random.default_rng(1).normal(size=(B, N, DIM)).astype("float32")
    exact = {"INFERENCE_PRECISION_HINT": "f32"}
    before = openvino.compile_model(model, "CPU", exact)([x])
    expected = [before[i].copy() for i in range(3)]
    _separate_products(model)
    after = openvino.compile_model(model, "CPU", exact)([x])
    assert "Slice" not in kinds(model)
    assert kinds(model).count("MatMul") == 3
    for i in range(3):
        assert after[i].shape == (B, N, H, D_HEAD)
        np.testing.assert_allclose(after[i], expected[i], atol=1e-5)


def test_other_parts_of_products_stay_as_they_are():
    model = graph(4, has_bias=True)  # Two queries for each key, say.
    before = kinds(model)
    _separate_products(model)
    assert kinds(model) == before


@pytest.mark.parametrize(
    ("words", "warns"),
    [("flags : sse avx2", True), ("flags : avx2 avx_vnni", False), (None, 0)],
)
def test_ranges_of_8_bits_need_their_processor(
    tmp_path, monkeypatch, recwarn, words, warns
):
    info = tmp_path / "cpuinfo"
    if words:
        info.write_text(words)
    monkeypatch.setattr(checks, "CPU_INFO", info)
    path = tmp_path / "model.xml"
    openvino.save_model(graph(3, has_bias=True), path)
    record = {
        "precision": "int8",
        "needs_vnni": True,
        "config": {},
        "input": {"shape": [None, N, DIM]},
    }
    ExportedModel(path, record)
    told = [str(x.message) for x in recwarn if "VNNI" in str(x.message)]
    assert bool(told) == bool(warns)
