"""What several processes found of their shares, in the order of images."""

import numpy as np
import pytest
from few_shot_cases import BATCHES, make_examples

from keras_vit.data import Share
from keras_vit.evaluation import Together

SIZE = 16  # of a batch


@pytest.mark.parametrize("count", [1, 2, 4])
def test_shares_are_put_together_in_the_order_of_images(count):
    """43 images in batches of 16: the last ones are padding."""
    examples = make_examples(43, seed=0)
    found = []  # of each process
    for index in range(count):
        batches = list(BATCHES(examples, share=Share(index, count)))
        parts = [[np.asarray(x) for x in batch] for batch in batches]
        found.append([np.concatenate(x) for x in zip(*parts, strict=True)])
    # Each process would pass its own and get those of all.
    images, labels, mask = (np.stack(x) for x in zip(*found, strict=True))
    together = Together(lambda arrays: arrays, SIZE // count)
    whole = together.rows(mask)
    assert whole.sum() == 43
    assert together.total(mask.sum(axis=1)) == 43
    assert together.total(mask).shape == mask.shape[1:]
    np.testing.assert_array_equal(together.rows(labels)[whole], examples.labels)
    np.testing.assert_array_equal(
        together.rows(images)[whole], examples.contents
    )
