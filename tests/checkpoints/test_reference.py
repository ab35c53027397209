"""Files of every family give the numbers of the family's own code."""

import re

import keras
import numpy as np
import pytest
from arrays import open_tensors, read_arrays
from reference_cases import (
    CASES,
    TOLERANCE,
    compare,
    expected,
    load,
    outputs,
    path_of,
)
from timm_stub import import_timm

KEYS = (
    "logits",
    "pre_logits",
    "encoded",
    "features",
    "neck",
    "patch_embedding",
    "attention",
)
RESIZED = [
    (name, size)
    for name in CASES
    for size in (24, 48, 56)
    if f"resized_{size}_logits" in expected(name)
]


@pytest.mark.parametrize("name", CASES)
def test_file_gives_its_own_numbers(name):
    wanted = dict(expected(name))
    if CASES[name]["family"] == "bit_resnet_v2":
        wanted.pop("encoded", None)
    found = outputs(load(name), wanted["image"])
    compared = compare(found, wanted, KEYS)
    assert "pre_logits" in compared
    assert ("logits" in compared) == ("logits" in wanted)
    assert ("attention" in compared) == ("attention" in wanted)


@pytest.mark.parametrize(("name", "size"), RESIZED)
def test_file_at_another_image_size(name, size):
    wanted = {
        key.removeprefix(f"resized_{size}_"): value
        for key, value in expected(name).items()
        if key.startswith(f"resized_{size}_")
    }
    model = load(name, input_shape=(size, size, 3))
    found = outputs(model, wanted["image"])
    compared = compare(found, wanted, KEYS)
    assert {"logits", "pre_logits", "encoded"} <= set(compared)
    layer = model.get_layer("position_embedding")
    rows = wanted["position_embedding"].shape[1]
    ours = keras.ops.convert_to_numpy(layer.embedding)[:, -rows:]
    np.testing.assert_allclose(ours, wanted["position_embedding"], **TOLERANCE)
    if model.config.position_embedding == "learned":
        assert "resampled  position_embedding" in str(model.load_report)


@pytest.mark.parametrize("name", ["vit_tiny_google", "vit_tiny_augreg"])
def test_new_head_is_zero_and_drops_the_representation(name):
    wanted = expected(name)
    model = load(name, classes=7)
    found = outputs(model, wanted["image"])
    np.testing.assert_allclose(
        found["pre_logits"], wanted["new_head_pre_logits"], **TOLERANCE
    )
    np.testing.assert_array_equal(found["logits"], wanted["new_head_logits"])
    kernel, bias = (
        keras.ops.convert_to_numpy(x)
        for x in model.get_layer("predictions").weights
    )
    np.testing.assert_array_equal(kernel, wanted["new_head_kernel"])
    np.testing.assert_array_equal(bias, wanted["new_head_bias"])
    dropped = "pre_logits/kernel" in read_arrays(path_of(name))
    assert ("pre_logits/kernel" in model.load_report.dropped) == dropped
    assert "predictions/kernel" in model.load_report.fresh


def test_map_pooling_attends_as_in_big_vision():
    wanted = expected("vit_tiny_bigvision_map")
    model = load("vit_tiny_bigvision_map")
    encoded = outputs(model, wanted["image"])["encoded"]
    pool = model.get_layer("pool")
    weights = keras.ops.convert_to_numpy(pool.attention_weights(encoded))
    np.testing.assert_allclose(weights, wanted["pool_attention"], **TOLERANCE)


KEY_BIAS = r".*block_?s?\.?{i}\W.*(key/bias|qkv.bias)|.*{i}\..*key\.bias"


@pytest.mark.parametrize(
    "name",
    [
        "vit_tiny_google",
        "vit_tiny_gap_linen",
        "vit_tiny_deep",
        "hybrid_tiny_google",
        "vit_tiny_bigvision_tok",
        "vit_tiny_bigvision_map",
        "timm_vit_tiny",
        "timm_hybrid_tiny",
        "hf_vit_tiny",
    ],
)
def test_key_bias_which_no_output_shows(name):
    model = load(name)
    file = open_tensors(path_of(name))
    for i in range(model.config.num_layers):
        pattern = KEY_BIAS.replace("{i}", str(i))
        (found,) = (x for x in file.tensors if re.fullmatch(pattern, x))
        theirs = file.read(found)
        if "qkv" in found:
            theirs = np.split(theirs, 3)[1]
        bias = model.get_layer(f"block_{i}").attention.qkv.bias
        ours = keras.ops.convert_to_numpy(bias)
        ours = ours.reshape(model.config.num_heads, 3, -1)[:, 1]
        np.testing.assert_array_equal(ours.ravel(), theirs.ravel())


