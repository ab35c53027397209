"""`decode_predictions`: from scores to the names of classes."""

import json
import re

import numpy as np
import pytest
from image_kinds import KINDS
from keras import ops

from keras_vit.preprocessing import decode_predictions


def scores_of(num_classes, **best):
    scores = np.zeros((1, num_classes), "float32")
    for number, score in best.items():
        scores[0, int(number.strip("_"))] = score
    return scores


@pytest.mark.parametrize(
    "kind", ["numpy", "list of arrays", "the backend", "tensorflow", "torch"]
)
def test_imagenet_predictions(kind):
    # The elephant and its numbers are those of the Keras documentation.
    scores = scores_of(1000, _386=0.75, _101=0.125, _385=0.0625)
    (best,) = decode_predictions(KINDS[kind](scores), top=3)
    assert best == [
        ("n02504458", "African_elephant", 0.75),
        ("n01871265", "tusker", 0.125),
        ("n02504013", "Indian_elephant", 0.0625),
    ]


def test_imagenet_21k_predictions():
    scores = scores_of(21843, _1=0.25, _0=0.5)
    (best,) = decode_predictions(scores, top=2)
    assert best == [
        ("n00004475", "organism", 0.5),
        ("n00005787", "benthos", 0.25),
    ]


def test_five_classes_of_every_prediction():
    scores = np.random.default_rng(0).normal(size=(3, 1000))
    decoded = decode_predictions(scores)
    assert [len(best) for best in decoded] == [5, 5, 5]
    for row, best in zip(scores, decoded, strict=True):
        assert [score for *_, score in best] == sorted(row)[:-6:-1]


def test_equal_scores_come_in_the_order_of_the_classes():
    (best,) = decode_predictions(np.arange(1000)[np.newaxis] % 2, top=1000)
    wordnet_ids = [wordnet_id for wordnet_id, *_ in best]
    assert wordnet_ids[:500] == sorted(wordnet_ids[:500])
    assert wordnet_ids[500:] == sorted(wordnet_ids[500:])


def test_own_class_names():
    scores = ops.cast([[0.25, 0.75], [0.5, 0.125]], "bfloat16")
    decoded = decode_predictions(scores, top=2, class_names=["cat", "dog"])
    assert decoded == [
        [("dog", "dog", 0.75), ("cat", "cat", 0.25)],
        [("cat", "cat", 0.5), ("dog", "dog", 0.125)],
    ]


def test_own_class_names_replace_those_of_imagenet():
    names = [f"class {number}" for number in range(1000)]
    (best,) = decode_predictions(scores_of(1000, _7=1), 1, class_names=names)
    assert best == [("class 7", "class 7", 1.0)]


def test_decoded_predictions_are_json():
    decoded = decode_predictions(scores_of(1000, _0=1), top=1)
    assert json.dumps(decoded) == '[[["n01440764", "tench", 1.0]]]'


def test_no_predictions():
    assert decode_predictions(np.zeros((0, 1000))) == []


@pytest.mark.parametrize("shape", [(1000,), (1, 1, 1000), (2, 999), (1, 21841)])
def test_predictions_of_other_shapes(shape):
    with pytest.raises(ValueError, match=r"\(N, K\), K one of \(1000, 21843\)"):
        decode_predictions(np.zeros(shape))


def test_predictions_that_do_not_fit_the_class_names():
    with pytest.raises(ValueError, match=r"\(N, 2\).*\(1, 1000\)"):
        decode_predictions(np.zeros((1, 1000)), class_names=["cat", "dog"])


@pytest.mark.parametrize("top", [0, -1, 3, 1.0, True, "1", None])
def test_top_outside_of_the_classes(top):
    with pytest.raises(ValueError, match=re.escape("in 1..2")):
        decode_predictions(np.zeros((1, 2)), top, class_names=["cat", "dog"])


def test_predictions_with_nan():
    with pytest.raises(ValueError, match="NaN"):
        decode_predictions(np.full((1, 1000), np.nan))


@pytest.mark.parametrize("dtype", ["bool", "complex64", "str"])
def test_predictions_that_are_no_numbers(dtype):
    with pytest.raises(ValueError, match="integers or floating point"):
        decode_predictions(np.zeros((1, 1000)).astype(dtype))
