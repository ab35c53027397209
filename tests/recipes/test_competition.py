"""Lists and submissions of competitions, in the columns of their files."""

import csv

import numpy as np
import pytest
import served
from competition.files import write_labels, write_submission
from PIL import Image

import keras_vit

NAMES = ("cat", "dog", "owl")


def rows_of(path):
    with open(path, newline="") as file:
        return list(csv.reader(file))


@pytest.fixture
def run_folder(tmp_path):
    return served.save_run(tmp_path / "run", NAMES)


@pytest.fixture
def files(tmp_path):
    """Three images with ids for names, and a sample of the submission."""
    random = np.random.default_rng(0)
    folder = tmp_path / "images"
    folder.mkdir()
    for name in ("b7", "a1", "c3"):
        pixels = random.integers(0, 256, (9, 7, 3), np.uint8)
        Image.fromarray(pixels).save(folder / f"{name}.png")
    (tmp_path / "sample.csv").write_text("img,kind\nc3,x\na1,x\nb7,x\n")
    return tmp_path


def test_a_list_of_ids_becomes_one_of_paths(files):
    (files / "in.csv").write_text("kind,img\ndog,a1\ncat,c3\ndog,b7\n")
    write_labels(
        files / "out.csv",
        files / "in.csv",
        files / "images",
        id_key="img",
        label_key="kind",
        suffix=".png",
    )
    assert rows_of(files / "out.csv") == [
        ["image", "label"],
        [str(files / "images" / "a1.png"), "dog"],
        [str(files / "images" / "c3.png"), "cat"],
        [str(files / "images" / "b7.png"), "dog"],
    ]
    found = keras_vit.data.open_dataset(
        keras_vit.data.DataConfig(
            csv=str(files / "out.csv"),
            validation_fraction=0.0,
            test_fraction=0.0,
        )
    )
    assert found.class_names == ("cat", "dog")
    np.testing.assert_array_equal(found.train.labels, [1, 0, 1])


def submitted(files, run_folder, sample: str | None = "sample.csv"):
    write_submission(
        files / "submission.csv",
        run_folder,
        files / "images",
        sample=sample and files / sample,
        suffix=".png",
        batch_size=2,
    )
    return rows_of(files / "submission.csv")


def expected(files, run_folder, name):
    """What the model says of an image alone."""
    (found,) = keras_vit.predict(run_folder, files / "images" / name, top=3)
    return dict(found.classes)


def test_two_columns_get_the_most_probable_class(files, run_folder):
    header, *rows = submitted(files, run_folder)
    assert header == ["img", "kind"]
    assert [row[0] for row in rows] == ["c3", "a1", "b7"]
    for name, answer in rows:
        shares = expected(files, run_folder, f"{name}.png")
        assert answer == max(shares, key=shares.__getitem__)


def test_a_column_for_each_class_gets_its_probability(files, run_folder):
    (files / "wide.csv").write_text("id,owl,cat,dog\na1,0,0,0\nb7,0,0,0\n")
    header, *rows = submitted(files, run_folder, "wide.csv")
    assert header == ["id", "owl", "cat", "dog"]
    assert [row[0] for row in rows] == ["a1", "b7"]
    for name, *found in rows:
        shares = expected(files, run_folder, f"{name}.png")
        wanted = [shares[known] for known in header[1:]]
        np.testing.assert_allclose(list(map(float, found)), wanted, rtol=1e-5)


def test_without_a_sample_every_image_is_predicted(files, run_folder):
    (files / "images" / ".hidden").write_text("")
    header, *rows = submitted(files, run_folder, None)
    assert header == ["id", "label"]
    assert [row[0] for row in rows] == ["a1.png", "b7.png", "c3.png"]
    assert {row[1] for row in rows} <= set(NAMES)


@pytest.mark.parametrize(
    ("sample", "match"),
    [
        ("id,cat,dog\na1,0,0\n", "each but the first is a class"),
        ("id,label\na1,x\nz9,x\n", "1 of 2 images are missing.*z9.png"),
        ("id\na1\n", "two at least"),
        ("id,label\na1\n", "as many values"),
        ("id,label\n", "0 of 0 images"),
    ],
)
def test_a_sample_that_does_not_fit(files, run_folder, sample, match):
    (files / "bad.csv").write_text(sample)
    with pytest.raises(ValueError, match=match):
        submitted(files, run_folder, "bad.csv")
    assert not (files / "submission.csv").exists()


def test_an_image_that_cannot_be_read_leaves_no_submission(files, run_folder):
    (files / "images" / "a1.png").write_bytes(b"no image")
    with pytest.raises(ValueError, match="a1.png"):
        submitted(files, run_folder)
    assert not (files / "submission.csv").exists()


def test_a_missing_column_is_named(files):
    with pytest.raises(ValueError, match="no column 'species'.*'img', 'kind'"):
        write_labels(
            files / "out.csv",
            files / "sample.csv",
            files / "images",
            id_key="img",
            label_key="species",
        )
