"""Which images and models a few-shot evaluation takes, and what it refuses."""

import functools

import keras
import numpy as np
import pytest
from few_shot_cases import BATCHES, CLASSES, tiny

from keras_vit import data
from keras_vit.evaluation.few_shot import (
    feature_model,
    few_shot,
    summarise_shots,
)
from keras_vit.evaluation.probes import fit_probe


def test_images_that_are_not_chosen_are_not_looked_at(features, train, test):
    seen = []

    def counted(examples):
        seen.append(len(examples))
        batches = BATCHES(examples)
        assert sum(int(mask.numpy().sum()) for *_, mask in batches) == seen[-1]
        return batches

    few_shot(
        features,
        train,
        test,
        num_classes=CLASSES,
        batches=counted,
        shots=[1, 2],
        seeds=[0],
    )
    assert seen == [2 * CLASSES, 70]


def test_images_that_cannot_be_read_are_left_out(features, train, test):
    """As where data.on_broken_image is "skip": their masks are False."""

    def without_first(examples):
        for number, (images, labels, mask) in enumerate(BATCHES(examples)):
            mask = mask.numpy()
            mask[0] = mask[0] and number > 0
            yield images, labels, mask

    rows = few_shot(
        features,
        train,
        test,
        num_classes=CLASSES,
        batches=without_first,
        shots=[5],
        seeds=[0],
    )
    assert rows[0]["num_train"] == 5 * CLASSES - 1
    assert rows[0]["num_test"] == 69


def test_features_are_what_the_head_sees():
    model = tiny(num_classes=3, representation_dim=5)
    images = np.random.default_rng(0).uniform(0, 255, (2, 8, 8, 1))
    found = feature_model(model).predict(images, verbose=0)
    assert found.shape == (2, 5)
    layer = model.get_layer("pre_logits")
    pooled = feature_model(model, layer="pool").predict(images, verbose=0)
    kernel, bias = map(keras.ops.convert_to_numpy, layer.weights)
    np.testing.assert_allclose(
        found, np.tanh(pooled @ kernel + bias), rtol=1e-4, atol=1e-5
    )


def test_a_model_without_head_is_its_features():
    assert feature_model(tiny(num_classes=0)).output_shape == (None, 8)
    unpooled = tiny(num_classes=0, pooling="none")
    with pytest.raises(ValueError, match='one row per image.*pooling="mean"'):
        feature_model(unpooled)


@pytest.mark.parametrize(
    ("layer", "message"),
    [("block_7", "no layer 'block_7'"), ("block_0", "after pooling")],
)
def test_wrong_layers_are_explained(layer, message):
    with pytest.raises(ValueError, match=message):
        feature_model(tiny(), layer=layer)


def test_summary_is_mean_and_spread_of_the_seeds():
    rows = [
        {"shots": 5, "accuracy": 0.5},
        {"shots": 1, "accuracy": 0.25},
        {"shots": 5, "accuracy": 0.7},
    ]
    one, five = summarise_shots(rows)
    assert (one["shots"], one["mean"], one["std"]) == (1, 0.25, 0.0)
    assert (five["shots"], five["seeds"]) == (5, 2)
    assert five["mean"] == pytest.approx(0.6)
    assert five["std"] == pytest.approx(0.2 / np.sqrt(2))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"shots": [0]}, "shots must be numbers above 0"),
        ({"shots": [5, None, 5]}, "each there once"),
        ({"num_classes": 3}, "from 0 to 2"),
        ({"fit": functools.partial(fit_probe, l2=0.0)}, "l2 must be above 0"),
    ],
)
def test_wrong_options_are_explained(options, message, features, train, test):
    options = {"num_classes": CLASSES, "batches": BATCHES, **options}
    with pytest.raises(ValueError, match=message):
        few_shot(features, train, test, **options)


def test_several_labels_an_image_are_refused(features, train, test):
    hot = np.eye(CLASSES, dtype="uint8")[train.labels]
    several = data.Examples(train.contents, hot, source="several")
    with pytest.raises(ValueError, match="Each image of several must have one"):
        few_shot(features, several, test, num_classes=CLASSES, batches=BATCHES)


def test_features_that_are_not_finite_are_refused():
    known = np.array([[0.0], [np.nan]])
    with pytest.raises(ValueError, match="not finite"):
        fit_probe(known, np.array([0, 1]), 2)
