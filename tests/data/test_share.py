"""The shares of a batch, put together, are the batch."""

import itertools

import numpy as np
import pytest
import tiny_training as tiny

from keras_vit import data
from keras_vit.data.augmentation import rows_needed
from keras_vit.data.batches import Share

IMAGES, BATCH = 26, 12


pytestmark = pytest.mark.usefixtures("reader")


def batches_of(share, steps=4, first=1, **augmentation):
    stream = data.training_stream(
        tiny.examples(IMAGES, seed=0),
        len(tiny.CLASS_NAMES),
        image_size=8,
        channels=1,
        batch_size=BATCH,
        augmentation=data.AugmentationConfig(**augmentation),
        seed=5,
        share=share,
    )
    batches = itertools.islice(iter(stream.from_step(first)), steps)
    return [tuple(map(np.asarray, batch)) for batch in batches]


def evaluated(share, count):
    found = data.evaluation_batches(
        tiny.examples(count, seed=1),
        image_size=8,
        channels=1,
        batch_size=BATCH,
        share=share,
    )
    return [tuple(map(np.asarray, x)) for x in found]


@pytest.mark.parametrize(
    "augmentation",
    [
        {"shift": 0.2},
        {"mixup_alpha": 0.2},
        {"cutmix_alpha": 1.0},
        {"mixup_alpha": 0.2, "random_erasing_rate": 0.5},
    ],
    ids=["plain", "mixup", "cutmix", "erasing"],
)
@pytest.mark.parametrize("parts", [1, 2])
def test_shares_of_training_batches_are_their_rows(augmentation, parts):
    whole = batches_of(None, **augmentation)
    for index in range(3):
        share = Share(index, 3, parts)
        rows = share.rows(BATCH)
        found = batches_of(share, **augmentation)
        assert len(found) == len(whole)
        for batch, all_of_it in zip(found, whole, strict=True):
            for mine, expected in zip(batch, all_of_it, strict=True):
                np.testing.assert_array_equal(mine, expected[rows])


@pytest.mark.parametrize("count", [24, 25, 29, 35])
def test_shares_of_evaluation_batches_are_their_rows(count):
    whole = evaluated(None, count)
    images = 0
    for index in range(3):
        rows = Share(index, 3).rows(BATCH)
        found = evaluated(Share(index, 3), count)
        assert len(found) == len(whole)
        for batch, all_of_it in zip(found, whole, strict=True):
            images += int(batch[2].sum())
            for mine, expected in zip(batch, all_of_it, strict=True):
                np.testing.assert_array_equal(mine, expected[rows])
    assert images == count


def test_the_rows_of_all_shares_are_the_batch():
    for parts in (1, 2, 3):
        rows = [Share(i, 2, parts).rows(12) for i in range(2)]
        assert sorted(sum(rows, [])) == list(range(12))
    assert Share(1, 2, parts=3).rows(12) == [2, 3, 6, 7, 10, 11]


def test_a_batch_without_equal_shares_is_refused():
    with pytest.raises(ValueError, match="multiple of 6"):
        Share(0, 3, parts=2).rows(8)


def test_no_more_is_read_than_what_is_mixed():
    plain = data.AugmentationConfig(shift=0.2)
    mixed = data.AugmentationConfig(mixup_alpha=0.2)
    assert rows_needed(plain, [4, 5], 8) == [4, 5]
    assert rows_needed(mixed, [4, 5], 8) == [3, 4, 5]
    assert rows_needed(mixed, [0, 1, 4, 5], 8) == [0, 1, 3, 4, 5, 7]
