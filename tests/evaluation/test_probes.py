"""Nearest neighbours and logistic regression, from their definitions."""

from typing import Any

import numpy as np
import pytest
from few_shot_cases import BATCHES, CLASSES

from keras_vit.evaluation import probes as module
from keras_vit.evaluation.config import ModelSource
from keras_vit.evaluation.few_shot import FewShot, few_shot, summarise_shots
from keras_vit.evaluation.probes import (
    fit_linear,
    fit_neighbours,
    fit_probe,
)


def cases(width, count=40, seed=0):
    random = np.random.default_rng(seed)
    labels = random.integers(0, CLASSES, count)
    centres = random.normal(0, 1, (CLASSES, width))
    spread = random.uniform(0.1, 5, width)
    known = (centres[labels] + random.normal(2, 1, (count, width))) * spread
    asked = random.normal(2, 2, (13, width)) * spread
    return known, labels, asked


def votes_of(known, labels, asked, count, temperature):
    """Image by image, as section 4.1 of DINO says it."""
    found = np.zeros((len(asked), CLASSES))
    for row, x in enumerate(asked):
        cosines = [x @ y / np.sqrt(x @ x) / np.sqrt(y @ y) for y in known]
        for i in sorted(range(len(known)), key=lambda i: -cosines[i])[:count]:
            found[row, labels[i]] += np.exp(cosines[i] / temperature)
    return found


@pytest.mark.parametrize(
    ("count", "temperature"), [(20, 0.07), (1, 0.07), (3, 1.0), (99, 0.5)]
)
def test_the_nearest_neighbours_vote_by_their_similarity(
    count, temperature, monkeypatch
):
    known, labels, asked = cases(6)
    expected = votes_of(known, labels, asked, count, temperature)
    options = {"num_neighbours": count, "temperature": temperature}
    neighbours = fit_neighbours(known, labels, CLASSES, **options)
    np.testing.assert_allclose(
        neighbours.scores(asked), expected, rtol=2e-4, atol=1e-6
    )
    monkeypatch.setattr(module, "NUMBERS", 5 * len(known))  # in three parts
    np.testing.assert_allclose(
        neighbours.scores(asked), expected, rtol=2e-4, atol=1e-6
    )
    assert neighbours.scores(asked[:0]).shape == (0, CLASSES)


def test_the_defaults_are_those_of_dino():
    known, labels, asked = cases(6)
    found = fit_neighbours(known, labels, CLASSES).scores(asked)
    expected = votes_of(known, labels, asked, 20, 0.07)
    np.testing.assert_allclose(found, expected, rtol=2e-4, atol=1e-6)
    assert FewShot(smoke=True).num_neighbours == 20
    assert FewShot(smoke=True).temperature == 0.07


def newton(known, labels, l2):
    """The same minimum by Newton's method, which needs the whole Hessian."""
    mean, std = known.mean(axis=0), known.std(axis=0) + 1e-5
    x = np.hstack([(known - mean) / std, np.ones((len(known), 1))])
    pull = l2 * np.diag([1.0] * known.shape[1] + [0.0])
    weights = np.zeros((x.shape[1], CLASSES))
    # Adding a number to all biases changes nothing: they sum to zero.
    gauge = np.kron(np.diag([0.0] * known.shape[1] + [1.0]), np.ones((4, 4)))
    for _ in range(50):
        shares = np.exp(x @ weights)
        shares /= shares.sum(axis=1, keepdims=True)
        gradient = x.T @ (shares - np.eye(CLASSES)[labels]) + pull @ weights
        hessian = np.kron(pull, np.eye(CLASSES)) + gauge
        for row, share in zip(x, shares, strict=True):
            spread = np.diag(share) - np.outer(share, share)
            hessian += np.kron(np.outer(row, row), spread)
        step = np.linalg.solve(hessian, gradient.ravel())
        weights -= step.reshape(weights.shape)
    return lambda asked: (
        np.hstack([(asked - mean) / std, np.ones((len(asked), 1))]) @ weights
    )


