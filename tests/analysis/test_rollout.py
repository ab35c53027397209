"""Rollout by hand and against NumPy; the mistakes of public code."""

import keras
import numpy as np
import pytest
from analysis_cases import case, images_of, rolled_out, tiny_model

from keras_vit.analysis import attention_maps, attention_rollout
from keras_vit.analysis.attention_weights import Rollout
from keras_vit.models import Mixer, MixerConfig


def step(*layers, fusion="mean", discard_ratio=0.0, prefix=1):
    """Rows of the rollout of layers of weights (B, H, T, T)."""
    rollout = Rollout(fusion, discard_ratio, prefix)
    carry = None
    for weights in layers:
        weights = keras.ops.convert_to_tensor(np.asarray(weights, "float32"))
        carry = rollout.step(carry, weights)
    return keras.ops.convert_to_numpy(carry)


def test_identity_is_added_rows_divided_and_later_layers_come_first():
    first = [[0.5, 0.5, 0], [0, 1, 0], [0, 0, 1]]
    second = [[0, 0, 1], [0.5, 0.5, 0], [0, 1, 0]]
    # (second + 1) / 2 times (first + 1) / 2.
    wanted = [
        [0.375, 0.125, 0.5],
        [0.1875, 0.8125, 0],
        [0, 0.5, 0.5],
    ]
    np.testing.assert_allclose(step([[first]], [[second]])[0], wanted)


def test_heads_are_fused():
    heads = [[[0.5, 0.5], [0.25, 0.75]], [[0.25, 0.75], [0.5, 0.5]]]
    mean = step([heads])[0]
    np.testing.assert_allclose(mean, [[0.6875, 0.3125], [0.1875, 0.8125]])
    # The maximum has rows of 1.25: with the identity 2.25 in all, by which
    # rows are divided, not columns.
    np.testing.assert_allclose(
        step([heads], fusion="max")[0],
        np.array([[1.5, 0.75], [0.5, 1.75]]) / 2.25,
    )
    np.testing.assert_allclose(
        step([heads], fusion="min")[0],
        np.array([[1.25, 0.5], [0.25, 1.5]]) / 1.75,
    )


# Rows of unequal sums once something is dropped.
WEIGHTS = [[0.1, 0.2, 0.7], [0.05, 0.9, 0.05], [0.3, 0.3, 0.4]]


def test_rows_sum_to_one_after_discarding():
    found = step([[WEIGHTS]], discard_ratio=0.5)
    np.testing.assert_allclose(found.sum(axis=-1), 1, rtol=1e-6)


def test_the_smallest_weights_are_dropped_but_none_of_the_class_token():
    # Of the six below the class token's row the two smallest; the class
    # token's own 0.1, smaller than what is kept, stays.
    found = step([[WEIGHTS]], discard_ratio=0.34)[0]
    kept = np.array([[1.1, 0.2, 0.7], [0, 1.9, 0], [0.3, 0.3, 1.4]])
    np.testing.assert_allclose(
        found, kept / kept.sum(axis=-1, keepdims=True), rtol=1e-6
    )


def test_without_class_token_any_row_may_lose_weights():
    found = step([[WEIGHTS]], discard_ratio=0.34, prefix=0)[0]
    kept = np.array([[1, 0.2, 0.7], [0, 1.9, 0], [0.3, 0.3, 1.4]])
    np.testing.assert_allclose(
        found, kept / kept.sum(axis=-1, keepdims=True), rtol=1e-6
    )


def test_weights_are_dropped_of_each_image_of_the_batch():
    other = np.square(WEIGHTS)  # a lower limit
    both = step([[WEIGHTS], [other]], discard_ratio=0.4)
    alone = [step([[w]], discard_ratio=0.4)[0] for w in (WEIGHTS, other)]
    np.testing.assert_array_equal(both, alone)
    assert np.any(both[1] == 0)


