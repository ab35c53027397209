"""Attention distance by hand and against NumPy, and pixels of patches."""

import math

import numpy as np
import pytest
from analysis_cases import case, images_of, tiny_model

import keras_vit
from keras_vit.analysis import attention_distance, attention_maps, to_pixels
from keras_vit.analysis.attention_weights import patch_distances, patch_pixels
from keras_vit.models import ViTConfig


def uniform(**changes):
    """A model whose tokens attend to all tokens alike."""
    model = tiny_model(image_size=8, **changes)
    for i in range(model.config.num_layers):
        attention = model.get_layer(f"block_{i}").attention
        attention.qkv.kernel.assign(0 * attention.qkv.kernel)
        attention.qkv.bias.assign(0 * attention.qkv.bias)
    return model


def test_four_patches_that_attend_to_all_alike():
    # 4 to the side, 4 down, 4 sqrt(2) across, 0 to itself; a fifth of each,
    # and a fifth is for the class token and stays out.
    model = uniform()
    found = attention_distance(model, images_of(model, 3), batch_size=2)
    np.testing.assert_allclose(
        found, np.full((2, 2), (8 + 4 * math.sqrt(2)) / 5), rtol=1e-6
    )


def test_without_class_token_nothing_is_left_out():
    model = uniform(class_token=False, pooling="mean")
    found = attention_distance(model, images_of(model))
    np.testing.assert_allclose(found, (8 + 4 * math.sqrt(2)) / 4, rtol=1e-6)


def test_distances_of_patches_that_are_not_square():
    # A grid of 2x2 patches of height 2 and width 4.
    wanted = np.array([[0, 4, 2, math.sqrt(20)], [4, 0, math.sqrt(20), 2]])
    found = patch_distances((2, 2), (2, 4))
    np.testing.assert_allclose(found[:2], wanted, rtol=1e-6)


def test_distances_on_a_grid_that_is_not_square():
    found = patch_distances((1, 3), (16, 16))
    assert found.tolist() == [[0, 16, 32], [16, 0, 16], [32, 16, 0]]


@pytest.mark.parametrize(
    ("name", "pixels"),
    [
        ("vit_tiny_augreg", 8),
        ("vit_tiny_gap", 8),
        ("hybrid_tiny_google", 16),
        ("hybrid_tiny_two_stages", 16),
    ],
)
def test_distance_is_that_of_the_original_attention(name, pixels):
    model, images, expected = case(name)
    assert patch_pixels(model.config) == (pixels, pixels)
    attention = expected["attention"].astype("float64")
    columns = model.config.grid[1]
    patches = columns * model.config.grid[0]
    attention = attention[..., -patches:, -patches:]
    wanted = np.zeros(attention.shape[:3])
    for query in range(patches):
        for key in range(patches):
            apart = math.hypot(
                query // columns - key // columns,
                query % columns - key % columns,
            )
            wanted += attention[..., query, key] * apart * pixels / patches
    np.testing.assert_allclose(
        attention_distance(model, images), wanted.mean(axis=1), rtol=1e-4
    )


def test_any_batch_size():
    model = tiny_model()
    images = images_of(model, 3)
    maps = attention_maps(model, images)[..., 1:, 1:]
    wanted = (maps * patch_distances((2, 3), (4, 4))).sum(-1).mean((1, 3))
    for batch_size in (1, 2, 3):
        np.testing.assert_allclose(
            attention_distance(model, images, batch_size=batch_size),
            wanted,
            rtol=1e-5,
        )


@pytest.mark.parametrize(
    ("options", "pixels"),
    [
        ({"patch_size": (16, 8)}, (16, 8)),
        ({"resnet_units": (3, 4, 9), "patch_size": 1}, (16, 16)),
        ({"resnet_units": (2, 2, 2, 2), "patch_size": 1}, (32, 32)),
        ({"resnet_units": (), "patch_size": (4, 2)}, (16, 8)),
    ],
)
def test_patches_in_pixels(options, pixels):
    assert patch_pixels(ViTConfig(**options)) == pixels


def test_maps_enlarged_to_the_image():
    model = tiny_model()
    found = to_pixels(model, np.arange(6).reshape(1, 2, 3), resample="nearest")
    wanted = np.arange(6).reshape(2, 3).repeat(4, axis=0).repeat(4, axis=1)
    np.testing.assert_array_equal(found, wanted[None])


def test_maps_of_a_hybrid_are_centred_on_the_image():
    # 21x22 pixels make 6x6 cells of 4 pixels: 24x24, too large by 3 and 2.
    model = keras_vit.models.VisionTransformer(
        ViTConfig(
            image_size=(21, 22),
            patch_size=(2, 2),
            hidden_dim=8,
            num_layers=1,
            mlp_dim=8,
            num_heads=2,
            resnet_units=(),
            resnet_width=32,
        )
    )
    assert model.config.grid == (3, 3)
    found = to_pixels(model, [[1, 2, 3], [4, 5, 6], [7, 8, 9]])
    assert found.shape == (21, 22)
    found = to_pixels(
        model, [[1, 2, 3], [4, 5, 6], [7, 8, 9]], resample="nearest"
    )
    assert [np.sum(found[0] == i) for i in (1, 2, 3)] == [7, 8, 7]
    assert [np.sum(found[:, 0] == i) for i in (1, 4, 7)] == [7, 8, 6]


def test_maps_of_another_grid():
    with pytest.raises(ValueError, match="2x3"):
        to_pixels(tiny_model(), np.zeros((1, 3, 2)))
