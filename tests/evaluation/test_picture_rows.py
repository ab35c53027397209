import numpy as np
import pytest
from padded import padded_batches

from keras_vit import evaluation
from keras_vit.evaluation import Predictions
from keras_vit.evaluation.metrics import confusion_rows

# Rows: right and sure, wrong and sure, wrong and unsure, right and unsure.
FOUND = Predictions(
    labels=np.array([0, 1, 2, 2]),
    classes=np.array([[0], [0], [1], [2]]),
    probabilities=np.array([[0.9], [0.8], [0.5], [0.6]]),
    num_classes=3,
)


def test_confident_mistakes_come_first_then_unsure_right_answers():
    assert evaluation.worst_rows(FOUND, 9).tolist() == [1, 2, 3, 0]
    assert evaluation.worst_rows(FOUND, 1).tolist() == [1]


def test_images_without_a_label_are_no_mistakes():
    labels = np.eye(3, dtype=bool)[[0, 1, 2, 2]]
    labels[1] = False
    found = Predictions(labels, FOUND.classes, FOUND.probabilities, 3)
    assert evaluation.worst_rows(found, 9).tolist() == [2, 3, 0]


@pytest.mark.parametrize("batch_size", [1, 3, 4, 11, 16])
def test_images_are_those_of_the_rows(batch_size):
    images = np.arange(11, dtype=np.uint8).repeat(12).reshape(11, 2, 2, 3)
    labels = np.zeros(11, "int32")
    batches = list(padded_batches(images, labels, batch_size))
    # Rows that are no images must not be counted.
    batches = [
        (images[[10]], labels[[0]], np.zeros(1, bool)),
        *batches,
    ]
    found = evaluation.images_at(batches, np.array([7, 0, 10, 3]))
    np.testing.assert_array_equal(found, images[[7, 0, 10, 3]])


def test_fractions_are_rounded_and_kept_in_range():
    images = np.array([-3, 127.6, 261], "float32").reshape(3, 1, 1, 1)
    batch = (images, np.zeros(3, "int32"), np.ones(3, bool))
    found = evaluation.images_at([batch], [2, 1, 0])
    assert found.dtype == np.uint8
    assert found.ravel().tolist() == [255, 128, 0]


def test_batches_that_end_too_early():
    images = np.zeros((3, 1, 1, 1), np.uint8)
    batches = padded_batches(images, np.zeros(3, "int32"), 2)
    with pytest.raises(ValueError, match=r"3 images. Received: rows \[3, 5\]"):
        evaluation.images_at(batches, np.array([0, 3, 5]))


# Class 0 is taken for 1 three times, 1 for 0 once; the others are right.
CELLS = Predictions(
    labels=np.array([0, 0, 0, 1, 0, 1, 1]),
    classes=np.array([[1], [1], [1], [0], [0], [1], [1]]),
    probabilities=np.array([[0.5], [0.9], [0.7], [0.6], [0.8], [0.6], [0.7]]),
    num_classes=2,
)


def test_frequent_mistakes_come_first_and_of_a_cell_the_confident():
    assert confusion_rows(CELLS, 9).tolist() == [1, 2, 0, 3, 6, 5, 4]
    assert confusion_rows(CELLS, 9, per_cell=1).tolist() == [1, 3, 6, 4]


def test_right_answers_have_a_share_of_few_pictures():
    assert confusion_rows(CELLS, 4).tolist() == [1, 2, 0, 6]
    assert confusion_rows(CELLS, 1).tolist() == [6]
    assert confusion_rows(CELLS, 0).tolist() == []
