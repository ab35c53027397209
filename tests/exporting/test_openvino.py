"""What is done to models on their way to OpenVINO."""

import numpy as np
import pytest

from keras_vit.exporting.writers import _avoid_slices
from keras_vit.io import checks
from keras_vit.prediction.exported_model import ExportedModel

openvino = pytest.importorskip("openvino")

B, N, H, D_HEAD = 2, 5, 3, 4
DIM = H * D_HEAD


def parts_of(thirds: int, has_bias: bool):
    """x (B, N, DIM) and parts of a product of it, as torch exports them."""
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
    return x, parts


def graph(thirds: int, has_bias: bool):
    x, parts = parts_of(thirds, has_bias)
    return openvino.Model(parts, [x], "parts")


def kinds(model):
    return [x.get_type_name() for x in model.get_ordered_ops()]


def compared(model, x, apart=False):
    """What a model gives before and after, each a list."""
    exact = {"INFERENCE_PRECISION_HINT": "f32"}
    before = openvino.compile_model(model, "CPU", exact)([x])
    expected = [before[i].copy() for i in range(len(before))]
    _avoid_slices(model, apart)
    after = openvino.compile_model(model, "CPU", exact)([x])
    return expected, [after[i] for i in range(len(after))]


@pytest.mark.parametrize(("apart", "counts"), [(0, [1, 1]), (1, [3, 0])])
@pytest.mark.parametrize("has_bias", [True, False])
def test_query_key_and_value_are_no_slices(has_bias, apart, counts):
    """Parts of one transpose, or products of their own."""
    model = graph(3, has_bias)
    x = np.random.default_rng(1).normal(size=(B, N, DIM)).astype("float32")
    expected, found = compared(model, x, bool(apart))
    assert "Slice" not in kinds(model)
    assert [kinds(model).count(x) for x in ("MatMul", "Split")] == counts
    for x, y in zip(found, expected, strict=True):
        assert x.shape == (B, N, H, D_HEAD)
        np.testing.assert_allclose(x, y, atol=1e-5)


@pytest.mark.parametrize("readers", [1, 2])
def test_factors_of_the_query_alone_go_into_its_weights(readers):
    """Where nothing else reads it."""
    from openvino import opset13 as opset

    image, parts = parts_of(3, has_bias=True)
    heads = [opset.transpose(x, [0, 2, 1, 3]) for x in parts]
    attention = opset.scaled_dot_product_attention(
        opset.multiply(heads[0], np.float32(0.6)),
        *heads[1:],
        opset.constant(np.float32(0)),
        opset.constant(np.float32(0.7)),
    )
    outputs = [attention, heads[0]][:readers]
    model = openvino.Model(outputs, [image], "attention")
    x = np.random.default_rng(1).normal(size=(B, N, DIM)).astype("float32")
    expected, found = compared(model, x)
    for x, y in zip(found, expected, strict=True):
        np.testing.assert_allclose(x, y, atol=1e-5)
    nodes = {x.get_type_name(): x for x in model.get_ordered_ops()}
    scale = nodes["ScaledDotProductAttention"].input_value(4).get_node()
    assert scale.get_data() == np.float32(1 if readers == 1 else 0.7)
    assert ("Multiply" in nodes) == (readers == 2)


def test_other_parts_of_products_stay_as_they_are():
    model = graph(4, has_bias=True)  # Two queries for each key, say.
    before = kinds(model)
    _avoid_slices(model, apart=False)
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
