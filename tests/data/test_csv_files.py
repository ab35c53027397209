import numpy as np
import pytest
from PIL import Image

from keras_vit.data import DataConfig, open_dataset
from keras_vit.data.manifest import overview


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


def labelled(tmp_path, *values, **options):
    """Images whose labels are repetitions of some values."""
    text = lines(lambda i: f'"{values[i % len(values)]}"')
    return whole(written(tmp_path, text), **options)


@pytest.mark.parametrize(
    ("values", "names", "rows", "note"),
    [
        (
            ("scab rust", "scab", "rust", "frog_eye scab"),
            ("frog_eye", "rust", "scab"),
            [[0, 1, 1], [0, 0, 1], [0, 1, 0], [1, 0, 1]],
            "10 of 20 images have several labels, separated by ' '",
        ),
        (("a|b c", "b c"), ("a", "b c"), [[1, 1], [0, 1]], "by '|'"),
        (("a;b", "c"), ("a", "b", "c"), [[1, 1, 0], [0, 0, 1]], "by ';'"),
        (("x, y", "x", "y"), ("x", "y"), [[1, 1], [1, 0], [0, 1]], "by ','"),
        (
            ("[0, 10]", "[2]", "[]"),
            ("0", "2", "10"),
            [[1, 0, 1], [0, 1, 0], [0, 0, 0]],
            "written as lists",
        ),
        (("['a', 'b']", "['b']"), ("a", "b"), [[1, 1], [0, 1]], "lists"),
    ],
)
def test_images_may_have_several_labels(tmp_path, values, names, rows, note):
    dataset = labelled(tmp_path, *values)
    assert dataset.class_names == names
    expected = np.tile(rows, (20 // len(rows) + 1, 1))[:20]
    np.testing.assert_array_equal(dataset.train.labels, expected)
    assert dataset.train.labels.dtype == np.uint8
    (found,) = dataset.notes
    assert note in found


@pytest.mark.parametrize(
    "values",
    [
        ("golden retriever", "labrador retriever"),
        ("Paris, France", "Rome, Italy"),
    ],
)
def test_names_of_several_words_are_one_class(tmp_path, values):
    dataset = labelled(tmp_path, *values)
    assert dataset.class_names == values
    assert dataset.train.labels.ndim == 1


def test_what_a_label_is_may_be_said(tmp_path):
    dataset = labelled(tmp_path, "a|b", "b", label_kind="one")
    assert dataset.class_names == ("a|b", "b")
    dataset = labelled(tmp_path, "a+b", "b", label_separator="+")
    assert dataset.train.labels[:2].tolist() == [[1, 1], [0, 1]]
    numbers = labelled(tmp_path, "0.5", "1.5", label_kind="one")
    assert numbers.class_names == ("0.5", "1.5")
    with pytest.raises(ValueError, match="no image with several labels"):
        labelled(tmp_path, "a", "b", label_kind="several")


def test_columns_of_0_and_1_are_classes(tmp_path):
    rows = ["image,id,rust,scab"]
    rows += [f"images/{i}.png,x{i},{i % 2},{i // 2 % 2}" for i in range(20)]
    path = written(tmp_path, "\n".join(rows))
    several = whole(path)
    assert several.class_names == ("rust", "scab")
    expected = [[i % 2, i // 2 % 2] for i in range(20)]
    np.testing.assert_array_equal(several.train.labels, expected)
    assert "5 of 20 images have several" in several.notes[0]
    rows = ["image,a,b,extra"]
    rows += [f"images/{i}.png,{i % 2},{1 - i % 2},1" for i in range(20)]
    one = whole(written(tmp_path, "\n".join(rows)), label_key="a,b")
    assert one.class_names == ("a", "b")
    assert one.train.labels.tolist() == [1, 0] * 10


@pytest.mark.parametrize("missing", ["nan", "NaN", "", "N/A", "null"])
def test_lines_without_a_label_may_be_left_out(tmp_path, missing):
    values = ("ant", "bee", "none", missing)
    with pytest.raises(ValueError, match="line 5 .* as in 5 of 20.*skip"):
        labelled(tmp_path, *values)
    dataset = labelled(tmp_path, *values, on_missing_label="skip")
    assert dataset.class_names == ("ant", "bee", "none")
    assert len(dataset.train) == 15
    assert dataset.notes == ("without a label, left out: 5 of 20 lines",)


def test_numbers_beside_missing_values_are_whole(tmp_path):
    dataset = labelled(
        tmp_path, "0.0", "1.0", "2.0", "", on_missing_label="skip"
    )
    assert dataset.class_names == ("0", "1", "2")
    assert dataset.train.labels[:3].tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("label", "value"),
    [
        (lambda i: i / 8, lambda i: i / 8),
        (lambda i: f"{i}e-3", lambda i: i / 1000),
        (lambda i: 30 + i, lambda i: 30 + i),
    ],
)
def test_quantities_are_numbers_to_predict(tmp_path, label, value):
    dataset = whole(written(tmp_path, lines(label)))
    assert dataset.task == "regression" and dataset.class_names == ("label",)
    assert dataset.train.labels.dtype == np.float64
    assert dataset.train.labels.tolist() == [[value(i)] for i in range(20)]
    assert "label_kind one" in dataset.notes[0]
    table = overview(dataset, None)
    assert "Task: regression" in table
    cells = [x.strip() for x in table.split("|")]
    mean = np.mean([value(i) for i in range(20)])
    assert float(cells[cells.index("label, mean") + 1]) == pytest.approx(mean)
    classes = whole(written(tmp_path, lines(label)), label_kind="one")
    assert classes.task == "classification" and len(classes.class_names) > 10


def test_numbers_of_several_columns(tmp_path):
    text = lines(lambda i: f"{i},{-i / 4}", header="image,width,height")
    dataset = opened(written(tmp_path, text), label_key="width,height")
    assert dataset.class_names == ("width", "height")
    for part in (dataset.train, dataset.validation, dataset.test):
        assert (part.labels[:, 1] == -part.labels[:, 0] / 4).all()
    sizes = [len(dataset.train), len(dataset.validation), len(dataset.test)]
    assert sum(sizes) == 20


def test_whole_numbers_are_numbers_where_that_is_asked_for(tmp_path):
    path = written(tmp_path, lines(lambda i: i % 2))
    dataset = whole(path, label_kind="number")
    assert dataset.task == "regression"
    assert dataset.train.labels[:3].tolist() == [[0.0], [1.0], [0.0]]
    odd = written(tmp_path, lines(lambda i: "x" if i == 3 else i))
    with pytest.raises(ValueError, match="Line 5 .*'x' in a column of numb"):
        whole(odd, label_kind="number")


def test_images_of_another_folder_and_without_suffix(tmp_path):
    rows = [f"{i},{i % 2}" for i in range(20)]
    path = written(tmp_path, "\n".join(["image,label", *rows]))
    for suffix in (".png", "png"):
        found = whole(path, image_root="images", image_suffix=suffix)
        assert found.train.name_of(3) == str(tmp_path / "images" / "3.png")
    with pytest.raises(ValueError, match="20 of 20 lines.*image_suffix .png"):
        whole(path, image_root="images")
    with pytest.raises(ValueError, match="no folder '.*nowhere'"):
        whole(path, image_root="nowhere")


def test_absent_files_may_be_left_out(tmp_path):
    path = written(tmp_path, lines(lambda i: i % 2, count=22))
    dataset = whole(path, skip_missing=True)
    assert len(dataset.train) == 20
    (note,) = dataset.notes
    assert note.startswith("no such files, left out: 2 file(s): ")


def test_a_fold_is_the_validation_part(tmp_path):
    text = lines(lambda i: f"{i % 2},{i % 5}.0", header="image,label,fold")
    path = written(tmp_path, text)
    dataset = opened(path, fold=3)
    assert len(dataset.train) == 16 and dataset.test is None
    names = sorted(x.split("/")[-1] for x in dataset.validation.contents)
    assert names == ["13.png", "18.png", "3.png", "8.png"]
    assert "--data.fold 0" in opened(path).notes[0]
    with pytest.raises(ValueError, match="the folds '0.0'.*fold=7"):
        opened(path, fold=7)


@pytest.mark.parametrize("column", ["part", "subset", "anything"])
def test_a_column_of_parts_may_have_another_name(tmp_path, column):
    part = ["train", "train", "val", "testing"]
    text = lines(
        lambda i: f"{i // 4 % 2},{part[i % 4]}", header=f"image,label,{column}"
    )
    key = column if column == "anything" else None
    dataset = opened(written(tmp_path, text), split_key=key)
    parts = (dataset.train, dataset.validation, dataset.test)
    assert [len(x) for x in parts] == [10, 5, 5]
    assert dataset.notes == (f"parts are those of the column {column!r}",)
    with pytest.raises(ValueError, match="no column split_key='other'"):
        opened(written(tmp_path, text), split_key="other")


def test_a_class_that_only_the_test_has_is_refused(tmp_path):
    text = lines(
        lambda i: (
            f"{'new' if i > 15 else i % 2},{'test' if i > 9 else 'train'}"
        ),
        header="image,label,split",
    )
    with pytest.raises(ValueError, match="test lines .* lack: 'new'"):
        opened(written(tmp_path, text))
