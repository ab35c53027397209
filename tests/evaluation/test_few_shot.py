import itertools

import keras
import numpy as np
import pytest
from few_shot_cases import BATCHES, CLASSES

from keras_vit.evaluation import few_shot as module
from keras_vit.evaluation.few_shot import (
    choose_shots,
    few_shot,
    summarise_shots,
)
from keras_vit.evaluation.probes import fit_probe


def lstsq_scores(train, labels, test, *, l2=1024.0, constant=100.0):
    """The same minimum from the definition: rows that pull weights to 0."""
    mean, std = train.mean(axis=0), train.std(axis=0) + 1e-5
    x = np.hstack([(train - mean) / std, np.full((len(train), 1), constant)])
    y = np.where(labels[:, None] == np.arange(CLASSES), 1.0, -1.0)
    pull = np.sqrt(l2) * np.eye(x.shape[1])
    zeros = np.zeros((x.shape[1], CLASSES))
    weights = np.linalg.lstsq(
        np.vstack([x, pull]), np.vstack([y, zeros]), rcond=None
    )[0]
    z = np.hstack([(test - mean) / std, np.full((len(test), 1), constant)])
    return z @ weights


@pytest.mark.parametrize("width", [3, 30, 200])
def test_probe_is_the_regularised_least_squares_solution(width):
    random = np.random.default_rng(width)
    known = random.normal(2, 3, (30, width)) * random.uniform(0.1, 5, width)
    asked = random.normal(2, 3, (11, width))
    labels = random.integers(0, CLASSES, 30)
    for l2, constant in ((1024.0, 100.0), (1.0, 10.0)):
        probe = fit_probe(known, labels, CLASSES, l2=l2, constant=constant)
        np.testing.assert_allclose(
            probe.scores(asked),
            lstsq_scores(known, labels, asked, l2=l2, constant=constant),
            rtol=1e-8,
            atol=1e-9,
        )


def test_features_that_do_not_vary_do_no_harm():
    known = np.ones((6, 3), "float32")
    probe = fit_probe(known, np.arange(6) % 2, CLASSES)
    assert np.isfinite(probe.scores(known)).all()


def test_shots_are_those_that_big_vision_chooses():
    labels = np.random.default_rng(0).integers(0, CLASSES, 60)
    chosen = choose_shots(labels, CLASSES, shots=[1, 5], seed=7)
    random = np.random.default_rng(7)
    orders = [
        random.permutation(np.where(labels == label)[0])
        for label in range(CLASSES)
    ]
    for count, images in zip([1, 5], chosen, strict=True):
        expected = np.concatenate([order[:count] for order in orders])
        np.testing.assert_array_equal(images, expected)


def test_a_class_gives_what_it_has():
    labels = np.array([0, 0, 0, 2])
    (chosen,) = choose_shots(labels, CLASSES, shots=[2], seed=0)
    assert labels[chosen].tolist() == [0, 0, 2]


def test_accuracy_is_that_of_the_definition(features, train, test):
    rows = few_shot(
        features,
        train,
        test,
        num_classes=CLASSES,
        batches=BATCHES,
        shots=[1, 5],
        seeds=[0, 3],
    )
    known, asked = (
        features.predict(part.contents.astype("float32"), verbose=0)
        for part in (train, test)
    )
    keys = [(0, 1), (0, 5), (3, 1), (3, 5)]
    assert [(row["seed"], row["shots"]) for row in rows] == keys
    for row in rows:
        (chosen,) = choose_shots(
            train.labels, CLASSES, shots=[row["shots"]], seed=row["seed"]
        )
        scores = lstsq_scores(
            known[chosen].astype("float64"), train.labels[chosen], asked
        )
        right = np.mean(scores.argmax(axis=1) == test.labels)
        assert row["accuracy"] == pytest.approx(right)
        assert row["num_train"] == row["shots"] * CLASSES
        assert row["num_test"] == 70
    assert len({row["accuracy"] for row in rows}) > 1


def test_more_shots_are_better(train, test):
    pixels = keras.Sequential([keras.Input((8, 8, 1)), keras.layers.Flatten()])
    rows = few_shot(pixels, train, test, num_classes=CLASSES, batches=BATCHES)
    assert [row["shots"] for row in rows] == [1, 5, 10, 25] * 3
    means = [row["mean"] for row in summarise_shots(rows)]
    assert means[-1] > 0.8 > means[0] > 1 / CLASSES


def test_only_a_bounded_number_of_batches_is_held(
    features, train, test, monkeypatch
):
    """The features of 60 batches are never together."""
    monkeypatch.setattr(module, "BATCHES_AT_ONCE", 3)
    whole = list(BATCHES(test))
    sizes, predict = [], module.FeatureStream.predict

    def watched(self, inputs, verbose):
        found = predict(self, inputs, verbose=verbose)
        sizes.append(len(found["features"]))
        return found

    monkeypatch.setattr(module.FeatureStream, "predict", watched)

    def repeated(examples):
        if examples is not test:
            return BATCHES(examples)
        return itertools.islice(itertools.cycle(whole), 60)

    rows = few_shot(
        features,
        train,
        test,
        num_classes=CLASSES,
        batches=repeated,
        shots=[5],
        seeds=[0],
    )
    assert max(sizes) == 3 * 16
    assert rows[0]["num_test"] == 60 // 5 * 70
    once = few_shot(
        features,
        train,
        test,
        num_classes=CLASSES,
        batches=BATCHES,
        shots=[5],
        seeds=[0],
    )
    assert rows[0]["accuracy"] == pytest.approx(once[0]["accuracy"])
