"""The parts of the memory by hand; the whole is held in test_xla_memory."""

import dataclasses
import math

import keras
import numpy as np
import pytest

from keras_vit.planning import Settings, count, machine, memory, plan
from keras_vit.planning.estimate import vit_config
from keras_vit.training.optimizers import OPTIMIZERS

B16 = vit_config("ViT_B16")
PARAMETERS = 86_567_656
# Table 1 of the paper: D 768, MLP 3072, 12 layers, 12 heads; 197 tokens.
KERNELS = 12 * (4 * 768**2 + 2 * 768 * 3072)
STREAM, SOFTMAX, MLP = 197 * 768, 12 * 197**2, 197 * 3072


def test_state_in_float32():
    found = memory(B16, Settings(batch=8, precision="float32"))
    assert found.weights == found.gradients == 4 * PARAMETERS
    assert found.optimizer == 2 * 4 * PARAMETERS
    assert found.images == 8 * 224 * 224 * 3 * 4


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_an_optimizer_keeps_what_that_of_keras_keeps(name):
    options = {"momentum": 0.9} if name == "sgd" else {}
    optimizer = OPTIMIZERS[name](**options)
    shapes = {"kernel": (8, 4), "bias": (4,)}
    optimizer.build(
        [keras.Variable(np.zeros(shape), name=x) for x, shape in shapes.items()]
    )
    kept = [math.prod(x.shape) for x in optimizer.variables if x.shape]
    found = memory(B16, Settings(batch=8, optimizer=name)).optimizer
    # Muon's one for a matrix is 2 by the plan, which does not know them.
    assert found / 4 / PARAMETERS == (sum(kept) + 32 * (name == "muon")) / 36


def test_16_bits_need_a_copy_of_the_weights():
    found = memory(B16, Settings(batch=8))
    assert found.weights == (4 + 2) * PARAMETERS


def test_parts_need_a_sum_of_gradients():
    whole = memory(B16, Settings(batch=8))
    parts = memory(B16, Settings(batch=8), parts=4)
    assert parts.optimizer - whole.optimizer == 4 * PARAMETERS
    assert parts.activations == pytest.approx(whole.activations / 4)


def test_data_parallel_divides_the_batch_alone():
    one = memory(B16, Settings(batch=8))
    eight = memory(B16, Settings(batch=64), devices=8)
    assert one == eight


def test_fsdp_divides_kernels_of_the_blocks():
    found = memory(B16, Settings(batch=64), "fsdp", devices=8)
    share = KERNELS / 8 + PARAMETERS - KERNELS
    assert found.optimizer == pytest.approx(8 * share)
    block = count(B16).block_parameters
    assert found.weights == pytest.approx(6 * share + 8 * block)


def test_model_parallel_divides_heads_and_mlps():
    settings = Settings(batch=16, precision="float32", model_axis=4)
    found = memory(B16, settings, "model_parallel", devices=8)
    whole = memory(B16, Settings(batch=8, precision="float32"))
    assert found.weights == pytest.approx(
        4 * (KERNELS / 4 + PARAMETERS - KERNELS)
    )
    assert found.images == whole.images
    assert whole.activations / 4 < found.activations < whole.activations


@pytest.mark.parametrize(
    ("name", "layouts"),  # Of 12 heads, and of 3, which two do not divide.
    [
        ("ViT_B16", ["data_parallel", "fsdp", "model_parallel"]),
        ("ViT_Ti16", ["data_parallel", "fsdp"]),
    ],
)
def test_the_default_axis_divides_the_heads(name, layouts):
    rows = plan(vit_config(name), Settings(batch=8), machine("v5e-8"))
    assert [row.layout for row in rows if row.rematerialize] == layouts


def test_no_axis_of_one_shares_a_layer():
    """As training refuses it."""
    with pytest.raises(ValueError, match="model_axis=1 must be at least 2"):
        memory(vit_config("ViT_Ti16"), Settings(), "model_parallel", devices=8)


@pytest.mark.parametrize(
    ("compiler", "tensors", "tokens"),
    [("keeping", 3, 197), ("fusing", 1, 200)],  # Tiles have eight rows.
)
def test_flash_attention_keeps_no_softmax(compiler, tensors, tokens):
    settings = {"batch": 1, "compiler": compiler}
    explicit = memory(B16, Settings(**settings, attention="explicit"))
    flash = memory(B16, Settings(**settings, attention="flash"))
    # The last block has the scores of one token alone.
    saved = 11 * (tensors * 2 * 12 * tokens**2 - 4 * 12 * tokens)
    # Of what the backward pass works on, the MLP is then the widest.
    saved += 2 * 197 * (3 * 768 + 12 * 197 - 3072)
    assert explicit.activations - flash.activations == saved


