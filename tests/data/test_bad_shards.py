"""Shards that are missing, cut off or unlike the others are named."""

import itertools
import json
import pathlib
import shutil

import numpy as np
import pytest
import sharded

from keras_vit import data
from keras_vit.data.records import indexed
from keras_vit.data.shards import parquet_index, schemas_of, tar_index
from keras_vit.data.sources import open_dataset
from keras_vit.data.tfds import array_record_index, tfrecord_index

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


def test_another_key_of_parquet_files_gives_its_labels(tmp_path):
    """Where the index of the first key is kept."""
    from pyarrow import array, parquet

    table = sharded.table(range(4)).append_column("age", array([3, 3, 0, 1]))
    parquet.write_table(table, tmp_path / "train.parquet")
    kept = str(tmp_path / "index")
    for key, labels in (("label", [0, 1, 2, 3]), ("age", [3, 3, 0, 1])):
        found = opened(
            tmp_path / "train.parquet", label_key=key, index_dir=kept
        )
        assert list(found.train.labels) == labels


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


def test_a_tar_is_whole_or_named_wherever_it_is_cut(tmp_path):
    samples = {f"{n}": sharded.sample(n) for n in range(3)}
    path = sharded.write_tar(tmp_path / "train.tar", samples)
    whole = path.read_bytes()
    end = len(whole.rstrip(b"\0"))
    end += -end % 512
    for size in range(0, end + 1024, 31):  # Behind it only zeros are left out.
        path.write_bytes(whole[:size])
        with pytest.raises(ValueError, match=r"train.tar .*(cut off|no image)"):
            tar_index(str(path), "label")
    path.write_bytes(whole[: end + 1024])
    assert len(tar_index(str(path), "label").starts) == 3


@pytest.mark.parametrize("member", [1, 2, 5])
def test_a_tar_with_a_damaged_header_is_named(tmp_path, member):
    samples = {f"{n}": sharded.sample(n) for n in range(3)}
    path = sharded.write_tar(tmp_path / "train.tar", samples)
    content = bytearray(path.read_bytes())
    header = content.index(
        f"{member // 2}.{('png', 'cls')[member % 2]}".encode()
    )
    content[header + 150] ^= 1  # of its checksum
    path.write_bytes(content)
    with pytest.raises(ValueError, match="neither a member nor its end"):
        tar_index(str(path), "label")


def test_tars_that_follow_each_other_in_a_file_are_named(folder):
    both = [folder / "train-0.tar", folder / "train-1.tar"]
    both[0].write_bytes(b"".join(x.read_bytes() for x in both))
    with pytest.raises(ValueError, match="train-0.tar .*neither a member"):
        opened(folder)


@pytest.mark.parametrize("kind", ["cls", "json"])
def test_a_long_label_takes_its_own_memory_and_no_other(tmp_path, kind):
    def members(text):
        content = text if kind == "cls" else json.dumps({"label": text})
        return {"png": b"x", kind: content.encode()}

    texts = ["y" * 10**6, *["y"] * 2000]
    samples = {str(n): members(x) for n, x in enumerate(texts)}
    path = sharded.write_tar(tmp_path / "train.tar", samples)
    found = tar_index(str(path), "label")
    assert list(found.labels) == texts
    assert found.labels.nbytes < 20_000
    made = []

    def make(path):
        made.append(path)
        return found

    for _ in range(2):  # the second is read
        (again,) = indexed(
            [str(path)], make, kept_as=["x"], folder=tmp_path / "indexes"
        )
        assert list(again.labels) == texts
    assert made == [str(path)]
    (file,) = (tmp_path / "indexes").iterdir()
    assert file.stat().st_size < 1_100_000


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ({"cls": b"y" * (2**20 + 1)}, "1,048,577 bytes, where at most"),
        ({"json": b" " * 2**21}, "2,097,152 bytes, where at most"),
        ({"json": b"[" * 10**5}, "cannot be read: maximum recursion"),
        ({"json": b'{"label": {"a": 1}}'}, "Expected a number of a class"),
        ({"json": b'{"label": null}'}, "Expected a number of a class"),
        ({"json": b'{"label": NaN}'}, "Expected a number of a class"),
        ({"json": b'{"label": ' + b"9" * 5000 + b"}"}, "cannot be read"),
        ({"json": b"\xff"}, "cannot be read"),
    ],
)
def test_a_label_that_is_none_is_named(tmp_path, members, message):
    samples = {"a": {"png": b"x", **members}}
    path = sharded.write_tar(tmp_path / "train.tar", samples)
    with pytest.raises(ValueError, match=message) as caught:
        tar_index(str(path), "label")
    assert len(str(caught.value)) < 1000


