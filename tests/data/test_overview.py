"""The table of a data set before the first step."""

import numpy as np

from keras_vit.data import DataConfig, Dataset, Examples
from keras_vit.data.manifest import list_images, overview


def examples(labels, first=0):
    """Different images, whose pixels begin at a level."""
    count = len(labels)
    levels = np.arange(first, first + count, dtype=np.uint16)
    images = np.zeros((count, 2, 1, 1), np.uint8)
    images[:, 0, 0, 0], images[:, 1, 0, 0] = levels // 256, levels % 256
    return Examples(images, np.array(labels, np.int32), source="x")


def lines(*parts, names=("ant", "bee"), **fields):
    three = [*parts, None, None][:3]
    dataset = Dataset(*three, class_names=names, name="pets", **fields)
    return overview(dataset, list_images(dataset, DataConfig())).splitlines()


def test_each_class_has_its_images_of_each_part():
    found = lines(examples([0, 0, 1]), examples([1, 0], 10), examples([1], 20))
    assert found == [
        "Data: pets",
        "Task: classification",
        "",
        "| 2 classes  | train | validation | test |",
        "| ---------- | ----: | ---------: | ---: |",
        "| all images |     3 |          2 |    1 |",
        "| ant        |     2 |          1 |    0 |",
        "| bee        |     1 |          1 |    1 |",
        "",
        "look at: test has no images of 'ant'",
    ]


def test_what_is_learned_without_labels_has_no_classes_to_lack():
    pixels = np.zeros((2, 1, 1, 1), np.uint8)
    twice = Examples(pixels, np.array([0, 1], np.int32), source="x")
    dataset = Dataset(twice, examples([1], 10), None, ("ant", "bee"), "pets")
    images = list_images(dataset, DataConfig())
    assert overview(dataset, images, unlabelled=True).splitlines() == [
        "Data: pets",
        "Task: none, without labels",
        "",
        "|            | train | validation |",
        "| ---------- | ----: | ---------: |",
        "| all images |     2 |          1 |",
        "",
        *overview(dataset, images).splitlines()[-1:],
    ]
    assert "in several classes" in overview(dataset, images)


def test_of_many_classes_the_smallest_and_the_largest_are_shown():
    sizes = np.arange(1, 31)
    labels = np.repeat(np.arange(30), sizes)
    names = tuple(f"class_{i}" for i in range(30))
    found = lines(examples(labels), names=names)
    cells = [[x.strip() for x in line.split("|")[1:-1]] for line in found[5:]]
    assert cells == [
        ["all images", "465"],
        *([f"class_{i}", f"{i + 1}"] for i in range(5)),
        ["... 20 classes between", ""],
        *([f"class_{i}", f"{i + 1}"] for i in range(25, 30)),
    ]


def test_several_labels_are_counted_for_each_class():
    labels = np.array([[1, 1], [0, 1]], np.uint8)
    both = Examples(np.arange(2, dtype=np.uint8).reshape(2, 1, 1, 1), labels)
    found = lines(both)
    assert [x.split("|")[2].strip() for x in found[5:8]] == ["2", "1", "2"]
    assert found[1] == "Task: multilabel"


def test_what_looks_wrong_is_said():
    train, test = examples([0, 1, 1]), examples([0, 1, 0, 0], first=1)
    found = lines(train, None, test, names=("Train", "bee"))
    found = [x for x in found if x.startswith("look at")]
    assert found == [
        "look at: a class is called 'Train', as a part of data is",
        "look at: 2 image(s) are in several parts with the same contents, as "
        "'x[1]' (train) and 'x[0]' (test)",
        "look at: 1 image(s) are in several classes with the same contents, as "
        "'x[1]' (bee) and 'x[0]' (Train)",
        "look at: 2 image(s) repeat others, as 'x[1]', 'x[0]'",
    ]


def test_what_is_left_out_is_said():
    found = lines(
        examples([0, 1]),
        skipped=("a.jpg", "b.jpg"),
        other_files=("note.txt",),
        notes=("the folder 'test' has no classes",),
    )
    assert found[-3:] == [
        "left out: 2 not readable as images, as 'a.jpg'",
        "left out: 1 without the suffix of an image, as 'note.txt'",
        "note: the folder 'test' has no classes",
    ]
