"""Folds by the contents of images, of folders and CSV files."""

import collections
import hashlib

import numpy as np
import pytest
from PIL import Image

from keras_vit.data import DataConfig, open_dataset
from keras_vit.data.dataset import folds_by_content

FOLDS = 5


def hashes(count):
    return [hashlib.sha256(str(i).encode()).hexdigest() for i in range(count)]


def folds(values, labels, **options):
    return folds_by_content(
        values, labels, folds=FOLDS, seed=0, **options
    ).tolist()


def test_the_hash_and_the_seed_tell_the_fold():
    values = hashes(200)
    labels = np.zeros(200, int)
    # The place of split_by_content: 53 bits of the hash of seed and hash.
    expected = [
        int(
            (
                int.from_bytes(
                    hashlib.sha256(f"0:{x}".encode()).digest()[:8], "big"
                )
                >> 11
            )
            / 2**53
            * FOLDS
        )
        for x in values
    ]
    assert folds(values, labels) == expected


def test_images_that_are_added_move_no_others():
    values, labels = hashes(300), np.arange(300) % 2
    assert folds(values, labels)[:200] == folds(values[:200], labels[:200])


def test_equal_images_are_in_one_fold():
    values = hashes(40) * 3
    found = collections.defaultdict(set)
    for value, fold in zip(
        values, folds(values, np.arange(120) % 3), strict=True
    ):
        found[value].add(fold)
    assert all(len(x) == 1 for x in found.values())


def test_each_fold_has_images_of_each_class_that_has_enough():
    labels = np.repeat(np.arange(20), 6)
    found = np.array(folds(hashes(120), labels))
    for label in range(20):
        assert set(found[labels == label]) == set(range(FOLDS))


def test_of_rare_classes_there_are_always_images_to_train_on():
    labels = np.repeat(np.arange(40), 2)
    found = np.array(folds(hashes(80), labels))
    for label in range(40):
        assert len(set(found[labels == label])) == 2


def test_a_class_of_one_image_is_refused():
    with pytest.raises(ValueError, match="class 'bee' has 1 image"):
        folds(hashes(21), [*[0] * 20, 1], class_names=("ant", "bee"))
    with pytest.raises(ValueError, match="5 folds.*there are 2"):
        folds(hashes(2), [0, 0])


@pytest.fixture
def root(tmp_path):
    """A folder of two classes, each with 15 images, and the same as a CSV."""
    rows = ["image,label"]
    for number in range(30):
        name = f"{'ab'[number % 2]}/{number}.png"
        path = tmp_path / "images" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        # Two of three images are equal to another one of their class.
        Image.new("L", (4, 4), number % 20).save(path)
        rows.append(f"images/{name},{'ab'[number % 2]}")
    (tmp_path / "list.csv").write_text("\n".join(rows))
    return tmp_path


def opened(root, kind, **options):
    source = {"folder": "images", "csv": "list.csv"}[kind]
    return open_dataset(DataConfig(**{kind: str(root / source)}, **options))


@pytest.mark.parametrize("kind", ["folder", "csv"])
def test_each_image_is_validated_on_once(root, kind):
    seen = []
    for fold in range(FOLDS):
        dataset = opened(root, kind, folds=FOLDS, fold=fold)
        assert dataset.test is None
        parts = dataset.train, dataset.validation
        names = [set(part.contents) for part in parts]
        assert not names[0] & names[1] and len(names[0] | names[1]) == 30
        levels = [{np.asarray(Image.open(x)).max() for x in y} for y in names]
        assert not levels[0] & levels[1]
        seen += dataset.validation.contents.tolist()
        assert f"fold {fold} of 5 is the validation part" in dataset.notes
    assert len(seen) == len(set(seen)) == 30


def test_the_folder_and_the_csv_have_the_same_folds(root):
    found = [
        sorted(opened(root, x, folds=3, fold=1).validation.contents)
        for x in ("folder", "csv")
    ]
    assert found[0] == found[1]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"folds": 5}, "give data.fold, from 0 to 4.*cross-validate"),
        ({"folds": 5, "fold": 5}, "fold is from 0 to 4"),
        ({"folds": 1, "fold": 0}, "folds"),
        ({"fold": 0}, "fold does nothing with folds=None"),
    ],
)
def test_folds_that_there_are_not(root, options, message):
    with pytest.raises(ValueError, match=message):
        opened(root, "folder", **options)


def test_validation_images_and_folds_are_refused(tmp_path):
    for number in range(20):
        part = ("train", "val")[number // 10]
        path = tmp_path / part / "ab"[number % 2] / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("L", (4, 4), number).save(path)
    with pytest.raises(ValueError, match="validation images of its own"):
        open_dataset(DataConfig(folder=str(tmp_path), folds=2, fold=0))


def test_images_in_memory_have_folds_too():
    dataset = open_dataset(DataConfig(name="digits", folds=5, fold=0))
    assert len(dataset.train) + len(dataset.validation) == 1797
    assert 250 < len(dataset.validation) < 460
