import dataclasses
import hashlib
import re
from typing import Any

import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_digits

from keras_vit.data import open_dataset
from keras_vit.data.config import DataConfig, data_of_run
from keras_vit.data.dataset import (
    Examples,
    content_hashes,
    split_by_content,
    stratified_split,
)
from keras_vit.training import Recipe
from keras_vit.training.run.resume import differences

FRACTIONS: dict[str, Any] = {"validation_fraction": 0.1, "test_fraction": 0.2}


@pytest.fixture(scope="module")
def labels():
    return load_digits().target


def test_split_holds_every_image_once(labels):
    parts = stratified_split(labels, seed=0, **FRACTIONS)
    together = np.sort(np.concatenate(parts))
    np.testing.assert_array_equal(together, np.arange(1797))


def test_split_sizes_are_the_fractions(labels):
    parts = stratified_split(labels, seed=0, **FRACTIONS)
    assert [len(part) for part in parts] == [1258, 180, 359]


def test_every_class_has_its_share_in_every_part(labels):
    shares = np.bincount(labels) / 1797
    for part in stratified_split(labels, seed=3, **FRACTIONS):
        counts = np.bincount(labels[part], minlength=10)
        assert np.abs(counts - shares * len(part)).max() < 1.5


def test_split_follows_its_seed(labels):
    first, again, other = (
        stratified_split(labels, seed=seed, **FRACTIONS)[2]
        for seed in (0, 0, 1)
    )
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


def hashed(texts):
    return [hashlib.sha256(x.encode()).hexdigest() for x in texts]


def part_of(hashes, labels, seed=0):
    """Each hash to its part, 0 for train, 1 for validation, 2 for test."""
    parts = split_by_content(hashes, labels, seed=seed, **FRACTIONS)
    together = np.sort(np.concatenate(parts))
    np.testing.assert_array_equal(together, np.arange(len(hashes)))
    return {hashes[i]: n for n, part in enumerate(parts) for i in part}


def test_parts_by_content_are_thresholds_of_the_hash():
    hashes = hashed(map(str, range(2000)))
    found = part_of(hashes, np.arange(2000) % 4, seed=7)
    for value in hashes:
        digest = hashlib.sha256(f"7:{value}".encode()).hexdigest()
        place = int(digest[:16], 16) / 16**16
        assert found[value] == (2 if place < 0.2 else 1 if place < 0.3 else 0)
    # Four standard deviations of a binomial distribution.
    counts = np.bincount(list(found.values()))
    shares = np.array([0.7, 0.1, 0.2])
    bound = 4 * np.sqrt(2000 * shares * (1 - shares))
    assert (np.abs(counts - 2000 * shares) < bound).all()


def test_files_that_come_and_go_move_no_other():
    hashes, labels = hashed(map(str, range(300))), np.arange(300) % 3
    before = part_of(hashes, labels)
    more = part_of(hashed(["new", "newer"]) + hashes, [0, 1, *labels])
    fewer = part_of(hashes[:-20], labels[:-20])
    assert before.items() <= more.items()
    assert fewer.items() <= before.items()


def test_equal_images_are_in_one_part_whatever_their_class():
    hashes = hashed(map(str, range(100))) * 2
    parts = split_by_content(hashes, [0] * 100 + [1] * 100, seed=0, **FRACTIONS)
    found = [{hashes[i] for i in part} for part in parts]
    assert sum(map(len, found)) == 100


def test_a_part_without_a_class_takes_the_nearest_image():
    hashes = hashed(map(str, range(8)))

    def place(value):
        digest = hashlib.sha256(f"0:{value}".encode()).digest()
        return int.from_bytes(digest[:8], "big") / 2**64

    high = [x for x in sorted(hashes, key=place) if place(x) >= 0.3]
    found = part_of(high, [0] * len(high))
    # The test is filled first, then the validation.
    assert [found[x] for x in high] == [2, 1] + [0] * (len(high) - 2)


def test_too_few_different_images_are_refused():
    values = hashed("aab")
    with pytest.raises(ValueError, match="3 parts .* class 0 has 2"):
        split_by_content(values, [0] * 3, seed=0, **FRACTIONS)
    # As of a folder that is read without classes.
    options = {**FRACTIONS, "class_names": ("",)}
    with pytest.raises(ValueError, match="images, and there are 2. Equal"):
        split_by_content(values, [0] * 3, seed=0, **options)


def test_hashes_are_of_the_bytes_of_files_and_of_pixels(tmp_path):
    path = tmp_path / "a.png"
    path.write_bytes(b"bytes")
    images = np.arange(8, dtype=np.uint8).reshape(2, 2, 2, 1)
    labels = np.zeros(2, np.int32)
    files = np.array([str(path), "gone"], object)
    expected = [hashlib.sha256(x.tobytes()).hexdigest() for x in images]
    assert content_hashes(Examples(images, labels)) == expected
    found = content_hashes(Examples(files, labels, kind="path"))
    assert found == [hashlib.sha256(b"bytes").hexdigest(), ""]
    path.write_bytes(b"other")
    found = content_hashes(Examples(files, labels, kind="path"))
    assert found[0] == hashlib.sha256(b"other").hexdigest()


def test_a_run_begun_before_is_split_by_position():
    old = {"data": {"folder": "flowers"}}
    assert data_of_run(old).split_by == "position"
    new = {"data": {"folder": "flowers", "split_by": "content"}}
    assert data_of_run(new).split_by == "content"
    assert DataConfig(folder="flowers").split_by == "content"
    recipe = Recipe(data=DataConfig(folder="flowers"))
    begun = {"data": {"folder": "flowers", "name": None, "reader": "auto"}}
    assert not differences(begun, recipe)
    with pytest.raises(ValueError, match="data in the config of the run"):
        data_of_run({"data": {"fodler": "flowers"}})


@pytest.mark.once
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"folder": "parts"}, "the data has validation images. Received"),
        ({"csv": "list.csv", "fold": 0}, "fold 0 is validated on. Received"),
        ({"folder": "one", "folds": 2, "fold": 0}, "there are 2 folds. Rec"),
        ({"train_split": "train[:50]"}, "'train[:50]', None, None). Received"),
    ],
)
def test_a_fraction_of_a_part_that_is_not_cut_off_is_refused(
    options, message, tmp_path
):
    lines = ["image,label,fold"]
    for number in range(24):
        for folder in ("one", f"parts/{('train', 'val')[number > 11]}"):
            path = tmp_path / folder / "ab"[number % 2] / f"{number}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.new("L", (8, 8), number).save(path)
        name = path.relative_to(tmp_path)
        lines.append(f"{name},{'ab'[number % 2]},{number // 2 % 2}")
    (tmp_path / "list.csv").write_text("\n".join(lines))
    places: dict[str, Any] = {
        name: str(tmp_path / value) if name in ("folder", "csv") else value
        for name, value in options.items()
    }
    config = DataConfig(**places, reader="pillow", validation_fraction=0.3)
    with pytest.raises(ValueError, match=re.escape(message)) as error:
        open_dataset(config)
    assert "data.validation_fraction=0.3. Leave it out" in str(error.value)
    for fraction in (0.0, 0.1):  # Nothing, and what it is if none is given.
        same = dataclasses.replace(config, validation_fraction=fraction)
        assert len(open_dataset(same).train)
