"""What the tasks of VTAB-1k read, and what they say of wrong data."""

import dataclasses

import numpy as np
import pytest
from vtab import tasks
from vtab.dataset import open_vtab
from vtab.tasks import TASKS

from keras_vit import data

tfds = pytest.importorskip("tensorflow_datasets")


tf = pytest.importorskip("tensorflow")


pytestmark = pytest.mark.usefixtures("sized")


def test_smallnorb_is_not_asked_for_its_supervised_key(tmp_path):
    builder = tfds.builder(
        TASKS["smallnorb_azimuth"].builder, data_dir=tmp_path
    )
    assert builder.info.supervised_keys[1] == "label_category"
    for name, label in (("azimuth", 18), ("elevation", 9)):
        feature = builder.info.features[f"label_{name}"]
        assert TASKS[f"smallnorb_{name}"].num_classes == label
        assert feature.num_classes == label


def plain(tensor):
    return int(tensor.numpy())


def test_clevr_counts_objects_above_three():
    for count in (3, 7, 10):
        objects = {"size": tf.zeros(count, tf.int64)}
        label = tasks.object_count({"objects": objects})
        assert plain(label) == count - 3


@pytest.mark.parametrize(
    ("distances", "expected"),
    [
        ([7.9, 12.0], 0),
        ([8.0], 0),  # A bound belongs to the class below.
        ([8.1], 1),
        ([11.0, 8.6, 9.2], 2),
        ([9.3], 3),
        ([9.7], 4),
        ([10.1, 30.0], 5),
    ],
)
def test_clevr_distance_is_that_of_the_nearest(distances, expected):
    coordinates = [[1.0, 2.0, distance] for distance in distances]
    objects = {"pixel_coords": tf.constant(coordinates)}
    assert plain(tasks.closest_object({"objects": objects})) == expected


@pytest.mark.parametrize(
    ("types", "distances", "expected"),
    [
        # The cases of task_adaptation's kitti_test.py.
        ([0], [1.0], 0),
        ([0], [10.0], 1),
        ([0], [30.0], 2),
        ([4], [30.0], 3),
        ([0, 1], [30.0, 1.0], 0),
        # A pedestrian is nearer than the truck; nothing at all.
        ([3, 2], [1.0, 25.0], 2),
        ([], [], 3),
    ],
)
def test_kitti_distance_is_that_of_the_nearest_vehicle(
    types, distances, expected
):
    locations = np.zeros((len(types), 3), "float32")
    locations[:, 2] = distances
    objects = {
        "type": tf.constant(types, tf.int64),
        "location": tf.constant(locations),
    }
    assert plain(tasks.closest_vehicle({"objects": objects})) == expected


@pytest.mark.parametrize(
    ("name", "feature", "size"),
    [
        ("dsprites_location", "label_x_position", 32),
        ("dsprites_orientation", "label_orientation", 40),
    ],
)
def test_dsprites_labels_are_sixteen_groups(name, feature, size, mocked):
    rule = TASKS[name].label
    found = [plain(rule({feature: tf.constant(i)})) for i in range(size)]
    assert found == [16 * i // size for i in range(size)]
    builder = tfds.builder(TASKS[name].builder)
    assert builder.info.features[feature].num_classes == size


def opened(name, **options):
    return open_vtab(data.DataConfig(name=f"vtab/{name}", **options))


@pytest.fixture
def ordered(sized):
    """Images of dsprites, and labels, that tell their number in the split."""

    def as_dataset(builder, split, decoders=None, **options):
        found = [
            number
            for part in builder.info.splits[str(split)].file_instructions
            for number in range(part.skip, part.skip + part.take)
        ]
        pixels = tf.zeros((64, 64, 1), tf.uint8) + tf.constant(1, tf.uint8)

        def example(number):
            return {
                "image": tf.io.encode_png(pixels),
                "label_x_position": number % 32,
                "label_orientation": number % 40,
            }

        return tf.data.Dataset.from_tensor_slices(found).map(example)

    with tfds.testing.mock_data(
        as_dataset_fn=as_dataset,
        data_dir=str(sized),
        policy=tfds.testing.MockPolicy.USE_FILES,
    ):
        yield


def test_exactly_the_images_of_the_slices_are_read(ordered):
    dataset = opened(
        "dsprites_location", train_split="train800", validation_split="val200"
    )
    first = np.arange(800) % 32 // 2
    np.testing.assert_array_equal(dataset.train.labels, first)
    other = np.arange(589_824, 590_024) % 32 // 2
    np.testing.assert_array_equal(dataset.validation.labels, other)
    final = opened("dsprites_location").train.labels
    np.testing.assert_array_equal(final, np.concatenate([first, other]))
    first = next(iter(dataset.test.in_order().take(1)))
    assert plain(first["label"]) == 663_552 % 32 // 2
    assert len(dataset.test) == 737_280 - 663_552


def test_sprites_are_white_and_not_nearly_black(ordered):
    dataset = opened("dsprites_orientation")
    image = tf.io.decode_png(dataset.train.contents[0])
    assert image.shape == (64, 64, 1)
    assert image.numpy().min() == 255


def test_test_images_are_batched_without_being_held(mocked):
    dataset = opened("smallnorb_azimuth")
    batches = data.evaluation_batches(
        dataset.test, image_size=8, channels=3, batch_size=4
    )
    images, labels, mask = next(iter(batches))
    assert images.shape == (4, 8, 8, 3) and mask.numpy().all()
    assert dataset.test.labels is None
    assert dataset.test.name_of(3) == "smallnorb/2.0.0:test[12150:][3]"
    assert labels.numpy().max() < 18


def test_names_of_the_classes_are_those_of_the_data(mocked):
    assert opened("clevr_count").class_names == tuple("01234567")
    assert len(set(opened("cifar100").class_names)) == 100


def test_data_of_other_sizes_is_refused(mocked, sized, monkeypatch):
    changed = dict(TASKS["dtd"].sizes, test=1881)
    task = dataclasses.replace(TASKS["dtd"], sizes=changed)
    monkeypatch.setitem(TASKS, "dtd", task)
    with pytest.raises(ValueError, match="not the data of VTAB-1k"):
        opened("dtd")


def test_data_that_must_be_got_by_hand_says_how(tmp_path):
    with pytest.raises(ValueError, match="downloaded by hand into .*manual"):
        opened("resisc45", data_dir=str(tmp_path), download=False)
