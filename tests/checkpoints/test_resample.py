"""Resampling against torch and np.interp; resizing of patches and channels."""

import keras
import numpy as np
import pytest
from reference_cases import expected, load

from keras_vit.checkpoints.engine.matching import (
    adapt_channels,
    resample_position_embedding,
    resize_patches,
)
from keras_vit.interpolation import resize_matrix

GRIDS = [((4, 4), (6, 6)), ((14, 14), (7, 28)), ((5, 3), (2, 9))]


def table(grid, prefix=1):
    generator = np.random.default_rng(0)
    length = prefix + grid[0] * grid[1]
    return generator.normal(size=(1, length, 8)).astype("float32")


@pytest.mark.parametrize(("old", "new"), GRIDS)
@pytest.mark.parametrize(
    ("method", "mode", "antialias"),
    [
        ("linear", "bilinear", False),
        ("linear_antialiased", "bilinear", True),
        ("bicubic", "bicubic", False),
        ("bicubic_antialiased", "bicubic", True),
    ],
)
def test_as_torch_interpolates(old, new, method, mode, antialias):
    torch = pytest.importorskip("torch")
    values = table(old)
    grid = torch.tensor(values[:, 1:]).reshape(1, *old, 8).permute(0, 3, 1, 2)
    wanted = torch.nn.functional.interpolate(
        grid, size=new, mode=mode, antialias=antialias, align_corners=False
    )
    wanted = wanted.permute(0, 2, 3, 1).reshape(1, -1, 8).numpy()
    found = resample_position_embedding(values, old, new, method)
    np.testing.assert_allclose(found[:, 1:], wanted, rtol=0, atol=2e-6)
    np.testing.assert_array_equal(found[:, :1], values[:, :1])


@pytest.mark.parametrize(("old", "new"), GRIDS)
def test_aligned_corners_as_interp(old, new):
    values = table(old, prefix=0)
    grid = values[0].reshape(*old, 8).astype("float64")
    for axis in (0, 1):
        points = np.linspace(0, old[axis] - 1, new[axis])
        grid = np.apply_along_axis(
            lambda x, p=points: np.interp(p, np.arange(len(x)), x), axis, grid
        )
    found = resample_position_embedding(values, old, new)
    np.testing.assert_allclose(found[0], grid.reshape(-1, 8), rtol=0, atol=2e-6)


def test_unknown_method():
    with pytest.raises(ValueError, match="'nearest'.*'linear_aligned'"):
        resample_position_embedding(table((2, 2)), (2, 2), (3, 3), "nearest")


def test_same_count_of_another_grid_is_resampled():
    model = load("vit_tiny_augreg", input_shape=(16, 64, 3))
    assert model.config.grid == (2, 8)
    assert "4x4 -> 2x8" in str(model.load_report)
    ours = model.get_layer("position_embedding").embedding
    before = load("vit_tiny_augreg").get_layer("position_embedding").embedding
    before = keras.ops.convert_to_numpy(before)
    wanted = resample_position_embedding(before, (4, 4), (2, 8))
    np.testing.assert_allclose(
        keras.ops.convert_to_numpy(ours), wanted, rtol=0, atol=1e-6
    )
    assert np.abs(wanted - before).max() > 0.01


def test_larger_patches_see_resized_patches_as_before():
    generator = np.random.default_rng(0)
    kernel = generator.normal(size=(4, 4, 3, 8)).astype("float32")
    patch = generator.normal(size=(4, 4, 3))
    matrix = resize_matrix(4, 6, "linear")
    resized = np.einsum("Hh,Ww,hwc->HWc", matrix, matrix, patch)
    larger = resize_patches(kernel, (6, 6))
    np.testing.assert_allclose(
        np.einsum("hwc,hwcd->d", resized, larger),
        np.einsum("hwc,hwcd->d", patch, kernel),
        rtol=0,
        atol=1e-4,
    )


def test_patch_size_changes_kernel_and_grid():
    model = load("vit_tiny_augreg", patch_size=16)
    assert model.config.grid == (2, 2)
    assert "8x8 -> 16x16" in str(model.load_report)
    assert "4x4 -> 2x2" in str(model.load_report)


def test_grey_images_give_what_they_gave_as_rgb():
    grey = np.random.default_rng(0).normal(size=(2, 32, 32, 1))
    one = load("vit_tiny_augreg", input_shape=(32, 32, 1))
    three = load("vit_tiny_augreg")
    np.testing.assert_allclose(
        keras.ops.convert_to_numpy(one(grey)),
        keras.ops.convert_to_numpy(three(np.repeat(grey, 3, axis=-1))),
        rtol=0,
        atol=5e-5,
    )


def test_more_channels_take_the_old_ones_in_turn():
    kernel = np.arange(2 * 2 * 3 * 1, dtype="float32").reshape(2, 2, 3, 1)
    wide = adapt_channels(kernel, 4)
    np.testing.assert_allclose(wide[:, :, :3], kernel * 0.75)
    np.testing.assert_allclose(wide[:, :, 3], kernel[:, :, 0] * 0.75)


def test_hybrid_takes_other_channels():
    model = load("hybrid_tiny_two_stages", input_shape=(32, 32, 1))
    assert "root_conv/kernel: channels 3 -> 1" in str(model.load_report)


def test_token_to_mean_pooling_and_back():
    mean = load("vit_tiny_augreg", pooling="mean")
    assert not mean.config.class_token
    encoded = expected("vit_tiny_augreg")["encoded"].shape
    assert mean.get_layer("encoder_norm").output.shape[1] == encoded[1] - 1
    assert "cls" in mean.load_report.dropped
    token = load("vit_tiny_gap", pooling="token")
    assert token.config.class_token
    assert token.load_report.fresh == ("class_token/token",)
    table = token.get_layer("position_embedding").embedding
    assert not keras.ops.convert_to_numpy(table)[:, 0].any()


def test_representation_is_kept_on_request():
    model = load("vit_tiny_google", classes=7, keep_representation=True)
    assert model.config.representation_dim == 24
    assert "pre_logits/kernel" in model.load_report.loaded


def test_without_top_all_tokens_come_out():
    model = load("vit_tiny_google", include_top=False)
    found = keras.ops.convert_to_numpy(
        model(expected("vit_tiny_google")["image"])
    )
    np.testing.assert_allclose(
        found, expected("vit_tiny_google")["encoded"], rtol=0, atol=5e-5
    )
