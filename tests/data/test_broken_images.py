"""Images that cannot be read, found before the first step."""

import io
import logging

import numpy as np
import pytest
from PIL import Image

from keras_vit.data import DataConfig, open_dataset, sources
from keras_vit.data.dataset import Examples
from keras_vit.data.sources import broken_images

pytestmark = pytest.mark.usefixtures("reader")

KINDS = ("jpeg", "png", "bmp", "gif")
IMAGE = Image.fromarray(
    np.random.default_rng(0).integers(0, 256, (20, 30, 3), dtype=np.uint8)
)


def encoded(kind, height=20):
    file = io.BytesIO()
    IMAGE.resize((30, height)).save(file, kind)
    return file.getvalue()


def found(contents, kind="encoded", check="ends"):
    array = np.array(contents, object)
    examples = Examples(array, np.zeros(len(contents), np.int32), kind=kind)
    return broken_images(examples, check).tolist()


@pytest.fixture
def folder(tmp_path):
    for name in ("cat", "dog"):
        (tmp_path / name).mkdir()
        for number in range(10):
            path = tmp_path / name / f"{number}.jpg"
            path.write_bytes(encoded("jpeg", height=20 + number))
    return tmp_path


@pytest.mark.parametrize("check", ["ends", "all"])
@pytest.mark.parametrize("kind", KINDS)
def test_whole_images_pass(kind, check):
    assert found([encoded(kind)], check=check) == []


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 0.99])
def test_images_that_are_cut_off_are_found(kind, share, reader):
    data = encoded(kind)
    cut = data[: int(len(data) * share)]
    # Pillow reads a PNG file that has all of its pixels, but not its end.
    whole = (reader, kind, share) == ("pillow", "png", 0.99)
    assert found([data, cut, data]) == ([] if whole else [1])


def test_files_of_another_kind_are_found():
    assert found([b"not an image", b"<html></html>", encoded("png")]) == [0, 1]


def test_what_follows_an_image_does_no_harm():
    # Cameras write more after the end of a JPEG.
    assert found([encoded("jpeg") + b"\0" * 100]) == []


def test_damage_inside_is_found_where_all_is_decoded():
    data = bytearray(encoded("png"))
    data[60:90] = bytes(30)
    assert found([bytes(data)], check="all") == [0]
    assert found([bytes(data)], check="none") == []


def test_of_few_images_all_are_decoded(monkeypatch):
    data = bytearray(encoded("png"))
    data[60:90] = bytes(30)
    contents = [encoded("png"), bytes(data)]
    assert found(contents, check="auto") == [1]
    monkeypatch.setattr(sources, "AFFORDABLE_BYTES", 1000)
    assert found(contents, check="auto") == []
    assert found([contents[0], contents[1][:500]], check="auto") == [1]


def test_missing_files_are_found(tmp_path):
    for check in ("auto", "ends"):
        path = str(tmp_path / "x.png")
        assert found([path], kind="path", check=check) == [0]


def test_the_run_stops_and_names_them(folder):
    broken = folder / "dog" / "3.jpg"
    broken.write_bytes(encoded("jpeg")[:50])
    with pytest.raises(ValueError, match=r"1 file\(s\): '.*dog/3.jpg' cannot"):
        open_dataset(DataConfig(folder=str(folder)))


def test_many_are_counted_and_some_of_them_named(folder):
    for number in range(8):
        (folder / "cat" / f"{number}.jpg").write_bytes(b"")
    with pytest.raises(ValueError, match=r"8 file\(s\): .* and 3 more cannot"):
        open_dataset(DataConfig(folder=str(folder)))


def test_or_skips_and_counts_them(folder, caplog):
    broken = folder / "dog" / "3.jpg"
    broken.write_bytes(encoded("jpeg")[:50])
    config = DataConfig(folder=str(folder), on_broken_image="skip")
    with caplog.at_level(logging.WARNING):
        dataset = open_dataset(config)
    assert dataset.skipped == (str(broken),)
    assert "3.jpg" in caplog.text
    parts = (dataset.train, dataset.validation, dataset.test)
    assert sum(len(part) for part in parts) == 19
    assert all(str(broken) not in part.contents for part in parts)


@pytest.mark.parametrize(
    "options",
    [
        {"check_images": "some"},
        {"on_broken_image": "ignore"},
        {"validation_fraction": -0.1},
        {"test_fraction": 1.5},
        {"max_examples": 0},
        {"shuffle_buffer": 0},
        {"split_seed": -1},
    ],
)
def test_values_out_of_range_are_refused_by_name(options):
    ((name, value),) = options.items()
    with pytest.raises(ValueError, match=f"{name}.*{value!r}"):
        DataConfig(**options)


def test_contradictions_are_refused():
    with pytest.raises(ValueError, match="one of name, folder, csv and shards"):
        DataConfig(name="digits", folder="x")
    with pytest.raises(ValueError, match="Nothing is left to train on"):
        DataConfig(validation_fraction=0.5, test_fraction=0.5)


def test_without_a_source_it_is_the_digits():
    assert DataConfig().name == "digits"
