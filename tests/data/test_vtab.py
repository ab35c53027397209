"""VTAB-1k on mocked data sets of the right sizes."""

import dataclasses
import json
import pathlib
import re

import numpy as np
import pytest

from keras_vit import data
from keras_vit.data import vtab_labels
from keras_vit.data.vtab import VtabTest, open_vtab
from keras_vit.data.vtab_table import GROUPS, PAPER, TASKS

tfds = pytest.importorskip("tensorflow_datasets")
mocking = pytest.importorskip("tensorflow_datasets.testing.mocking")
tf = pytest.importorskip("tensorflow")

# Percents of the training images, in task_adaptation's *_PERCENT constants.
TRAIN_PERCENT = {
    "caltech101": 90,
    "cifar100": 90,
    "pets": 80,
    "svhn": 90,
    "eurosat": 60,
    "resisc45": 60,
    "clevr_count": 90,
    "clevr_distance": 90,
    "dsprites_location": 80,
    "dsprites_orientation": 80,
}
TEST_PERCENT = {
    "eurosat": 80,
    "resisc45": 80,
    "dsprites_location": 90,
    "dsprites_orientation": 90,
}
# Table 9's last column.
PAPER_MEANS = {
    "ViT-H/14 JFT": 77.6,
    "ViT-L/16 JFT": 76.3,
    "ViT-L/16 I21k": 72.7,
}
UNSUPERVISED = (
    "dtd",
    "sun397",
    "retinopathy",
    "clevr_count",
    "dsprites_location",
    "kitti_distance",
)


def numbers(split):
    """The first and the last number of a slice, None where it is open."""
    found = re.fullmatch(r"(\w+)(?:\[(\d*):(\d*)\])?", split)
    assert found is not None
    name, first, last = found.groups()
    return name, int(first or 0), int(last) if last else None


@pytest.fixture(scope="module", autouse=True)
def sized(tmp_path_factory):
    """The metadata of each data set, with the sizes that VTAB knows."""
    root = tmp_path_factory.mktemp("tfds")
    for task in TASKS.values():
        builder = tfds.builder(task.builder, data_dir=root)
        folder = pathlib.Path(builder.data_dir)
        if folder.exists():
            continue
        folder.mkdir(parents=True)
        template = "{DATASET}-{SPLIT}.{FILEFORMAT}-{SHARD_X_OF_Y}"
        splits = [
            {
                "name": name,
                "shardLengths": [str(size)],
                "numBytes": "1",
                "filepathTemplate": template,
            }
            for name, size in task.sizes.items()
        ]
        info = {
            "fileFormat": "tfrecord",
            "name": builder.name,
            "version": str(builder.version),
            "splits": splits,
        }
        if builder.builder_config:
            info["configName"] = builder.builder_config.name
        (folder / "dataset_info.json").write_text(json.dumps(info))
        builder.info.features.save_config(folder)
    return root


@pytest.fixture
def mocked(sized, monkeypatch):
    # All sequences of an example have ten elements: by default each has
    # another length, which those of KITTI's objects must not have.
    monkeypatch.setattr(
        mocking.RandomFakeGenerator.__init__, "__defaults__", (1, None, True, 0)
    )
    with tfds.testing.mock_data(
        num_examples=7,
        data_dir=str(sized),
        policy=tfds.testing.MockPolicy.USE_FILES,
    ):
        yield


@pytest.mark.parametrize("name", TASKS)
def test_task_opens_with_its_counts_and_labels(name, mocked):
    task = TASKS[name]
    dataset = open_vtab(name)
    splits = dataset.test.builder.info.splits
    assert splits[task.train].num_examples == 800
    assert splits[task.validation].num_examples == 200
    assert splits[task.final].num_examples == 1000
    assert len(dataset.class_names) == task.num_classes
    labels = dataset.train.labels
    assert len(labels) == 7  # What is mocked, whatever the split.
    assert labels.min() >= 0 and labels.max() < task.num_classes
    batches = data.evaluation_batches(
        dataset.train, image_size=8, channels=3, batch_size=7
    )
    assert next(iter(batches))[0].shape == (7, 8, 8, 3)
    assert dataset.validation is None


TEST_SIZES = {
    "caltech101": 6084,
    "cifar100": 10_000,
    "dtd": 1880,
    "flowers102": 6149,
    "pets": 3669,
    "sun397": 21_750,
    "svhn": 26_032,
    "camelyon": 32_768,
    "eurosat": 5400,
    "resisc45": 6300,
    "retinopathy": 42_670,
    "clevr_count": 15_000,
    "clevr_distance": 15_000,
    "dmlab": 22_735,
    "dsprites_location": 73_728,
    "dsprites_orientation": 73_728,
    "kitti_distance": 711,
    "smallnorb_azimuth": 12_150,
    "smallnorb_elevation": 12_150,
}


@pytest.mark.parametrize("name", TASKS)
def test_tests_have_the_sizes_of_the_benchmark(name, mocked):
    """Table 2 of arXiv:1910.04867, retinopathy's as of btgraham-300."""
    builder = tfds.builder(TASKS[name].builder)
    test = VtabTest(builder, TASKS[name], TASKS[name].test)
    assert len(test) == TEST_SIZES[name]


