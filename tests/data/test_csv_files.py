import numpy as np
import pytest
from PIL import Image

from keras_vit.data import DataConfig, open_dataset


def written(tmp_path, text, name="train.csv"):
    (tmp_path / "images").mkdir(exist_ok=True)
    for number in range(20):
        path = tmp_path / "images" / f"{number}.png"
        Image.new("L", (4, 4), number).save(path)
    (tmp_path / name).write_text(text)
    return str(tmp_path / name)


def lines(label, count=20, header="image,label", extra=""):
    rows = [f"images/{i}.png,{label(i)}{extra}" for i in range(count)]
    return "\n".join([header, *rows]) + "\n"


def opened(path, **options):
    return open_dataset(DataConfig(csv=path, **options))


def whole(path, **options):
    fractions = {"validation_fraction": 0.0, "test_fraction": 0.0}
    return opened(path, **fractions, **options)


def test_names_are_classes_in_alphabetical_order(tmp_path):
    path = written(tmp_path, lines(lambda i: "no" if i % 3 else "maybe"))
    dataset = whole(path)
    assert dataset.class_names == ("maybe", "no")
    expected = [int(i % 3 > 0) for i in range(20)]
    np.testing.assert_array_equal(dataset.train.labels, expected)
    assert dataset.train.name_of(7) == str(tmp_path / "images" / "7.png")
    assert dataset.name == "train"


def test_numbers_are_the_classes_themselves(tmp_path):
    path = written(tmp_path, lines(lambda i: i % 4 + 8))
    dataset = whole(path)
    assert dataset.class_names == tuple(map(str, range(12)))
    np.testing.assert_array_equal(dataset.train.labels, np.arange(20) % 4 + 8)


def test_columns_have_any_name(tmp_path):
    text = lines(lambda i: i % 2, header="file,kind")
    path = written(tmp_path, text)
    dataset = whole(path, image_key="file", label_key="kind")
    assert len(dataset.train) == 20
    with pytest.raises(ValueError, match="no column image_key='image'.*'fil"):
        whole(path)


def test_a_column_of_splits_is_used(tmp_path):
    splits = ["train"] * 12 + ["val"] * 3 + ["test"] * 5
    text = lines(lambda i: f"{i % 2},{splits[i]}", header="image,label,split")
    dataset = opened(written(tmp_path, text))
    parts = (dataset.train, dataset.validation, dataset.test)
    assert [len(part) for part in parts] == [12, 3, 5]
    assert dataset.test.name_of(0).endswith("15.png")


def test_without_one_it_is_cut(tmp_path):
    path = written(tmp_path, lines(lambda i: i % 2))
    dataset = opened(path, split_by="position")
    parts = (dataset.train, dataset.validation, dataset.test)
    assert [len(part) for part in parts] == [14, 2, 4]
    dataset = opened(path)
    parts = (dataset.train, dataset.validation, dataset.test)
    assert sum(len(part) for part in parts) == 20
    for part in parts:
        assert set(part.labels) == {0, 1}


def test_the_lines_of_one_file_are_in_one_part(tmp_path):
    text = lines(lambda i: i % 2)
    path = written(tmp_path, text + text.partition("\n")[2])
    dataset = opened(path)
    parts = (dataset.train, dataset.validation, dataset.test)
    assert sum(len(part) for part in parts) == 40
    files = [set(part.contents) for part in parts]
    assert sum(map(len, files)) == len(set.union(*files)) == 20


def test_a_byte_order_mark_of_spreadsheets_is_no_letter(tmp_path):
    path = written(tmp_path, "\ufeff" + lines(lambda i: i % 2))
    assert len(whole(path).train) == 20


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no column image_key='image'.*names nothing"),
        ("image,label\n", "lists no images"),
        (lines(lambda i: "cat"), "two classes: every label.*'cat'"),
        (lines(lambda i: i - 1), "label '-1' in line 2.*start at 0"),
        (lines(lambda i: "" if i == 4 else i), "no label in line 6"),
        (lines(lambda i: i, count=22), r"Line 22 .*no file .*20.png"),
        (
            lines(lambda i: f"{i},devel", header="image,label,split"),
            "unknown split 'devel'",
        ),
        (
            lines(lambda i: f"{i},test", header="image,label,split"),
            "no lines of the split 'train'",
        ),
    ],
)
def test_wrong_files_say_what_is_wrong(tmp_path, text, message):
    with pytest.raises(ValueError, match=message):
        opened(written(tmp_path, text))


@pytest.mark.parametrize("content", [None, b"\xff\xfe\x00\x01image,label"])
def test_files_that_are_no_text_are_named(tmp_path, content):
    path = tmp_path / "train.csv"
    if content:
        path.write_bytes(content)
    with pytest.raises(ValueError, match="train.csv' cannot be read as a CSV"):
        opened(str(path))
