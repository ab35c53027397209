import csv
import sys

import numpy as np
import pytest

from keras_vit import evaluation
from keras_vit.evaluation import Predictions
from keras_vit.io.atomic_files import write_csv


def predictions(labels, classes, num_classes=6):
    classes = np.array(classes)
    return Predictions(
        np.array(labels), classes, np.zeros(classes.shape), num_classes
    )


def test_top_k_by_hand():
    found = predictions([0, 1, 2, 3], [[0, 1], [0, 1], [0, 1], [3, 1]])
    assert evaluation.top_k_accuracy(found, 1) == 0.5
    assert evaluation.top_k_accuracy(found, 2) == 0.75


def test_k_above_what_was_kept():
    found = predictions([0], [[0, 1]])
    with pytest.raises(ValueError, match="keep 2 of 6 .* Received: k=3"):
        evaluation.top_k_accuracy(found, 3)
    with pytest.raises(ValueError, match="k=0"):
        evaluation.top_k_accuracy(found, 0)


def test_top_5_of_fewer_classes_is_all():
    found = predictions([0, 2], [[0, 1, 2], [0, 1, 2]], num_classes=3)
    assert evaluation.summarise(found)["top5"] == 1


def test_real_accuracy_leaves_out_images_without_labels():
    labels = evaluation.multi_hot([[0, 3], [], [2], [4]], 6)
    classes = [
        [3, 1, 2, 0, 4],  # One of two labels is the answer.
        [0, 1, 2, 3, 4],
        [1, 2, 0, 3, 4],  # The label is second.
        [0, 1, 2, 3, 5],  # The label is last, of six.
    ]
    assert evaluation.summarise(predictions(labels, classes)) == {
        "top1": 1 / 3,
        "top5": 2 / 3,
        "num_examples": 3,
        "num_unlabelled": 1,
    }


def test_no_label_at_all():
    found = predictions(np.zeros((2, 6), bool), [[0], [1]])
    with pytest.raises(ValueError, match="No image has a label"):
        evaluation.top_k_accuracy(found, 1)


@pytest.mark.parametrize("label", [-1, 3])
def test_multi_hot_of_no_class(label):
    with pytest.raises(ValueError, match=r"label_sets\[1\] are classes"):
        evaluation.multi_hot([[0], [1, label]], 3)


def test_per_class_by_hand(tmp_path):
    rows = evaluation.per_class(
        [0, 0, 0, 1, 1, 2],
        [0, 0, 1, 1, 1, 0],
        ["cat", 'a "dog", grey', "c", "d"],
    )
    assert [row["images"] for row in rows] == [3, 2, 1, 0]
    assert [row["predicted"] for row in rows] == [3, 3, 0, 0]
    assert rows[0]["precision"] == rows[0]["recall"] == pytest.approx(2 / 3)
    assert rows[1]["precision"] == pytest.approx(2 / 3)
    assert rows[1]["recall"] == 1
    assert rows[1]["f1"] == pytest.approx(0.8)
    assert rows[2]["precision"] is None
    assert rows[2]["recall"] == 0
    assert rows[3]["recall"] is rows[3]["precision"] is rows[3]["f1"] is None
    path = tmp_path / "per_class.csv"
    write_csv(path, rows)
    with path.open(newline="") as file:
        read = list(csv.DictReader(file))
    assert [row["class"] for row in read] == ["cat", 'a "dog", grey', "c", "d"]
    assert read[3]["recall"] == ""
    assert float(read[1]["f1"]) == rows[1]["f1"]


def test_the_package_that_the_accuracy_needs_is_said(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn", None)
    with pytest.raises(ValueError, match="The accuracy.*scikit-learn"):
        evaluation.accuracy([0], [0])
