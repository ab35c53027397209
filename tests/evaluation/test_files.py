import csv
import dataclasses

import numpy as np
import pytest
from padded import padded_batches

from keras_vit import evaluation
from keras_vit.evaluation import Predictions, metrics

NAMES = ["a", "b", "c"]


def found(labels):
    classes = np.array([[0, 1], [1, 0], [2, 1], [0, 2]])
    shares = np.array([[0.9, 0.1], [0.6, 0.1], [0.7, 0.1], [0.8, 0.1]])
    return Predictions(np.asarray(labels), classes, shares, len(NAMES))


@pytest.fixture
def batches():
    images = np.arange(4, dtype=np.uint8).repeat(4).reshape(4, 2, 2, 1)
    return list(padded_batches(images, np.zeros(4, "int32"), 3))


def test_predictions_pictures_and_table(tmp_path, batches):
    predictions = found([0, 0, 2, 1])
    evaluation.write_evaluation(
        tmp_path, predictions, batches, NAMES, num_pictures=3
    )
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"predictions.npz", "predictions.csv", "per_class.csv"}
    again = evaluation.load_predictions(tmp_path / "predictions.npz")
    np.testing.assert_array_equal(again.classes, predictions.classes)
    with np.load(tmp_path / "predictions.npz") as arrays:
        assert arrays["picture_rows"].tolist() == [3, 1, 2]
        assert arrays["pictures"][:, 0, 0, 0].tolist() == [3, 1, 2]
    with (tmp_path / "per_class.csv").open() as file:
        recalls = [row["recall"] for row in csv.DictReader(file)]
    assert recalls == ["0.5", "0.0", "1.0"]


def test_images_of_the_cells_are_kept_once(tmp_path, batches):
    evaluation.write_evaluation(
        tmp_path, found([0, 0, 2, 1]), batches, NAMES, num_pictures=2
    )
    with np.load(tmp_path / "predictions.npz") as arrays:
        assert arrays["picture_rows"].tolist() == [3, 1]
        assert arrays["cell_rows"].tolist() == [0, 2]
        assert arrays["cell_pictures"][:, 0, 0, 0].tolist() == [0, 2]


def test_images_of_the_cells_have_a_limit_in_bytes(
    tmp_path, batches, monkeypatch
):
    monkeypatch.setattr(metrics, "MAX_CELL_BYTES", 2 * 2 * 2)  # two images
    evaluation.write_evaluation(
        tmp_path, found([0, 0, 2, 1]), batches, NAMES, num_pictures=0
    )
    with np.load(tmp_path / "predictions.npz") as arrays:
        assert arrays["cell_rows"].tolist() == [1, 0]


def test_no_table_where_images_have_several_labels(tmp_path, batches):
    evaluation.write_evaluation(
        tmp_path, found(np.ones((4, 3), bool)), batches, NAMES
    )
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"predictions.npz", "predictions.csv"}
    with (tmp_path / "predictions.csv").open() as file:
        lines = list(csv.DictReader(file))
    assert {line["true"] for line in lines} == {"a b c"}
    assert {line["right"] for line in lines} == {"1"}


def test_files_of_the_images_are_kept_and_listed(tmp_path, batches):
    files = np.array([f"cat/{i}.jpg" for i in range(4)])
    predictions = dataclasses.replace(found([0, 0, 2, 1]), names=files)
    evaluation.write_evaluation(tmp_path, predictions, batches, NAMES)
    again = evaluation.load_predictions(tmp_path / "predictions.npz")
    assert again.names is not None
    np.testing.assert_array_equal(again.names, files)
    lines = (tmp_path / "predictions.csv").read_text().splitlines()
    assert lines == [
        "image,true,predicted,probability,right",
        "cat/0.jpg,a,a,0.9,1",
        "cat/1.jpg,a,b,0.6,0",
        "cat/2.jpg,c,c,0.7,1",
        "cat/3.jpg,b,a,0.8,0",
    ]


def test_nothing_is_left_of_what_failed(tmp_path, batches):
    with pytest.raises(ValueError, match="3 classes. Received: 2 class names"):
        evaluation.write_evaluation(
            tmp_path, found([0, 0, 2, 1]), batches, NAMES[:2]
        )
    (tmp_path / "predictions.npz").mkdir()  # It cannot be replaced by a file.
    with pytest.raises(OSError):
        evaluation.write_evaluation(
            tmp_path, found([0, 0, 2, 1]), batches, NAMES
        )
    assert not list(tmp_path.glob(".partial*"))