def test_key_bias_of_attention_pooling():
    model = load("vit_tiny_bigvision_map")
    file = read_arrays(path_of("vit_tiny_bigvision_map"))
    name = "params/MAPHead_0/MultiHeadDotProductAttention_0/key/bias"
    bias = keras.ops.convert_to_numpy(model.get_layer("pool").key_value.bias)
    ours = bias.reshape(model.config.num_heads, 2, -1)[:, 0]
    np.testing.assert_array_equal(ours, file[name])


@pytest.mark.parametrize("place", ["differential", "parallel_differential"])
def test_lambdas_of_which_outputs_show_products(place):
    name = f"timm_vit_tiny_{place}"
    model, file = load(name), open_tensors(path_of(name))
    part = "attn." if place == "differential" else ""
    for i in range(2):
        attention = model.get_layer(f"block_{i}").attention
        theirs = [
            file.read(f"blocks.{i}.{part}lambda_{x}")
            for x in ("q1", "k1", "q2", "k2")
        ]
        ours = keras.ops.convert_to_numpy(attention.lambdas)
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("i", [0, 1])
def test_biases_of_cait_which_no_output_shows(i):
    """Softmax cancels what all keys have in common."""
    name = "timm_vit_tiny_cait"
    model, file = load(name), open_tensors(path_of(name))
    heads = model.get_layer(f"block_{i}").attention
    late = model.get_layer(f"class_block_{i}").attention
    for bias, theirs in (
        (heads.qkv.bias, file.read(f"blocks.{i}.attn.qkv.bias")[32:64]),
        (
            heads.logits_projection.bias,
            file.read(f"blocks.{i}.attn.proj_l.bias"),
        ),
        (
            late.key_value.bias,
            file.read(f"blocks_token_only.{i}.attn.k.bias"),
        ),
    ):
        ours = keras.ops.convert_to_numpy(bias)
        parts = ours.size // theirs.size
        ours = ours.reshape(4, parts, -1)[:, 1 if parts == 3 else 0]
        np.testing.assert_array_equal(ours.ravel(), theirs)


def test_mixer_bias_which_no_output_shows():
    model = load("mixer_tiny_google")
    file = read_arrays(path_of("mixer_tiny_google"))
    for i in range(model.config.num_layers):
        bias = model.get_layer(f"block_{i}").token_mixing.dense_1.bias
        np.testing.assert_array_equal(
            keras.ops.convert_to_numpy(bias),
            file[f"MixerBlock_{i}/token_mixing/Dense_1/bias"],
        )


@pytest.mark.parametrize(
    ("name", "unit"),
    [
        ("timm_hybrid_tiny", "patch_embed.backbone.stages.{}.blocks.0.{}.bias"),
        ("hybrid_tiny_two_stages", "block{}/unit1/{}/bias"),
    ],
)
def test_biases_of_which_outputs_show_the_sum_alone(name, unit):
    model = load(name)
    file = open_tensors(path_of(name))
    timm = name.startswith("timm")
    names = ("norm3", "downsample.norm") if timm else ("gn3", "gn_proj")
    for stage in (1, 2):
        for ours, theirs in zip(("norm3", "shortcut_norm"), names, strict=True):
            beta = model.get_layer(f"stage{stage}_unit1_{ours}").beta
            np.testing.assert_array_equal(
                keras.ops.convert_to_numpy(beta),
                file.read(unit.format(stage - timm, theirs)).ravel(),
            )


@pytest.mark.filterwarnings(  # both in timm
    "ignore:Using a non-tuple sequence", "ignore:torch.searchsorted"
)
@pytest.mark.parametrize("grid", [(6, 4), (3, 7), (9, 9), (1, 2)])
@pytest.mark.parametrize(
    "name",
    [
        "timm_vit_tiny_beit",
        "timm_vit_tiny_relpos_table",
        "timm_vit_tiny_relpos_shared_table",
    ],
)
def test_distances_of_another_grid_are_resampled_as_timm_does(name, grid):
    torch = pytest.importorskip("torch")
    resize = import_timm().layers.resize_rel_pos_bias_table
    small = load(name)
    tables = [x for x in small.weights if x.path.endswith("bias/table")]
    assert len(tables) == (1 if "shared" in name else 2)
    large = load(name, input_shape=(8 * grid[0], 8 * grid[1], 3))
    moved = f"distances in 4x4 -> {grid[0]}x{grid[1]} (geometric)"
    assert moved in str(large.load_report)
    for table in tables:
        (grown,) = (x for x in large.weights if x.path == table.path)
        old, new = map(keras.ops.convert_to_numpy, (table, grown))
        wanted = resize(torch.tensor(old), grid, new.shape)
        np.testing.assert_allclose(new, wanted.numpy(), rtol=0, atol=1e-5)
