"""Balanced sampling: each class equally often, by seed and epoch."""

import numpy as np
import pytest

from keras_vit import data
from keras_vit.data.seeds import balanced_order

LABELS = np.repeat([0, 1, 2], [20, 3, 7]).astype("int32")
READERS = ("tensorflow", "pillow")


def drawn(size, *, seed=0, epoch=0):
    return balanced_order(seed, epoch, LABELS, size)


@pytest.mark.parametrize("size", [30, 28, 9, 2])
def test_each_class_is_there_equally_often(size):
    counts = np.bincount(LABELS[drawn(size)], minlength=3)
    assert counts.sum() == size
    assert counts.max() - counts.min() <= 1


def test_images_of_a_class_are_used_equally_often():
    counts = np.bincount(drawn(30), minlength=30)
    # Ten of 20, ten of 3 and ten of 7.
    assert sorted(counts[:20]) == [0] * 10 + [1] * 10
    assert sorted(counts[20:23]) == [3, 3, 4]
    assert sorted(counts[23:]) == [1] * 4 + [2] * 3


def test_the_seed_and_the_epoch_decide():
    assert (drawn(30) == drawn(30)).all()
    assert (drawn(30) != drawn(30, epoch=1)).any()
    assert (drawn(30) != drawn(30, seed=1)).any()


def examples(reader, labels: np.ndarray = LABELS):
    images = np.arange(len(labels), dtype="uint8")
    images = np.broadcast_to(
        images[:, None, None, None], (len(labels), 8, 8, 1)
    )
    return data.Examples(
        images.copy(), labels, reader=reader, sampling="balanced"
    )


def stream(reader):
    return data.training_stream(
        examples(reader),
        3,
        image_size=8,
        channels=1,
        batch_size=6,
        preprocessing=data.PreprocessingConfig(train="squash"),
        class_weights=np.array([0.5, 1.0, 2.0]),
    )


@pytest.mark.parametrize("reader", READERS)
def test_batches_are_in_that_order_from_any_step_on(reader):
    order = np.concatenate([drawn(30, epoch=x) for x in (0, 1)])
    for step in (0, 3, 7):
        images, labels, weights = map(
            np.asarray, next(iter(stream(reader).from_step(step)))
        )
        expected = order[6 * step : 6 * step + 6]
        assert images[:, 0, 0, 0].tolist() == expected.tolist()
        assert labels.argmax(axis=1).tolist() == LABELS[expected].tolist()
        assert (
            weights.tolist()
            == np.choose(LABELS[expected], [0.5, 1, 2]).tolist()
        )
        named = stream(reader).names_of(step)
        assert named == [f"image[{i}]" for i in expected]


def test_several_classes_are_refused():
    with pytest.raises(ValueError, match="several classes.*sampling"):
        examples("pillow", np.ones((4, 3), "uint8"))
