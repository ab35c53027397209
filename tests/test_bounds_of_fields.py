"""The last value of a field that is right, beside the first that is wrong."""

import pytest

from keras_vit import data, models, serving, training
from keras_vit.layers import WindowAttention
from keras_vit.models.configured_model import check_blocks
from keras_vit.training.tasks import dino, masked_patch

TINY: dict = {
    "image_size": (8, 8),
    "patch_size": (4, 4),
    "hidden_dim": 8,
    "num_layers": 2,
    "num_heads": 2,
    "mlp_dim": 8,
}
MASKED = masked_patch.MaskedPatchConfig


def vit(**fields):
    return models.ViTConfig(**{**TINY, **fields})


def block(number):
    return check_blocks(models.VisionTransformer(vit()), number)


ROWS: dict = {
    "a tenth as parts": (
        lambda x: data.DataConfig(
            name="digits", validation_fraction=0.5, test_fraction=x
        ),
        0.4,
        0.5,
    ),
    "the last fold": (
        lambda x: data.DataConfig(name="digits", folds=3, fold=x),
        2,
        3,
    ),
    "the whole image": (
        lambda x: data.PreprocessingConfig(least_area=x),
        1,
        1.001,
    ),
    "the largest side": (
        lambda x: data.PreprocessingConfig(resize_size=x),
        16_384,
        16_385,
    ),
    "no smoothing": (
        lambda x: training.TrainingConfig(label_smoothing=x),
        0,
        -0.001,
    ),
    "all smoothing": (
        lambda x: training.TrainingConfig(label_smoothing=x),
        0.999,
        1,
    ),
    "all patches": (lambda x: MASKED(corruption_rate=x), 1, 1.001),
    "no embedding of the mask": (
        lambda x: MASKED(mask_rate=x, random_rate=0.1),
        0,
        -0.001,
    ),
    "none kept": (lambda x: MASKED(mask_rate=0.5, random_rate=x), 0.5, 0.501),
    "all patches of an image": (
        lambda x: dino.DINOConfig(ibot_weight=1, ibot_rate=x),
        1,
        1.1,
    ),
    "crops of one size": (
        lambda x: dino.DINOConfig(global_scale=(0.5, x)),
        0.5,
        0.499,
    ),
    "crops of the image": (
        lambda x: dino.DINOConfig(global_scale=(0.5, x)),
        1.0,
        1.001,
    ),
    "a queue of one batch": (
        lambda x: serving.ServingLimits(batch=8, queue=x),
        8,
        7,
    ),
    "one request": (
        lambda x: serving.ServingLimits(body_mb=16.0, bodies_mb=x),
        16.0,
        15.9,
    ),
    "one head": (lambda x: vit(num_heads=x), 1, 0),
    "the first block": (block, -2, -3),
    "the last block": (block, 1, 2),
    "a window of a patch": (
        lambda x: WindowAttention(2, grid=(2, 2), window_size=x),
        1,
        0,
    ),
    "no dropout": (lambda x: vit(dropout_rate=x), 0, -0.001),
    "all but no dropout": (lambda x: vit(dropout_rate=x), 0.999, 1),
    "no variance": (lambda x: vit(layer_norm_epsilon=x), 0, -1e-9),
    "one of a channel": (lambda x: vit(channels=x), 1, 0),
    "a stem of one pixel": (lambda x: vit(patch_stem=(2, x)), 1, 0),
}


@pytest.mark.once
@pytest.mark.parametrize("name", ROWS)
def test_a_bound_is_where_it_is_said(name):
    make, last, first_wrong = ROWS[name]
    make(last)
    with pytest.raises(ValueError, match="=|Received"):
        make(first_wrong)