@pytest.mark.parametrize("l2", [1.0, 30.0])
@pytest.mark.parametrize("width", [2, 5])
def test_linear_is_the_minimum_of_its_loss(l2, width):
    known, labels, asked = cases(width)
    found = fit_linear(known, labels, CLASSES, l2=l2).scores(asked)
    expected = newton(known, labels, l2)(asked)
    centred = [x - x.mean(axis=1, keepdims=True) for x in (found, expected)]
    np.testing.assert_allclose(*centred, rtol=1e-3, atol=1e-3)


def test_a_class_without_images_is_not_chosen():
    known, labels, asked = cases(5)
    few = labels < 2
    for fit in (fit_linear, fit_neighbours):
        probe = fit(known[few], labels[few], CLASSES)
        chosen = probe.scores(asked).argmax(axis=1)
        assert set(chosen) <= {0, 1}


@pytest.mark.parametrize("fit", [fit_linear, fit_neighbours])
@pytest.mark.parametrize(
    ("features", "labels", "message"),
    [
        (np.ones((2, 3)), np.array([0]), "a label for each image"),
        (np.ones((1, 3)), np.array([4]), "from 0 to 3"),
        (np.array([[np.nan]]), np.array([0]), "not finite"),
    ],
)
def test_features_that_do_not_fit(fit, features, labels, message):
    with pytest.raises(ValueError, match=message):
        fit(features, labels, CLASSES)


@pytest.mark.parametrize(
    "options", [{"num_neighbours": 0}, {"temperature": 0.0}, {"l2": -1.0}]
)
def test_options_that_are_not_above_zero(options):
    known, labels, _ = cases(3)
    fit = fit_linear if "l2" in options else fit_neighbours
    (name,) = options
    with pytest.raises(ValueError, match=f"{name} must be above 0"):
        fit(known, labels, CLASSES, **options)


EXPECTED = {
    "least_squares": lambda x, y, asked: fit_probe(x, y, CLASSES).scores(asked),
    "linear": lambda x, y, asked: newton(x, y, 2.0)(asked),
    "knn": lambda x, y, asked: votes_of(x, y, asked, 5, 0.1),
}


OPTIONS: dict[str, dict[str, Any]] = {
    "least_squares": {},
    "linear": {"linear_l2": 2.0},
    "knn": {"num_neighbours": 5, "temperature": 0.1},
}


@pytest.mark.parametrize("probe", EXPECTED)
def test_accuracy_of_all_images_is_that_of_the_definition(
    probe, features, train, test
):
    recipe = FewShot(
        model=ModelSource(weights="runs/nowhere"),
        probe=probe,
        shots=(1, None),
        **OPTIONS[probe],
    )
    rows = few_shot(
        features,
        train,
        test,
        num_classes=CLASSES,
        batches=BATCHES,
        shots=recipe.shots,
        seeds=[0],
        fit=recipe.fit,
    )
    known, asked = (
        features.predict(part.contents.astype("float32"), verbose=0)
        for part in (train, test)
    )
    known, asked = known.astype("float64"), asked.astype("float64")
    scores = EXPECTED[probe](known, train.labels, asked)
    right = np.mean(scores.argmax(axis=1) == test.labels)
    assert rows[1]["accuracy"] == pytest.approx(right, abs=1 / len(test))
    assert [row["num_train"] for row in rows] == [CLASSES, len(train)]
    assert [x["shots"] for x in summarise_shots(rows[::-1])] == [1, None]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"probe": "nearest"}, "Unknown probe: 'nearest'"),
        ({"num_neighbours": 0}, "num_neighbours must be at least 1"),
        ({"temperature": 0.0}, "temperature must be above 0"),
        ({"linear_l2": 0.0}, "linear_l2 must be above 0"),
        ({"shots": (None, 0)}, r"shots=\[None, 0\]"),
        ({"shots": ()}, r"shots=\[\]"),
        ({"l2": 2.0, "probe": "knn"}, "l2 does nothing with probe='knn'"),
        ({"linear_l2": 2.0}, "linear_l2 does nothing with probe='least_sq"),
        ({"temperature": 1.0, "probe": "linear"}, "temperature does nothing"),
        ({"num_neighbours": 3}, "num_neighbours does nothing with probe="),
        ({"model": ModelSource(activation="sigmoid")}, "activation does"),
    ],
)
def test_options_that_make_no_sense(options, message):
    with pytest.raises(ValueError, match=message):
        FewShot(smoke=True, **options)
