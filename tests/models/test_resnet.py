"""ResNets of BiT's units with other normalisations: training, widths."""

import keras
import numpy as np
import pytest

from keras_vit.models import BiT, BiTConfig

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


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"unit": "basic", "stem": "deep", "root_padding": "lowest"},
        {"stem": "tiered", "downsampling": "average", "activation": "silu"},
    ],
)
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
            "multiple of 32.*Received: 16",
        ),
        ({"stem": "shallow"}, "stem: .shallow"),
        ({"unit": "basics"}, "Did you mean 'basic'"),
    ],
)
def test_what_does_not_fit_is_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        BiTConfig(**{**TINY, **changes})
