"""ResNets of BiT's units with other normalisations: training, widths."""

import keras
import numpy as np
import pytest

from keras_vit.analysis import attention_maps, patch_filters
from keras_vit.models import BiT, BiTConfig, VisionTransformer, ViTConfig

TINY = {
    **{"image_size": (33, 47), "units": (1, 2), "width": 8, "num_classes": 3},
    **{"normalization": "batch_norm", "standardization": None},
}
NORM = "stage1_unit1_norm1"


def images(count=6):
    random = np.random.default_rng(0)
    return random.normal(1, 2, (count, 33, 47, 3)).astype("float32")


def model_of(**changes):
    return BiT(BiTConfig(**{**TINY, **changes}))


def statistics(model):
    layer = model.get_layer(NORM)
    return [
        keras.ops.convert_to_numpy(x).copy()
        for x in (layer.moving_mean, layer.moving_variance)
    ]


def trained(model):
    model.compile(optimizer=keras.optimizers.SGD(0.0), loss="mse")
    model.fit(images(), np.zeros((6, 3)), batch_size=6, verbose=0)
    return statistics(model)


KINDS = [
    {},
    {"unit": "basic", "stem": "deep", "root_padding": "lowest"},
    {"stem": "tiered", "downsampling": "average", "activation": "silu"},
]


HYBRID = {
    **{"image_size": 32, "patch_size": 1, "hidden_dim": 8, "mlp_dim": 8},
    **{"num_layers": 1, "num_heads": 2, "num_classes": 3},
    **{"resnet_units": (1, 1), "resnet_width": 32},
}


@pytest.mark.parametrize("changes", [*KINDS, HYBRID])
def test_layers_have_the_same_names_in_each_model(changes):
    """Keras counts the layers of a process that have none."""

    def names():
        if changes is HYBRID:
            model = VisionTransformer(ViTConfig(**HYBRID))
        else:
            model = model_of(**changes)
        return [layer.name for layer in model.layers]

    found = names()
    assert found == names()
    assert "root_pool" in found


@pytest.mark.parametrize("changes", KINDS)
def test_training_moves_the_statistics_by_a_tenth(changes):
    model = model_of(**changes)
    before = keras.Model(model.input, model.get_layer(NORM).input)
    weights = model.get_weights()
    # Those of the stem normalise by the batch as well.
    maps = keras.ops.convert_to_numpy(before(images(), training=True))
    model.set_weights(weights)
    old, found = statistics(model), trained(model)
    maps = maps.astype("float64").reshape(-1, maps.shape[-1])
    for moved, start, new in zip(
        found, old, (maps.mean(axis=0), maps.var(axis=0)), strict=True
    ):
        np.testing.assert_allclose(
            moved, 0.9 * start + 0.1 * new, rtol=1e-4, atol=1e-5
        )


def test_prediction_of_an_image_is_the_same_in_any_batch():
    model = model_of()
    trained(model)
    model.get_layer("predictions").kernel.assign(np.ones((64, 3)))
    together = model.predict(images(), verbose=0)
    alone = model.predict(images()[2:3], verbose=0)
    np.testing.assert_allclose(together[2:3], alone, rtol=1e-4, atol=1e-5)


def test_a_frozen_model_keeps_its_statistics():
    model = model_of()
    for layer in model.layers:
        layer.trainable = layer.name == "predictions"
    found = trained(model)
    np.testing.assert_array_equal(found, [np.zeros(8), np.ones(8)])


def test_statistics_are_saved(tmp_path):
    model = model_of(stem="deep", downsampling="average")
    found = trained(model)
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    assert again.config == model.config
    np.testing.assert_array_equal(statistics(again), found)
    np.testing.assert_array_equal(
        again.predict(images(), verbose=0), model.predict(images(), verbose=0)
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"width": 12}, "multiple of 8. Received: width=12"),
        ({"normalization": "group_norm"}, "multiple of 32"),
        (
            {"normalization": "evolved", "width": 32, "stem": "deep"},
            "multiple of 64.*Received: 32",
        ),
        (
            {"normalization": "group_norm", "width": 64, "stem": "tiered"},
            "multiple of 256.*Received: 64",
        ),
        ({"stem": "shallow"}, "stem: .shallow"),
        ({"unit": "basics"}, "Did you mean 'basic'"),
    ],
)
def test_what_does_not_fit_is_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        BiTConfig(**{**TINY, **changes})


STEM = {
    **{"image_size": 32, "patch_size": 16, "hidden_dim": 8, "mlp_dim": 8},
    **{"num_layers": 1, "num_heads": 2, "num_classes": 3},
    **{"patch_stem": (4, 2), "patch_stem_dim": 6},
}


def test_a_stem_before_the_patches_learns_its_statistics():
    model = VisionTransformer(ViTConfig(**STEM))
    assert model.get_layer("patch_embed").projection.kernel.shape == (
        2,
        2,
        6,
        8,
    )
    assert patch_filters(model, 3).shape == (3, 4, 4, 3)
    x = images()[:, :32, :32]
    assert attention_maps(model, x).shape == (1, 6, 2, 5, 5)
    norm = model.get_layer("stem_norm1")
    maps = keras.Model(model.input, norm.input)(x)
    mean = keras.ops.convert_to_numpy(maps).astype("float64").mean((0, 1, 2))
    model.compile(optimizer=keras.optimizers.SGD(0.0), loss="mse")
    model.fit(x, np.zeros((6, 3)), batch_size=6, verbose=0)
    moved = keras.ops.convert_to_numpy(norm.moving_mean)
    np.testing.assert_allclose(moved, 0.1 * mean, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "changes",
    [
        {"patch_stem": (4, 3)},
        {"patch_stem": (0,)},
        {"resnet_units": (1,), "patch_size": 8},
    ],
)
def test_a_stem_that_does_not_fit_is_refused(changes):
    with pytest.raises(ValueError, match="patch_stem must be strides"):
        ViTConfig(**{**STEM, **changes})
