"""The list of the images of a run, and how it differs from another."""

import csv
import gzip
import hashlib

import numpy as np
import pytest
from PIL import Image as PillowImage

from keras_vit.data import DataConfig, Dataset, Examples, open_dataset
from keras_vit.data.manifest import (
    Image,
    changes,
    list_images,
    read_manifest,
    with_classes,
    write_manifest,
)

A = Image("ant/1.png", 9, "aa", "ant", "train")
B = Image("bee/1.png", 9, "bb", "bee", "test")


@pytest.fixture
def config(tmp_path):
    for number in range(12):
        path = tmp_path / "data" / "ab"[number % 2] / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        PillowImage.new("L", (4, 4), number).save(path)
    return DataConfig(folder=str(tmp_path / "data"), reader="pillow")


def test_every_image_has_its_line(config, tmp_path):
    path = tmp_path / "images.csv.gz"
    dataset = open_dataset(config)
    write_manifest(path, list_images(dataset, config) or [])
    with gzip.open(path, "rt", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 12
    for row in rows:
        file = tmp_path / "data" / row["name"]
        content = file.read_bytes()
        assert int(row["size"]) == len(content)
        assert row["sha256"] == hashlib.sha256(content).hexdigest()
        assert row["label"] == file.parent.name
        assert str(file) in getattr(dataset, row["part"]).contents


def test_a_list_is_read_as_it_was_written_to_the_same_bytes(config, tmp_path):
    odd = A._replace(name="=1+1,\n'", label="-x")
    images = [*(list_images(open_dataset(config), config) or ()), odd]
    paths = [tmp_path / "one.csv.gz", tmp_path / "other.csv.gz"]
    for path in paths:
        write_manifest(path, images)
    assert read_manifest(paths[0]) == images
    assert paths[0].read_bytes() == paths[1].read_bytes()
    # RFC 1952: no name of a file, and no time.
    assert paths[0].read_bytes()[3:8] == bytes(5)


@pytest.mark.parametrize(
    "content", [b"", b"text", gzip.compress(b"a,b\n1,2", mtime=0)]
)
def test_what_is_no_list_is_refused(tmp_path, content):
    path = tmp_path / "images.csv.gz"
    path.write_bytes(content)
    with pytest.raises(ValueError, match="images.csv.gz' is no list of images"):
        read_manifest(path)


@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        ([A, B], [A, B], []),
        ([A], [A, B], ["1 added ('bee/1.png')"]),
        ([A, B], [B], ["1 removed ('ant/1.png')"]),
        (
            [A],
            [A._replace(name="fly/1.png", label="fly")],
            ["1 renamed ('ant/1.png is now fly/1.png')"],
        ),
        (
            [A],
            [A._replace(sha256="cc")],
            ["1 with other contents ('ant/1.png')"],
        ),
        ([A], [A._replace(label="bee")], ["1 of another class ('ant/1.png')"]),
        ([A], [A._replace(part="test")], ["1 in another part ('ant/1.png')"]),
        ([A, B], [B, A], ["the same images in another order"]),
        ([A, A], [A], ["1 with other contents ('ant/1.png')"]),
        (
            [A],
            [A, *(B._replace(name=str(x)) for x in range(4))],
            ["4 added ('0', '1', '2' ...)"],
        ),
    ],
)
def test_differences_are_named(old, new, found):
    assert changes(old, new)[: len(found) or None] == found


def test_images_in_memory_are_listed_by_their_number():
    labels = np.array([[1, 0], [1, 1]], np.uint8)
    images = np.arange(8, dtype=np.uint8).reshape(2, 2, 2, 1)
    dataset = Dataset(
        Examples(images, labels, source="x"), None, None, ("a", "b")
    )
    found = list_images(dataset, DataConfig())
    assert found == [
        Image("x[0]", 4, hashlib.sha256(b"\0\1\2\3").hexdigest(), "a", "train"),
        Image(
            "x[1]", 4, hashlib.sha256(b"\4\5\6\7").hexdigest(), "a|b", "train"
        ),
    ]


def test_classes_are_matched_by_their_names():
    images = np.zeros((3, 2, 2, 1), np.uint8)
    one = Examples(images, np.array([0, 1, 2], np.int32))
    several = Examples(images, np.eye(3, dtype=np.uint8))
    for examples in (one, several):
        dataset = Dataset(examples, None, None, ("a", "b", "c"))
        found = with_classes(dataset, ["c", "a", "b"])
        assert found.class_names == ("c", "a", "b")
        labels = found.train.labels
        numbers = labels if labels.ndim == 1 else labels.argmax(-1)
        assert numbers.tolist() == [1, 2, 0]
    with pytest.raises(ValueError, match="'d' is missing and 'c' is new"):
        with_classes(dataset, ["a", "b", "d"])
