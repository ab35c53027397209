"""Shards that are missing, cut off or unlike the others are named."""

import itertools
import pathlib
import shutil

import numpy as np
import pytest
import sharded

from keras_vit import data
from keras_vit.data.sources import open_dataset

NO_CUT = {"validation_fraction": 0.0, "test_fraction": 0.0}


@pytest.fixture
def folder(tmp_path):
    return sharded.tars(tmp_path / "numbers")


def opened(pattern, **options):
    options = {"reader": "pillow", **NO_CUT, **options}
    return open_dataset(data.DataConfig(shards=str(pattern), **options))


def cut(path, size):
    """Leaves so many bytes of a file; where below 0, all but so many."""
    content = pathlib.Path(path).read_bytes()
    pathlib.Path(path).write_bytes(content[:size])


def test_shards_of_a_folder_are_of_the_splits_in_their_names(tmp_path):
    for i, name in enumerate(
        ("train-0", "train-1", "set-validation-0", "test/0", "test/1")
    ):
        pair = {f"{n}": sharded.sample(n) for n in (2 * i, 2 * i + 1)}
        sharded.write_tar(tmp_path / f"{name}.tar", pair)
    found = opened(tmp_path)
    parts = (found.train, found.validation, found.test)
    assert [len(part) for part in parts] == [4, 2, 4]
    assert found.test.name_of(2) == f"{tmp_path}/test/1.tar[0]"
    some = opened(f"{tmp_path}/{{train-1,test/0}}.tar")
    assert (len(some.train), some.validation, len(some.test)) == (2, None, 2)


def test_labels_are_those_of_json_by_their_key(tmp_path):
    names = ("dog", "cat", "dog", "cow")
    samples = {
        f"a/{i}": sharded.json_sample(i, animal=name, label=i)
        for i, name in enumerate(names)
    }
    sharded.write_tar(tmp_path / "train.tar", samples)
    found = opened(tmp_path, label_key="animal")
    assert found.class_names == ("cat", "cow", "dog")
    assert list(found.train.labels) == [2, 0, 2, 1]
    assert list(opened(tmp_path).train.labels) == [0, 1, 2, 3]
    with pytest.raises(ValueError, match=r"train.tar: a/0 has no label.*'age'"):
        opened(tmp_path, label_key="age")


def test_names_of_classes_stand_beside_the_shards(folder):
    (folder / "classnames.txt").write_text("a\nb\nc\nd\n")
    assert opened(folder).class_names == ("a", "b", "c", "d")
    (folder / "classnames.txt").write_text("a\nb\nc\n")
    with pytest.raises(ValueError, match="0 to 3. Expected 0 to 2"):
        opened(folder)


def test_a_missing_shard_is_named(folder):
    with pytest.raises(ValueError, match="no shard .*train-3.tar .1 of 4 are"):
        opened(folder / "train-{0..3}.tar")
    shutil.copy(folder / "train-0.tar", folder / "train-00000-of-00002.tar")
    with pytest.raises(ValueError, match="no shard .*train-00001-of-00002"):
        opened(folder)
    with pytest.raises(ValueError, match="names no shards"):
        opened(folder / "x-*.tar")
    with pytest.raises(ValueError, match="names .*json. Expected .tar or"):
        (folder / "a.json").write_text("{}")
        opened(folder / "a.*")


@pytest.mark.parametrize("size", [7_000, 700, 100, 0])
def test_a_tar_that_is_cut_off_is_named(folder, size):
    cut(folder / "train-1.tar", size)
    with pytest.raises(ValueError, match=r"train-1.tar .*(cut off|no images)"):
        opened(folder)


def test_a_tar_that_is_cut_off_during_a_run_is_named(folder):
    records = opened(folder).train.records
    last = len(records) - 1
    assert records.read(last)
    for path in folder.iterdir():
        cut(path, 600)
    with pytest.raises(ValueError, match=r"\.tar is cut off: .* byte"):
        records.read(last)


@pytest.mark.parametrize(
    "members, message",
    [
        ({"cls": b"1"}, r"train-9.tar: x/7 has no image .*only cls"),
        ({"png": b"?"}, r"train-9.tar: x/7 has no label.*Received: png"),
        ({"png": b"?", "json": b"{"}, r"JSON .*train-9.tar: x/7 cannot be"),
        ({"png": b"?", "cls": b"cat"}, r"train-0.tar and .*train-9.tar differ"),
    ],
)
def test_a_sample_unlike_the_others_is_named(folder, members, message):
    sharded.write_tar(folder / "train-9.tar", {"x/7": members})
    with pytest.raises(ValueError, match=message):
        opened(folder)


def with_noise(folder):
    """Adds a record that is no image."""
    members = {"png": b"no image", "cls": b"1"}
    samples = {"a": sharded.sample(40), "b": members}
    sharded.write_tar(folder / "train-9.tar", samples)
    return folder


def test_a_record_that_is_no_image_stops_the_run_or_is_left_out(folder):
    with_noise(folder)
    with pytest.raises(ValueError, match=r"1 file.*train-9.tar\[1\]'.*skip"):
        opened(folder)
    found = opened(folder, on_broken_image="skip")
    assert found.skipped == (f"{folder}/train-9.tar[1]",)
    assert len(found.train) == 41


@pytest.mark.parametrize("reader", ["pillow", "tensorflow"])
def test_a_record_that_is_no_image_is_named_by_its_shard(folder, reader):
    options = {"check_images": "none", "reader": reader}
    message = r"cannot be read.*train-9.tar\[1\]"
    with pytest.raises(Exception, match=message):
        shown(opened(with_noise(folder), **options).train)
    skipped = opened(folder, on_broken_image="skip", **options).train
    assert len(shown(skipped)) == 42