@pytest.fixture
def tfrecord(tmp_path):
    tf = pytest.importorskip("tensorflow")
    path = str(tmp_path / "train.tfrecord")
    with tf.io.TFRecordWriter(path) as writer:
        for label in range(2):
            image = tf.train.BytesList(value=[sharded.picture(label)])
            number = tf.train.Int64List(value=[label])
            features = {
                "image": tf.train.Feature(bytes_list=image),
                "label": tf.train.Feature(int64_list=number),
            }
            features = tf.train.Features(feature=features)
            example = tf.train.Example(features=features)
            writer.write(example.SerializeToString())
    return pathlib.Path(path)


def test_a_bit_of_a_tfrecord_that_differs_is_named(tfrecord):
    whole = tfrecord.read_bytes()
    found = tfrecord_index(str(tfrecord), "image", "label")
    assert found.labels.tolist() == [0, 1]
    for start, size in zip(found.starts, found.sizes, strict=True):
        assert whole[start : start + size].startswith(b"\x89PNG")
    for place in range(len(whole)):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << place % 8
        tfrecord.write_bytes(damaged)
        with pytest.raises(ValueError, match="train.tfrecord is damaged in"):
            tfrecord_index(str(tfrecord), "image", "label")


def test_an_array_record_is_whole_or_named_wherever_it_is_cut(tmp_path):
    module = pytest.importorskip("array_record.python.array_record_module")
    path = tmp_path / "train.array_record"
    writer = module.ArrayRecordWriter(str(path), "group_size:1")
    for number in range(3):
        writer.write(sharded.picture(number))
    writer.close()
    whole = path.read_bytes()
    for size in range(0, len(whole), 4001):
        path.write_bytes(whole[:size])
        with pytest.raises(ValueError, match="train.array_record"):
            array_record_index(str(path), "image", "label")


def odd_table(labels, kind, column="label", noted=None):
    import pyarrow

    images = pyarrow.array([b"x"] * len(labels), pyarrow.binary())
    rows = [images, pyarrow.array(labels, kind())]
    made = pyarrow.Table.from_arrays(rows, names=["image", column])
    return made.replace_schema_metadata({"huggingface": noted or "{}"})


def label_names(names):
    return json.dumps({"info": {"features": {"label": {"names": names}}}})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"labels": [2**64 - 1, 0], "kind": "uint64"}, "uint64, and some"),
        ({"labels": [-1, -1]}, "No image of the shards has a label"),
        ({"labels": [-5, 3]}, "Labels are from -5 to 3"),
        ({"column": "image"}, "2 columns image_key='image'"),
        ({"noted": "[" * 10**5}, "train.parquet is no JSON"),
        ({"noted": "{"}, "train.parquet is no JSON"),
        ({"noted": label_names("abc")}, "no list of texts"),
        ({"noted": label_names({"a": 1})}, "no list of texts"),
        ({"noted": label_names([[], {}])}, "no list of texts"),
    ],
)
def test_odd_labels_of_parquet_files_are_named(tmp_path, options, message):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    fields = {"labels": [0, 1], "kind": "int64", **options}
    fields["kind"] = getattr(pyarrow, fields["kind"])
    parquet.write_table(odd_table(**fields), tmp_path / "train.parquet")
    with pytest.raises(ValueError, match=message):
        opened(tmp_path, index_dir=str(tmp_path / "indexes"))


def test_a_parquet_file_is_whole_or_named_wherever_it_is_cut(tmp_path):
    folder = sharded.parquets(tmp_path / "p", 8, 1)
    (path,) = folder.iterdir()
    whole = path.read_bytes()
    for size in range(0, len(whole), 97):
        path.write_bytes(whole[:size])
        with pytest.raises(ValueError, match="cut off, damaged"):
            schemas_of([str(path)], "image", "label")


def test_a_parquet_file_of_more_rows_than_memory_is_refused(
    tmp_path, monkeypatch
):
    folder = sharded.parquets(tmp_path / "p", 8, 1)
    (path,) = folder.iterdir()
    monkeypatch.setattr(
        "keras_vit.runtime.machine.available_memory", lambda: 8 * 64 - 1
    )
    with pytest.raises(
        ValueError, match="8 rows, for whose labels there is no"
    ):
        parquet_index(str(path), "label")


def test_text_labels_of_parquet_files_take_their_own_memory(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    labels = ["y" * 10**6, *["cat", "dog"] * 1000]
    path = tmp_path / "train.parquet"
    parquet.write_table(odd_table(labels, pyarrow.string), path)
    found = parquet_index(str(path), "label").labels
    assert list(found) == labels
    assert found.nbytes < 20_000