@pytest.mark.parametrize("name", TASKS)
def test_slices_are_cut_by_whole_percents(name):
    task = TASKS[name]
    assert numbers(task.train) == ("train", 0, 800)
    part, first, last = numbers(task.validation)
    assert last is not None and last - first == 200
    if name in TRAIN_PERCENT:
        assert part == "train"
        assert first == TRAIN_PERCENT[name] * task.sizes["train"] // 100
    else:
        assert first == 0
        assert part == ("test" if "smallnorb" in name else "validation")
    if name in TEST_PERCENT:
        size = task.sizes["train"]
        start = TEST_PERCENT[name] * size // 100
        assert numbers(task.test) == ("train", start, None)
    elif "smallnorb" in name:
        half = task.sizes["test"] // 2
        assert numbers(task.test) == ("test", half, None)
    else:
        assert task.test == ("validation" if "clevr" in name else "test")


def test_groups_are_those_of_the_benchmark():
    groups = [task.group for task in TASKS.values()]
    assert [groups.count(group) for group in GROUPS] == [7, 4, 8]
    assert groups == sorted(groups, key=GROUPS.index)


@pytest.mark.parametrize("model", PAPER)
def test_table_of_the_paper_has_its_mean(model):
    assert len(PAPER[model]) == len(TASKS)
    assert np.mean(PAPER[model]) == pytest.approx(PAPER_MEANS[model], abs=0.06)


@pytest.mark.parametrize("name", TASKS)
def test_versions_are_those_asked_for_or_the_drift_is_said(name, tmp_path):
    task = TASKS[name]
    builder = tfds.builder(task.builder, data_dir=tmp_path)
    _, _, asked = task.builder.partition(":")
    if asked:
        assert builder.version.match(asked)
        assert not task.drift
    else:
        assert f"{builder.version}" in task.drift


@pytest.mark.parametrize("name", TASKS)
def test_downloads_by_hand_are_said(name, tmp_path):
    builder = tfds.builder(TASKS[name].builder, data_dir=tmp_path)
    needed = bool(builder.MANUAL_DOWNLOAD_INSTRUCTIONS)
    assert bool(TASKS[name].by_hand) == needed


@pytest.mark.parametrize("name", UNSUPERVISED)
def test_no_supervised_keys(name, tmp_path):
    """Of these `as_supervised=True` would give no label."""
    builder = tfds.builder(TASKS[name].builder, data_dir=tmp_path)
    assert builder.info.supervised_keys is None


@pytest.mark.parametrize("name", UNSUPERVISED)
def test_data_sets_without_supervised_keys_have_labels(name, mocked):
    builder = tfds.builder(TASKS[name].builder)
    records = VtabTest(builder, TASKS[name], TASKS[name].test).in_order()
    assert records.element_spec["label"] == tf.TensorSpec((), tf.int32)
    assert len(list(records)) == 7


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
        label = vtab_labels.object_count({"objects": objects})
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
    assert plain(vtab_labels.closest_object({"objects": objects})) == expected


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
    assert plain(vtab_labels.closest_vehicle({"objects": objects})) == expected


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
    dataset = open_vtab("dsprites_location", train="train800")
    first = np.arange(800) % 32 // 2
    np.testing.assert_array_equal(dataset.train.labels, first)
    other = np.arange(589_824, 590_024) % 32 // 2
    np.testing.assert_array_equal(dataset.validation.labels, other)
    final = open_vtab("dsprites_location").train.labels
    np.testing.assert_array_equal(final, np.concatenate([first, other]))
    first = next(iter(dataset.test.in_order().take(1)))
    assert plain(first["label"]) == 663_552 % 32 // 2
    assert len(dataset.test) == 737_280 - 663_552


def test_sprites_are_white_and_not_nearly_black(ordered):
    dataset = open_vtab("dsprites_orientation")
    image = tf.io.decode_png(dataset.train.contents[0])
    assert image.shape == (64, 64, 1)
    assert image.numpy().min() == 255


def test_test_images_are_batched_without_being_held(mocked):
    dataset = open_vtab("smallnorb_azimuth")
    batches = data.evaluation_batches(
        dataset.test, image_size=8, channels=3, batch_size=4
    )
    images, labels, mask = next(iter(batches))
    assert images.shape == (4, 8, 8, 3) and mask.numpy().all()
    assert dataset.test.labels is None
    assert dataset.test.name_of(3) == "smallnorb/2.0.0:test[12150:][3]"
    assert labels.numpy().max() < 18


def test_names_of_the_classes_are_those_of_the_data(mocked):
    assert open_vtab("clevr_count").class_names == tuple("01234567")
    assert len(set(open_vtab("cifar100").class_names)) == 100


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": "caltech"}, "Unknown task of VTAB: 'caltech'"),
        ({"name": "dtd", "train": "train"}, "'train800val200', 'train800'"),
    ],
)
def test_wrong_arguments_are_explained(arguments, message):
    with pytest.raises(ValueError, match=message):
        open_vtab(**arguments)


def test_data_of_other_sizes_is_refused(mocked, sized, monkeypatch):
    changed = dict(TASKS["dtd"].sizes, test=1881)
    task = dataclasses.replace(TASKS["dtd"], sizes=changed)
    monkeypatch.setitem(TASKS, "dtd", task)
    with pytest.raises(ValueError, match="not the data of VTAB-1k"):
        open_vtab("dtd")


def test_data_that_must_be_got_by_hand_says_how(tmp_path):
    with pytest.raises(ValueError, match="downloaded by hand into .*manual"):
        open_vtab("resisc45", data_dir=str(tmp_path), download=False)