def shown(examples):
    stream = data.training_stream(
        examples, 4, image_size=4, channels=1, batch_size=6
    )
    batches = itertools.islice(stream.from_step(0), 7)
    return np.concatenate([np.asarray(images) for images, _ in batches])


def test_an_index_is_made_again_of_what_has_changed(folder, tmp_path):
    options = {"index_dir": str(tmp_path / "indexes")}
    assert len(opened(folder, **options).train) == 40
    for path in (tmp_path / "indexes").iterdir():
        path.write_bytes(path.read_bytes()[:100])
    assert len(opened(folder, **options).train) == 40
    sharded.write_tar(folder / "train-2.tar", {"a": sharded.sample(1)})
    assert len(opened(folder, **options).train) == 28


def test_an_index_that_cannot_be_kept_is_made_each_time(folder, caplog):
    found = opened(folder, index_dir=str(folder / "train-0.tar" / "x"))
    assert len(found.train) == 40
    assert "data.index_dir" in caplog.text


@pytest.fixture(params=["tfrecord", "array_record"])
def builder_dir(request, tmp_path):
    return sharded.prepared(tmp_path, request.param).data_path


def opened_tfds(folder, **options):
    return open_dataset(
        data.DataConfig(
            name="numbers:1.0.0",
            data_dir=str(folder.parent.parent),
            memory_limit_mib=0,
            reader="pillow",
            **NO_CUT,
            **options,
        )
    )


def test_a_file_of_a_data_set_that_is_cut_off_is_named(builder_dir):
    path = sorted(builder_dir.glob("*-00001-of-*"))[0]
    whole = path.read_bytes()
    for size in (-9, len(whole) // 2, 0):
        path.write_bytes(whole[:size])
        message = f"{path.name} .*(cut off|has no images)"
        with pytest.raises(ValueError, match=message):
            opened_tfds(builder_dir)
    path.unlink()
    with pytest.raises(
        ValueError, match=f"{path.name} cannot be read: No such"
    ):
        opened_tfds(builder_dir)


def test_features_of_other_kinds_are_named(builder_dir):
    with pytest.raises(ValueError, match=r"\[0\] .*has bytes where integers"):
        opened_tfds(builder_dir, label_key="name")
    with pytest.raises(ValueError, match=r"\[0\] .*has integers where bytes"):
        opened_tfds(builder_dir, image_key="label", label_key="label")


def of_parquet(folder):
    return sorted(sharded.parquets(folder / "parquet").iterdir())


def test_a_parquet_file_that_is_cut_off_or_missing_is_named(tmp_path):
    first, middle, last = of_parquet(tmp_path)
    whole = middle.read_bytes()
    for size in (-9, 100, 0):
        middle.write_bytes(whole[:size])
        with pytest.raises(ValueError, match=f"{middle.name} is cut off"):
            opened(first.parent)
    middle.unlink()
    with pytest.raises(
        ValueError, match="no shard .*train-00001-of-00003: 1 of"
    ):
        opened(first.parent)


@pytest.mark.parametrize(
    "change, message",
    [
        ({"names": "abce"}, "class_names .*'d'.* and .*'e'"),
        ({"label": "dog"}, "label int64 and string"),
    ],
)
def test_parquet_files_of_different_schemas_are_named(
    tmp_path, change, message
):
    from pyarrow import parquet

    first, middle, _ = of_parquet(tmp_path)
    parquet.write_table(sharded.table(range(9), **change), middle)
    pattern = f"{first.name} and .*{middle.name} have .*schemas: {message}"
    with pytest.raises(ValueError, match=pattern):
        opened(first.parent)


def test_columns_that_are_not_there_or_no_images_are_named(tmp_path):
    first = of_parquet(tmp_path)[0]
    with pytest.raises(
        ValueError, match="image_key='img'. .* 'image', 'label'"
    ):
        opened(first.parent, image_key="img")
    with pytest.raises(ValueError, match="'label' of .* has no encoded images"):
        opened(first.parent, image_key="label")
    with pytest.raises(ValueError, match="'image' of .*integers or text"):
        opened(first.parent, label_key="image")


def test_a_split_without_labels_is_left_out(tmp_path, caplog):
    from pyarrow import parquet

    folder = of_parquet(tmp_path)[0].parent
    table = sharded.table(range(9), label=-1)
    parquet.write_table(table, folder / "test-00000-of-00001.parquet")
    found = opened(folder)
    assert (len(found.train), found.test) == (40, None)
    assert "has no labels and is left out" in caplog.text


@pytest.mark.parametrize("reader", ["pillow", "tensorflow"])
def test_a_row_without_an_image_is_named_or_skipped(tmp_path, reader):
    import pyarrow
    from pyarrow import parquet

    path = of_parquet(tmp_path)[0]
    table = sharded.table(range(14))
    images = [{"bytes": None, "path": "x.png"}, *table["image"].to_pylist()[1:]]
    table = table.set_column(0, "image", pyarrow.array(images))
    parquet.write_table(table, path)
    with pytest.raises(Exception, match=rf"{path.name}\[0\]"):
        shown(opened(path.parent, reader=reader).train)
    options = {"reader": reader, "on_broken_image": "skip"}
    assert len(shown(opened(path.parent, **options).train)) == 42


def test_what_is_not_installed_is_named(tmp_path, monkeypatch):
    import importlib.util

    of_parquet(tmp_path)
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util,
        "find_spec",
        lambda name, *rest: None if name == "pyarrow" else find(name, *rest),
    )
    with pytest.raises(ValueError, match=r"needs pyarrow.*\[streams\]"):
        opened(tmp_path / "parquet")
