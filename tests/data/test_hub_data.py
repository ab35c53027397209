"""Shards of the Hugging Face hub, of a server on this machine."""

import numpy as np
import pytest
import sharded
from huggingface_hub import HfFileSystem
from sharded import shown, stream
from shared_models import hub

from keras_vit import data

__all__ = ["hub"]  # a fixture


@pytest.fixture
def numbers(hub, tmp_path):
    """A data set of 48 images for training and 4 to test on."""
    folder = sharded.parquets(tmp_path / "numbers", 48, side=32)
    sharded.parquets(tmp_path / "test", 4, shards=1)
    files = {
        f"data/{path.name}": path.read_bytes() for path in folder.iterdir()
    }
    (tests,) = (tmp_path / "test").iterdir()
    files["data/test-00000-of-00001.parquet"] = tests.read_bytes()
    hub.make("me/numbers", files)
    return hub


def opened(name="hf://datasets/me/numbers", **options):
    options = {"validation_fraction": 0.0, "reader": "pillow", **options}
    return data.open_dataset(data.DataConfig(name, **options))


def test_images_come_from_the_hub_each_once(numbers):
    found = opened()
    assert found.class_names == ("a", "b", "c", "d")
    assert (len(found.train), len(found.test)) == (48, 4)
    images, labels = shown(stream(found.train), 0, 6)
    assert sorted(images.ravel()) == list(range(48))
    np.testing.assert_array_equal(labels, images % 4)
    message = "hf://datasets/me/numbers/data/train-00000-of-00003.parquet[3]"
    assert found.train.name_of(3) == message


def test_tar_files_where_there_are_no_parquet_files(hub, tmp_path):
    sharded.tars(tmp_path, 48, side=32)
    files = {x.name: x.read_bytes() for x in tmp_path.glob("*.tar")}
    hub.make("me/tars", {**files, "classnames.txt": b"w\nx\ny\nz\n"})
    found = opened("hf://datasets/me/tars", test_fraction=0.0)
    assert found.class_names == ("w", "x", "y", "z")
    hub.sent.clear()
    images, labels = shown(stream(found.train), 0, 6)
    assert sorted(images.ravel()) == list(range(48))
    np.testing.assert_array_equal(labels, images % 4)
    # The images, some read ahead, without what lies between them.
    assert sum(hub.sent.values()) < 1.2 * found.train.records.sizes.sum()
    hub.make("me/unnamed", files)
    assert opened("hf://datasets/me/unnamed").class_names == tuple("0123")


def test_a_process_asks_the_hub_for_its_share(numbers):
    """Of 12 groups of 4 rows; two more where lanes begin within a group.

    Groups differ a little in size.
    """
    whole = bytes_of_images(numbers, None)
    halves = [bytes_of_images(numbers, data.Share(i, 2)) for i in range(2)]
    assert max(halves) < (0.5 + 2.5 / 12) * whole


def bytes_of_images(hub, share):
    examples = opened(shuffle_buffer=8).train
    hub.sent.clear()
    shown(stream(examples, share), 0, 6)
    return sum(size for name, size in hub.sent.items() if "train" in name)


@pytest.mark.parametrize(
    "name, message",
    [
        ("hf://datasets/numbers", "hf://datasets/user/name, and may"),
        ("hf://datasets/me/others", "me/others cannot be read"),
        ("hf://datasets/me/numbers@old", "me/numbers@old cannot be read"),
        ("hf://datasets/me/empty", "has no parquet or tar files"),
    ],
)
def test_what_is_not_on_the_hub_is_named(numbers, name, message):
    numbers.make("me/empty")
    with pytest.raises(ValueError, match=message):
        opened(name)


def test_a_listing_that_is_forgotten_is_asked_for_again(numbers):
    """As in threads, of which each has a file system of its own."""
    examples = opened().train
    HfFileSystem.clear_instance_cache()
    images, _ = shown(stream(examples), 0, 6)
    assert sorted(images.ravel()) == list(range(48))


def test_a_request_that_fails_is_made_again(numbers):
    examples = opened().train
    numbers.fails_first = True
    images, _ = shown(stream(examples), 0, 6)
    assert sorted(images.ravel()) == list(range(48))
