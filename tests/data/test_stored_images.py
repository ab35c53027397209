"""Images in object stores are those of the same files on a disk."""

import csv

import numpy as np
import object_stores
import pytest
import sharded
import vtab_builders
from named_data.sources import SOURCES
from PIL import Image

from keras_vit.data import DataConfig, evaluation_batches, open_dataset
from keras_vit.io.stores import Store, fetched


@pytest.fixture(scope="module")
def emulator():
    with object_stores.emulated("s3") as found:
        yield found


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("KERAS_HOME", str(tmp_path / "cache"))


def fill(root):
    """Images in three splits, each of its own level of grey."""
    for number in range(24):
        split = ("train", "val", "Test")[number // 4 % 3]
        folder = root / split / ("cat", "dog")[number % 2]
        folder.mkdir(parents=True, exist_ok=True)
        image = Image.new("L", (6, 6), 10 * number)
        image.save(folder / f"{number:02d}.png")
    (root / "train" / "cat" / ".hidden.png").write_text("no image")
    (root / "train" / "README.txt").write_text("no image")


def put(folder, address):
    store = Store(address)
    for path in folder.rglob("*"):
        if path.is_file():
            store.upload(path, path.relative_to(folder).as_posix())


def values(dataset):
    """Images and labels of all parts."""
    found = []
    for part in (dataset.train, dataset.validation, dataset.test):
        batches = evaluation_batches(
            part, image_size=6, channels=1, batch_size=4
        )
        for images, labels, mask in batches:
            found += [np.asarray(images)[mask], np.asarray(labels)[mask]]
    return found


def check_same(config, stored):
    one, other = open_dataset(config), open_dataset(stored)
    assert one.class_names == other.class_names
    assert one.name == other.name
    for x, y in zip(values(one), values(other), strict=True):
        np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize("reader", ["pillow", "tensorflow"])
def test_a_folder_of_images(tmp_path, emulator, reader):
    folder = tmp_path / "pets"
    fill(folder)
    address = emulator.address(f"{reader}/pets")
    put(folder, address)
    check_same(
        DataConfig(folder=str(folder), reader=reader),
        DataConfig(folder=address, reader=reader),
    )


def test_a_folder_without_splits_is_cut_alike(tmp_path, emulator):
    fill(tmp_path / "all")
    address = emulator.address("cut/train")
    put(tmp_path / "all" / "train", address)
    options: dict = {"validation_fraction": 0.25, "test_fraction": 0.25}
    local = str(tmp_path / "all" / "train")
    check_same(
        DataConfig(
            folder=local, reader="pillow", split_by="position", **options
        ),
        DataConfig(folder=address, reader="pillow", **options),
    )


def test_a_csv_file_beside_its_images(tmp_path, emulator):
    fill(tmp_path / "listed")
    path = tmp_path / "listed" / "labels.csv"
    with path.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["image", "label", "split"])
        for image in sorted((tmp_path / "listed").rglob("[0-9]*.png")):
            name = image.relative_to(path.parent).as_posix()
            split = name.split("/")[0].lower()
            rows.writerow([f"./{name}", image.parent.name, split])
    address = emulator.address("listed")
    put(tmp_path / "listed", address)
    check_same(
        DataConfig(csv=str(path), reader="pillow"),
        DataConfig(csv=f"{address}/labels.csv", reader="pillow"),
    )
    Store(address).remove(["train/cat/00.png"])
    with pytest.raises(ValueError, match=r"Line \d+ of .*cat/00\.png"):
        open_dataset(DataConfig(csv=f"{address}/labels.csv"))


@pytest.mark.parametrize("end", ["", "/train-*.tar", "/train-{0..2}.tar"])
def test_tar_shards_are_read_by_position(tmp_path, emulator, end):
    sharded.tars(tmp_path / "tars")
    address = emulator.address("shards/tars")
    put(tmp_path / "tars", address)
    check_same(
        DataConfig(shards=f"{tmp_path / 'tars'}{end}", reader="pillow"),
        DataConfig(shards=f"{address}{end}", reader="pillow"),
    )


def test_tar_shards_at_the_root_of_a_bucket(tmp_path, emulator):
    sharded.tars(tmp_path)
    put(tmp_path, "s3://bucket")
    opened = open_dataset(DataConfig(shards="s3://bucket/train-{0..2}.tar"))
    assert opened.class_names == ("0", "1", "2", "3")


