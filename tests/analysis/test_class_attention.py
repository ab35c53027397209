"""What a class token reads that comes after the blocks, against timm."""

import keras
import numpy as np
import pytest
from analysis_cases import case, images_of, tiny_model
from reference_cases import TOLERANCE

import keras_vit
from keras_vit.analysis import (
    attention_distance,
    attention_grids,
    attention_maps,
    attention_rollout,
    class_attention_maps,
)
from keras_vit.analysis.attention_weights import attention_overview
from keras_vit.models.configured_model import BlockFeatures

NAME = "timm_vit_tiny_cait"


def shares(weights):
    """What is taken from each key, whatever its sign."""
    return np.abs(weights) / np.abs(weights).sum(axis=-1, keepdims=True)


def test_maps_of_the_class_token_are_those_of_the_original():
    model, images, expected = case(NAME)
    maps = class_attention_maps(model, images, batch_size=1)
    assert maps.shape == (2, 2, 4, 17)
    np.testing.assert_allclose(maps, expected["class_attention"], **TOLERANCE)
    # Not those of a softmax: the weights of talking heads.
    assert expected["attention"].min() < 0


def test_rollout_goes_from_the_class_token_through_the_blocks():
    model, images, expected = case(NAME)
    tokens = expected["attention"].shape[-1]
    product = np.eye(tokens + 1)  # The class token first.
    for layer in shares(expected["attention"]).mean(axis=2):
        step = np.tile(np.eye(tokens + 1), (2, 1, 1))
        step[:, 1:, 1:] = (layer + np.eye(tokens)) / 2
        product = step @ product
    for row in expected["class_attention"].mean(axis=2):
        step = np.tile(np.eye(tokens + 1), (2, 1, 1))
        step[:, 0] = (row + np.eye(tokens + 1)[0]) / 2
        product = step @ product
    found = attention_rollout(model, images)
    wanted = product[:, 0, 1:].reshape(2, 4, 4)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-4)


def test_the_overview_ends_with_the_maps_of_the_class_token():
    model, images, expected = case(NAME)
    overview = attention_overview(model, images)
    rows = expected["class_attention"][..., 1:].reshape(2, 2, 4, 4, 4)
    np.testing.assert_allclose(overview.grids[2:], rows, **TOLERANCE)
    blocks = shares(expected["attention"]).mean(axis=-2)
    for found in (
        overview.grids[:2],
        attention_grids(model, attention_maps(model, images)),
    ):
        np.testing.assert_allclose(
            found, blocks.reshape(rows.shape), rtol=0, atol=1e-4
        )
    assert overview.rollout.shape == (2, 4, 4)
    assert attention_distance(model, images).min() > 0


def test_features_are_those_of_the_patches():
    model, images, expected = case(NAME)
    ((maps, prefix),) = keras_vit.features(model, images, prefix_tokens=True)
    patches = expected["encoded"][:, 1:].reshape(maps.shape)
    np.testing.assert_allclose(maps, patches, **TOLERANCE)
    assert prefix.shape[1] == 0


def test_a_block_is_pooled_by_the_class_token():
    model, images, expected = case(NAME)
    first, last = BlockFeatures(model, [0, 1], pool=True)(images)
    np.testing.assert_allclose(
        keras.ops.convert_to_numpy(last), expected["pre_logits"], **TOLERANCE
    )
    assert np.abs(keras.ops.convert_to_numpy(first - last)).max() > 1e-2


def test_a_model_without_class_attention_has_none():
    model = tiny_model()
    with pytest.raises(ValueError, match="no blocks of class attention"):
        class_attention_maps(model, images_of(model))
