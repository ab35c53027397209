import numpy as np
import pytest
from numbered import PLAIN, encoded, numbered

from keras_vit.data import evaluation_batches

pytestmark = pytest.mark.usefixtures("reader")


@pytest.mark.parametrize("size", [1, 2, 3, 4, 7, 10, 13])
def test_evaluation_holds_every_image_once(size):
    found = []
    for images, labels, mask in evaluation_batches(
        numbered(size),
        image_size=4,
        channels=1,
        batch_size=3,
        preprocessing=PLAIN,
    ):
        assert images.shape == (3, 4, 4, 1)
        images, labels, mask = map(np.asarray, (images, labels, mask))
        assert labels.dtype == np.int32
        found += images[mask, 0, 0, 0].tolist()
        np.testing.assert_array_equal(labels[mask], images[mask, 0, 0, 0])
        assert not images[~mask].any()
    assert found == list(range(size))


def test_evaluation_masks_what_is_skipped_and_says_how_many_batches():
    found = evaluation_batches(
        encoded([5]),
        image_size=4,
        channels=1,
        batch_size=3,
        preprocessing=PLAIN,
    )
    assert len(found) == 4
    masks = np.concatenate([np.asarray(mask) for _, _, mask in found])
    np.testing.assert_array_equal(np.flatnonzero(~masks), [5, 10, 11])