def test_parquet_shards_are_read_by_position(tmp_path, emulator):
    from pyarrow import parquet

    (tmp_path / "rows").mkdir()
    table = sharded.table(range(40))
    parquet.write_table(table, tmp_path / "rows" / "train-0.parquet")
    put(tmp_path / "rows", emulator.address("rows"))
    check_same(
        DataConfig(shards=str(tmp_path / "rows"), reader="pillow"),
        DataConfig(shards=emulator.address("rows"), reader="pillow"),
    )


def shards_in(folder):
    return [path for path in folder.rglob("*record-*") if path.is_file()]


@pytest.fixture(scope="module")
def numbers(emulator, tmp_path_factory):
    """Prepared data on a disk, and the address of its copy."""
    folder = tmp_path_factory.mktemp("tfds")
    sharded.prepared(folder, "tfrecord")
    put(folder, emulator.address("tfds"))
    return str(folder), emulator.address("tfds")


@pytest.mark.parametrize(
    ("limit", "kind", "copied"), [(2048, "encoded", 3), (0, "record", 0)]
)
def test_prepared_data(numbers, tmp_path, limit, kind, copied):
    """Small data is copied; of large data each image is read by position."""
    folder, address = numbers
    given = {"name": "numbers:1.0.0", "memory_limit_mib": limit}
    stored = DataConfig(data_dir=f"{address}/", **given)
    check_same(DataConfig(data_dir=folder, **given), stored)
    assert open_dataset(stored).train.kind == kind
    assert len(shards_in(tmp_path / "cache")) == copied


@pytest.mark.parametrize("name", ["numbers:2.0.0", "cifar10", "cifer10"])
def test_data_that_is_not_prepared_is_named(numbers, name):
    _, address = numbers
    with pytest.raises(ValueError, match=name) as caught:
        open_dataset(DataConfig(name=name, data_dir=address))
    if name != "numbers:2.0.0":
        assert f"is not prepared at {address}. " in str(caught.value)


def test_array_record_files_are_read_on_a_disk_alone(tmp_path, emulator):
    sharded.prepared(tmp_path / "records", "array_record", 8)
    address = emulator.address("records")
    put(tmp_path / "records", address)
    with pytest.raises(ValueError, match="of a disk.*as TFRecord files"):
        open_dataset(DataConfig(name="numbers:1.0.0", data_dir=address))


def test_a_task_of_vtab_is_copied(emulator, tmp_path):
    """The images are mocked; the files are those of the store."""
    folder = tmp_path / "prepared"
    vtab_builders.describe(folder, ["cifar100"])
    (info,) = folder.rglob("dataset_info.json")
    (info.parent / "cifar100-train.tfrecord-00000-of-00001").write_bytes(b"1")
    address = emulator.address("vtab")
    put(folder, address)
    asked = DataConfig(name="vtab/cifar100", data_dir=address)
    with vtab_builders.mocked(folder):
        opened = open_dataset(asked, SOURCES)
        assert len(opened.train) == vtab_builders.NUM_EXAMPLES
    assert len(shards_in(tmp_path / "cache")) == 1


def test_a_shard_that_is_missing_is_named(tmp_path, emulator):
    sharded.tars(tmp_path / "tars")
    address = emulator.address("missing")
    put(tmp_path / "tars", address)
    with pytest.raises(ValueError, match=f"no shard {address}/train-3.tar"):
        open_dataset(DataConfig(shards=f"{address}/train-{{0..3}}.tar"))
    with pytest.raises(ValueError, match="needs at least two classes"):
        open_dataset(DataConfig(folder=f"{address}/none", reader="pillow"))


def test_what_is_fetched_is_kept_until_it_changes(tmp_path, emulator):
    store = Store(emulator.address("weights"))
    store.write("a/model.npz", b"one")
    store.write("a/checkpoints/step-000000001.npz", b"large")
    store.write("a/../../outside", b"bad")
    folder = fetched(emulator.address("weights/a"))
    names = {path.name for path in folder.rglob("*")}
    assert folder.name == "a" and names == {"model.npz"}
    before = emulator.requests
    assert fetched(emulator.address("weights/a")) == folder
    assert emulator.requests - before <= 4
    store.write("a/model.npz", b"two")
    file = fetched(emulator.address("weights/a/model.npz"))
    assert (file.name, file.read_bytes()) == ("model.npz", b"two")
    assert (folder / "model.npz").read_bytes() == b"one"
    assert not list(tmp_path.rglob("outside"))
    with pytest.raises(ValueError, match="nothing at s3://bucket/weights/b"):
        fetched("s3://bucket/weights/b")
