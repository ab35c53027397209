"""Images of shards: each read once an epoch, by one process, in one order."""

import functools
import io
import pathlib

import numpy as np
import pytest
import sharded
from PIL import Image
from sharded import BATCH, SQUASH, shown, stream

from keras_vit import data
from keras_vit.data.sources import open_dataset

COUNT, SIDE = 48, 96


def of_tars(folder, side):
    folder = sharded.tars(folder / str(side), COUNT, side=side)
    return {"shards": str(folder / "train-{0..2}.tar")}


def of_tfds(file_format, folder, side):
    sharded.prepared(folder / str(side), file_format, COUNT, side)
    # "name:version" is read without the class that prepared it.
    return {
        "name": "numbers:1.0.0",
        "data_dir": str(folder / str(side)),
        "memory_limit_mib": 0,
        "train_split": "train",
    }


def of_parquets(folder, side):
    return {
        "shards": str(sharded.parquets(folder / str(side), COUNT, side=side))
    }


SOURCES = {
    "tar": of_tars,
    "parquet": of_parquets,
    "tfrecord": functools.partial(of_tfds, "tfrecord"),
    "array_record": functools.partial(of_tfds, "array_record"),
}


@pytest.fixture(scope="session")
def written(tmp_path_factory):
    """Writes shards of a kind, once for all tests; returns their config."""
    return functools.cache(
        lambda kind, side: SOURCES[kind](tmp_path_factory.mktemp(kind), side)
    )


@pytest.fixture(params=SOURCES)
def source(request, tmp_path, written):
    """Opens `COUNT` images of a kind of shards, all for training."""

    def opened(reader="pillow", side=sharded.SIDE):
        config = data.DataConfig(
            **written(request.param, side),
            reader=reader,
            validation_fraction=0.0,
            test_fraction=0.0,
            index_dir=str(tmp_path / "indexes"),
        )
        return open_dataset(config).train

    return opened


@pytest.mark.parametrize("reader", ["pillow", "tensorflow"])
def test_each_image_is_read_once_an_epoch_with_its_label(source, reader):
    train = stream(source(reader))
    steps = COUNT // BATCH
    numbers, labels = shown(train, 0, 2 * steps)
    np.testing.assert_array_equal(labels, numbers % 4)
    for epoch in (numbers[:steps], numbers[steps:]):
        assert sorted(epoch.ravel()) == list(range(COUNT))
    assert not np.array_equal(numbers[:steps], numbers[steps:])
    assert list(numbers[0]) != sorted(numbers[0])


@pytest.mark.parametrize("reader", ["pillow", "tensorflow"])
def test_webp_in_a_tar(tmp_path, reader):
    def encoded(number):
        file = io.BytesIO()
        grey = Image.new("L", (SIDE, SIDE), number)
        grey.save(file, "webp", lossless=True)
        return {"cls": str(number % 4).encode(), "webp": file.getvalue()}

    samples = {f"{n:02d}": encoded(n) for n in range(2 * BATCH)}
    sharded.write_tar(tmp_path / "train-0.tar", samples)
    config = data.DataConfig(
        shards=str(tmp_path),
        reader=reader,
        validation_fraction=0.0,
        test_fraction=0.0,
        index_dir=str(tmp_path / "indexes"),
    )
    numbers, labels = shown(stream(open_dataset(config).train), 0, 2)
    np.testing.assert_array_equal(labels, numbers % 4)
    assert sorted(numbers.ravel()) == list(range(2 * BATCH))


@pytest.mark.parametrize("count", [2, 4])
def test_processes_read_the_rows_of_the_batches_of_one(source, count):
    examples = source()
    whole, _ = shown(stream(examples), 1, 7)
    for index in range(count):
        share = data.Share(index, count)
        mine, _ = shown(stream(examples, share), 1, 7)
        np.testing.assert_array_equal(mine, whole[:, share.rows(BATCH)])


def test_an_epoch_goes_on_in_its_midst(source):
    whole, _ = shown(stream(source()), 0, 9)
    later, _ = shown(stream(source()), 4, 5)
    np.testing.assert_array_equal(later, whole[4:])


def test_images_are_evaluated_in_the_order_of_the_shards(source):
    batches = data.evaluation_batches(
        source(),
        image_size=4,
        channels=1,
        batch_size=10,
        preprocessing=SQUASH,
    )
    found = [(images[mask], labels[mask]) for images, labels, mask in batches]
    numbers = np.concatenate([images[:, 0, 0, 0] for images, _ in found])
    np.testing.assert_array_equal(numbers, np.arange(COUNT))
    labels = np.concatenate([labels for _, labels in found])
    np.testing.assert_array_equal(labels, np.arange(COUNT) % 4)


@pytest.fixture
def counted(monkeypatch):
    """Bytes that are read of each shard."""
    return sharded.count_bytes(monkeypatch)


def counted_images(read) -> float:
    """How many times the bytes of all images were read."""
    return sum(read.values()) / (COUNT * len(sharded.picture(0, SIDE)))


# ArrayRecord files are read in C++, see below.
in_python = pytest.mark.parametrize(
    "source", ["tar", "tfrecord"], indirect=True
)


@in_python
@pytest.mark.parametrize("count", [1, 2, 4])
def test_each_process_reads_its_share_of_the_bytes(source, counted, count):
    examples = source(side=SIDE)
    counted.clear()
    mine = stream(examples, data.Share(count - 1, count))
    shown(mine, 0, 2 * COUNT // BATCH)
    # Of two epochs, and of two batches that are read ahead.
    assert 2 <= counted_images(counted) * count < 2.1 + 2 * BATCH / COUNT


@in_python
def test_an_index_reads_no_images_and_is_kept(source, counted):
    # Of TFRecord files all is read, once, to compare the checksums.
    most = 1.02 if "tfrecord" in str(source().records.files[0]) else 0.45
    counted.clear()
    source(side=SIDE)
    assert counted_images(counted) < most
    counted.clear()
    source(side=SIDE)
    # Of parquet files, what is at their ends.
    assert counted_images(counted) < 0.02


@pytest.mark.parametrize("source", ["array_record"], indirect=True)
def test_each_process_reads_its_share_of_the_bytes_in_any_language(source):
    """As the kernel counts them, of this whole process."""
    examples = source(side=SIDE)
    images = COUNT * len(sharded.picture(0, SIDE))
    shown(stream(examples), 0, 1)  # Readers and modules are loaded once.
    found = {}
    for count in (1, 2):
        before = bytes_read()
        mine = stream(examples, data.Share(0, count))
        shown(mine, 0, 4 * COUNT // BATCH)
        found[count] = (bytes_read() - before) / images
    # A reader asks for 32 KiB at a time, of images of 9, and neighbours that
    # share them are read together or not as the order has it.
    assert 3 < found[1] < 12
    assert found[2] < 0.75 * found[1]


def bytes_read() -> int:
    lines = pathlib.Path("/proc/self/io").read_text().splitlines()
    return int(dict(line.split(": ") for line in lines)["rchar"])
