"""Metrics of whole splits against scikit-learn's."""

import warnings
from typing import Any

import numpy as np
import pytest
from sklearn import metrics

from keras_vit import evaluation
from keras_vit.evaluation import Predictions, class_metrics

# Equal but for the order in which float64 numbers are added.
CLOSE: dict[str, Any] = {"rel": 1e-9, "abs": 1e-9}
LAST_WITHOUT_IMAGES = 1


def one_label(num_images, num_classes, *, levels=None, lacking=0):
    """Labels, most of the first classes, and probabilities, some equal."""
    random = np.random.default_rng(num_images)
    used = num_classes - lacking
    shares = random.dirichlet(np.ones(used))
    labels = random.choice(used, num_images, p=shares)
    scores = random.normal(size=(num_images, num_classes))
    scores[np.arange(num_images), labels] += 1
    if levels is not None:
        scores = np.round(scores * levels) / levels
    powers = np.exp(scores)
    return labels, powers / powers.sum(axis=1, keepdims=True)


def several_labels(num_images, num_classes, *, lacking=0):
    random = np.random.default_rng(num_images)
    labels = random.random((num_images, num_classes)) < 0.2
    labels[:, num_classes - lacking :] = False
    scores = random.normal(size=labels.shape) + labels - 0.5
    return labels, np.round(1 / (1 + np.exp(-scores)), 2)


def of_sklearn(labels, probabilities):
    answers = probabilities.argmax(axis=1)
    present = np.unique(labels)
    truth = labels[:, None] == present
    known = probabilities[:, present]
    return {
        "accuracy": metrics.accuracy_score(labels, answers),
        "balanced_accuracy": metrics.balanced_accuracy_score(labels, answers),
        "macro_f1": metrics.f1_score(labels, answers, average="macro"),
        "auc": metrics.roc_auc_score(truth, known, average="macro"),
        "average_precision": metrics.average_precision_score(
            truth, known, average="macro"
        ),
    }


def of_sklearn_for_several(truth, probabilities):
    answers = probabilities >= 0.5
    used = truth.any(axis=0)
    columns = zip(truth.T, answers.T, strict=True)
    return {
        "accuracy": metrics.accuracy_score(truth, answers),
        "balanced_accuracy": np.mean(
            [metrics.balanced_accuracy_score(*column) for column in columns]
        ),
        "macro_f1": metrics.f1_score(
            truth, answers, average="macro", zero_division=0
        ),
        "auc": metrics.roc_auc_score(
            truth[:, used], probabilities[:, used], average="macro"
        ),
        "average_precision": metrics.average_precision_score(
            truth[:, used], probabilities[:, used], average="macro"
        ),
    }


@pytest.mark.parametrize(
    ("num_images", "num_classes", "levels"),
    [(50, 2, None), (500, 7, None), (400, 7, 1), (2000, 100, 2)],
)
def test_one_label_per_image(num_images, num_classes, levels):
    data = one_label(num_images, num_classes, levels=levels)
    found = class_metrics(*data)
    counted = found.pop("num_classes_left_out", 0)
    assert counted == num_classes - len(np.unique(data[0]))
    with warnings.catch_warnings():
        # That answers have classes which no image has.
        warnings.simplefilter("ignore", UserWarning)
        assert found == pytest.approx(of_sklearn(*data), **CLOSE)


def test_the_auc_is_that_of_one_class_against_the_rest():
    labels, probabilities = one_label(500, 7)
    expected = metrics.roc_auc_score(
        labels, probabilities, multi_class="ovr", average="macro"
    )
    found = class_metrics(labels, probabilities)
    assert found["auc"] == pytest.approx(expected, **CLOSE)


@pytest.mark.parametrize("lacking", [0, LAST_WITHOUT_IMAGES])
def test_several_labels_per_image(lacking):
    data = several_labels(300, 6, lacking=lacking)
    found = class_metrics(*data)
    assert found.pop("num_classes_left_out", 0) == lacking
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        assert found == pytest.approx(of_sklearn_for_several(*data), **CLOSE)


def test_a_class_without_images_is_left_out_and_said():
    labels, probabilities = one_label(300, 6, lacking=LAST_WITHOUT_IMAGES)
    found = class_metrics(labels, probabilities)
    assert found["num_classes_left_out"] == LAST_WITHOUT_IMAGES


def test_images_of_one_class_have_no_auc():
    found = class_metrics([1, 1], [[0.4, 0.6], [0.7, 0.3]])
    assert found == {
        "accuracy": 0.5,
        "balanced_accuracy": 0.5,
        # 2/3 of the class, and 0 of the one that was answered.
        "macro_f1": pytest.approx(1 / 3),
        "num_classes_left_out": 2,
    }


def test_a_class_of_one_image_counts_beside_others():
    labels = [[1, 0], [0, 1], [0, 1]]
    found = class_metrics(labels, [[0.9, 0.1], [0.2, 0.8], [0.7, 0.4]])
    # 1 of 1 and 1 of 2 right, and 1 of 2 and 1 of 1 kept out.
    assert found["balanced_accuracy"] == pytest.approx(0.75)


def predictions(labels, probabilities, top):
    order = np.argsort(-probabilities, axis=1, kind="stable")[:, :top]
    kept = np.take_along_axis(probabilities, order, axis=1)
    return Predictions(labels, order, kept, probabilities.shape[1])


def test_a_summary_of_all_classes_has_all_metrics():
    labels, probabilities = one_label(500, 7)
    found = evaluation.summarise(predictions(labels, probabilities, 7))
    expected = of_sklearn(labels, probabilities)
    assert {x: found[x] for x in expected} == pytest.approx(expected, **CLOSE)
    assert found["top1"] == found["accuracy"]


def test_a_summary_of_the_top_classes_has_what_they_tell():
    labels, probabilities = one_label(500, 7)
    found = evaluation.summarise(predictions(labels, probabilities, 5))
    expected = of_sklearn(labels, probabilities)
    assert found["macro_f1"] == pytest.approx(expected["macro_f1"], **CLOSE)
    assert "auc" not in found


def test_files_keep_the_top_classes():
    labels, probabilities = one_label(20, 7)
    found = predictions(labels, probabilities, 7).most_probable(5)
    assert found.classes.shape == found.probabilities.shape == (20, 5)