def read_rows(model, expected):
    """Which rows the pooling reads, from the golden arrays."""
    batch, tokens = len(expected["image"]), expected["attention"].shape[-1]
    if model.config.pooling == "token":
        return np.tile(np.eye(tokens)[0], (batch, 1))
    if model.config.pooling == "map":
        return expected["pool_attention"].mean(axis=1)[:, 0]
    return np.full((batch, tokens), 1 / tokens)


@pytest.mark.parametrize(
    "name",
    [
        "vit_tiny_deep",
        "vit_tiny_gap",
        "vit_tiny_bigvision_map",
        "timm_vit_tiny",
        "hybrid_tiny_two_stages",
    ],
)
def test_rollout_is_that_of_the_original_attention(name):
    model, images, expected = case(name)
    found = attention_rollout(model, images)
    rows = rolled_out(expected["attention"], read_rows(model, expected))
    patches = rows[:, model.config.num_prefix_tokens :]
    assert found.shape == (2, *model.config.grid)
    np.testing.assert_allclose(
        found, patches.reshape(found.shape), rtol=0, atol=5e-5
    )


@pytest.mark.parametrize(
    "changes",
    [
        {"channels": 1},
        {"class_token": False, "pooling": "max"},
        {"distillation_token": True, "pooling": "prefix"},
        {"class_token": False, "pooling": "none"},
        {"pooling": "token_and_mean", "register_tokens": 2},
        {"class_token": False, "pooling": "map", "norm_after_pooling": True},
        {"pooling": "attention"},
    ],
    ids=lambda changes: "-".join(changes),
)
def test_any_model_that_is_not_square(changes):
    model = tiny_model(**changes)
    images = images_of(model, 3)
    found = attention_rollout(model, images, batch_size=2)
    maps = attention_maps(model, images)
    prefix = model.config.num_prefix_tokens
    read = np.zeros((3, prefix + 6))
    first = {"prefix": slice(0, 2), "token": slice(0, 1)}
    read[:, first.get(model.config.pooling, slice(None))] = 1
    if model.config.pooling in ("map", "attention"):
        read = pool_rows(model, images)
    if model.config.pooling == "token_and_mean":
        read[:] = [1, 0, 0, *(6 * [1 / 6])]
    read /= read.sum(axis=1, keepdims=True)
    wanted = rolled_out(maps, read)[:, prefix:].reshape(3, 2, 3)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-5)


def pool_rows(model, images):
    tokens = keras.Model(model.input, model.get_layer("pool").input)(images)
    weights = model.get_layer("pool").attention_weights(tokens)
    return keras.ops.convert_to_numpy(weights).mean(axis=1)[:, 0]


def test_options_reach_the_rollout():
    model = tiny_model()
    images = images_of(model)
    kinds = [
        attention_rollout(
            model, images, head_fusion=fusion, discard_ratio=ratio
        )
        for fusion, ratio in (
            ("mean", 0),
            ("max", 0),
            ("min", 0),
            ("mean", 0.9),
        )
    ]
    for i in range(4):
        for j in range(i):
            assert np.abs(kinds[i] - kinds[j]).max() > 1e-3


def test_unknown_fusion():
    with pytest.raises(ValueError, match="head_fusion.*'mean'.*'max'"):
        attention_rollout(tiny_model(), [], head_fusion="median")


@pytest.mark.parametrize("ratio", [-0.1, 1.0])
def test_ratio_out_of_range(ratio):
    with pytest.raises(ValueError, match="below 1"):
        attention_rollout(tiny_model(), [], discard_ratio=ratio)


def test_what_is_no_vision_transformer_is_refused():
    mixer = Mixer(
        MixerConfig(image_size=(8, 8), patch_size=(4, 4), hidden_dim=8)
    )
    with pytest.raises(ValueError, match="needs a VisionTransformer.*Mixer"):
        attention_rollout(mixer, np.zeros((1, 8, 8, 3)))
