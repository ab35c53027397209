"""ReaL labels by file name; classes by name, WordNet id and number."""

import json

import numpy as np
import pytest

from keras_vit import evaluation, preprocessing
from keras_vit.evaluation import Predictions

LABELS = [[3, 5], [], [7]]


@pytest.fixture
def path(tmp_path):
    (tmp_path / "real.json").write_text(json.dumps(LABELS))
    return tmp_path / "real.json"


def test_real_labels_are_found_by_file_name(path):
    names = ["a/b/ILSVRC2012_val_00000003.JPEG", "ILSVRC2012_val_00000001.png"]
    assert evaluation.read_real_labels(path, names) == [[7], [3, 5]]


def test_real_accuracy_by_hand(path):
    names = [f"ILSVRC2012_val_0000000{i}.JPEG" for i in (1, 2, 3)]
    classes = np.array([[5, 1, 2, 3, 4], [7, 0, 1, 2, 3], [1, 2, 3, 4, 7]])
    found = Predictions(np.zeros(3, int), classes, np.zeros((3, 5)), 1000)
    assert evaluation.summarise_real(found, path, names) == {
        "real_top1": 0.5,
        "real_top5": 1.0,
        "real_num_examples": 2,
        "real_num_unlabelled": 1,
    }
    with pytest.raises(ValueError, match="2 names and 3 predictions"):
        evaluation.summarise_real(found, path, names[:2])


@pytest.mark.parametrize(
    "name",
    [
        "photo.jpg",
        "ILSVRC2012_val_00000000.JPEG",
        "ILSVRC2012_val_00000004.JPEG",
        "ILSVRC2012_val_000000010.JPEG",
    ],
)
def test_other_file_names_are_refused(path, name):
    with pytest.raises(ValueError, match="ILSVRC2012_val_00000003"):
        evaluation.read_real_labels(path, [name])


@pytest.mark.parametrize("text", ['{"a": 1}', "[1, 2]"])
def test_other_files_are_refused(path, text):
    path.write_text(text)
    with pytest.raises(ValueError, match="is not real.json"):
        evaluation.read_real_labels(path, [])


def test_classes_in_another_order():
    found = evaluation.match_classes(["dog", "Grey_Cat"], ["grey cat", "dog"])
    assert found.tolist() == [1, 0]


def test_wordnet_ids():
    # From the original list: 0 is the tench, 217 the English springer.
    names = ["n02102040", "n01440764"]
    model_names = preprocessing.class_names(1000)
    assert evaluation.match_classes(names, model_names).tolist() == [217, 0]


def test_numbers_in_the_order_of_the_alphabet():
    names = sorted(map(str, range(1000)))
    found = evaluation.match_classes(names, preprocessing.class_names(1000))
    assert found[:4].tolist() == [0, 1, 10, 100]


def test_names_of_digits_are_names_before_they_are_numbers():
    assert evaluation.match_classes(["0", "1"], ["1", "0"]).tolist() == [1, 0]


@pytest.mark.parametrize(
    "names", [["crane"], ["tench", "zebra fish"], ["1000"], ["n99999999"]]
)
def test_a_class_that_is_not_one_of_the_models(names):
    with pytest.raises(ValueError, match=f"1 of the data set's {len(names)}"):
        evaluation.match_classes(names, preprocessing.class_names(1000))