def test_tpus_keep_tiles_and_no_weights_of_attention():
    """Eight images more, so that nothing but activations grows."""
    tpu: dict = {"attention": "recomputed", "compiler": "fusing"}
    one, nine = (
        memory(B16, Settings(batch=batch, **tpu)).activations
        for batch in (1, 9)
    )
    # Queries to values and heads as rows of 256 tokens; both inputs of the
    # normalisations and of GELU as columns of 200; one sum in float32 a row.
    block = 2 * 4 * 256 * 768 + 2 * 200 * (2 * 768 + 3072) + 4 * 12 * 200
    # Keys, values and the input of the normalisation.
    last = 2 * 3 * STREAM
    # Scores of a block at a time; patches, the last token.
    working = 2 * 197 * (768 + 3 * 768 + 12 * 197) + 2 * (STREAM + 768)
    assert nine - one == 8 * (11 * block + last + working)


def test_talking_heads_are_not_recomputed():
    talking = vit_config("ViT_B16", talking_heads=True)
    found = [
        memory(talking, Settings(batch=8, attention=x)).activations
        for x in ("explicit", "recomputed", "flash")
    ]
    assert found[0] == found[1] > found[2]


def test_rematerialisation_keeps_the_inputs_of_the_blocks():
    settings = Settings(batch=1)
    whole = memory(B16, settings).activations
    less = memory(B16, settings, rematerialize=True).activations
    # Inputs of normalisations in float32, outputs, queries to values, heads.
    block = 4 * 2 * STREAM + 2 * (2 + 3 + 1) * STREAM
    block += 2 * (3 * SOFTMAX + 3 * MLP)
    # Of the last one the input of a normalisation, its output, keys, values,
    # and the gradients of queries, keys and values twice.
    last = 4 * STREAM + 2 * (1 + 2 + 6) * STREAM
    assert whole - less == 10 * block + last - 12 * 2 * STREAM


def test_larger_of_gradients_and_activations_counts():
    # fsdp of one image: the gradients are the larger.
    found = memory(vit_config("ViT_B32"), Settings(batch=1, attention="flash"))
    assert found.gradients > found.activations
    assert found.total == (
        found.weights + found.optimizer + found.images + found.gradients
    )


def test_fewest_parts_that_fit():
    devices = machine("v5e-8")
    settings = Settings(batch=4096, compiler="fusing")
    usable = 0.9 * 16e9
    for row in plan(B16, settings, devices):
        assert row.parts is not None
        options = {"devices": 8, "rematerialize": row.rematerialize}
        need = [
            memory(B16, settings, row.layout, parts=parts, **options).total
            for parts in (row.parts, max(row.parts // 2, 1))
        ]
        assert need[0] <= usable
        assert row.parts == 1 or need[1] > usable


def test_a_batch_may_be_cut_into_single_images():
    config = dataclasses.replace(B16, image_size=(2048, 2048))
    settings = Settings(batch=2, attention="recomputed")
    parts = [row.parts for row in plan(config, settings, machine("v5e-1"))]
    assert 2 in parts


def test_what_never_fits_has_no_parts():
    huge = vit_config("ViT_G14")
    rows = plan(huge, Settings(batch=8), machine("t4x1"))
    assert [row.parts for row in rows] == [None, None]


def test_one_device_has_one_layout():
    rows = plan(B16, Settings(batch=8), machine("h200x1"))
    assert {row.layout for row in rows} == {"data_parallel"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"precision": "bfloat16"}, "Did you mean 'mixed_bfloat16'"),
        ({"optimizer": "adam"}, "Did you mean 'adamw'"),
        ({"attention": "flsh"}, "Did you mean 'flash'"),
        ({"compiler": "fuse"}, "Did you mean 'fusing'"),
        ({"batch": 0}, "at least 1"),
        ({"model_axis": -1}, "at least 1"),
    ],
)
def test_wrong_settings(options, message):
    with pytest.raises(ValueError, match=message):
        Settings(**options)


@pytest.mark.parametrize(
    ("batch", "options", "message"),
    [
        (9, {"devices": 8}, "multiple of 8"),
        (8, {"devices": 8, "parts": 2}, "multiple of 16"),
        (8, {"layout": "fdsp"}, "Did you mean 'fsdp'"),
        (8, {"layout": "model_parallel", "devices": 3}, "model_axis=2"),
    ],
)
def test_wrong_division(batch, options, message):
    with pytest.raises(ValueError, match=message):
        memory(B16, Settings(batch=batch), **options)
