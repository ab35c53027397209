import numpy as np
import pytest

from keras_vit import evaluation


@pytest.fixture
def generator():
    return np.random.default_rng(0)


def test_nearest_neighbour_is_the_brute_force_one(generator):
    images = generator.integers(0, 256, (60, 4, 4, 1), dtype=np.uint8)
    labels = generator.integers(0, 5, 40)
    queries = images[40:].astype(float)
    differences = queries[:, None] - images[None, :40]
    distances = (differences**2).sum(axis=(2, 3, 4))
    np.testing.assert_array_equal(
        evaluation.nearest_neighbour_predictions(
            images[:40], labels, images[40:]
        ),
        labels[distances.argmin(axis=1)],
    )


def test_accuracy_is_the_share_of_right_answers():
    assert evaluation.accuracy([0, 1, 2, 2, 1], [0, 1, 1, 2, 0]) == 0.6
