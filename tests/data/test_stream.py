import itertools
import logging

import keras
import numpy as np
import pytest
import tensorflow as tf
from numbered import PLAIN, encoded, numbered

from keras_vit.data import (
    AugmentationConfig,
    Examples,
    PreprocessingConfig,
    training_stream,
)

# TensorFlow says of a broken image what was raised when it was read.
STOPPED = (ValueError, tf.errors.InvalidArgumentError)
pytestmark = pytest.mark.usefixtures("reader")

EVERYTHING = AugmentationConfig(
    shift=0.1,
    rotation=20,
    zoom=0.1,
    rand_augment_layers=2,
    mixup_alpha=0.3,
    random_erasing_rate=0.5,
)


def noise(count=10):
    shape = (count, 12, 10, 3)
    images = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    return Examples(images, np.arange(count, dtype=np.int32))


def stream(examples, num_classes=10, **options):
    settings = {"batch_size": 3, "preprocessing": PLAIN, "image_size": 4}
    settings |= {"channels": 1, **options}
    return training_stream(examples, num_classes, **settings)


def batches(source, step, count):
    taken = itertools.islice(iter(source.from_step(step)), count)
    return [tuple(map(np.asarray, batch)) for batch in taken]


def seen(source, epoch):
    per_epoch = source.steps_per_epoch
    taken = batches(source, epoch * per_epoch, per_epoch)
    return np.concatenate([images[:, 0, 0, 0] for images, _ in taken])


def test_an_epoch_shows_no_image_twice_and_each_has_its_order():
    source = stream(numbered())
    epochs = [seen(source, epoch) for epoch in range(4)]
    for shown in epochs:
        assert len(shown) == len(set(shown)) == 9
    assert not np.array_equal(epochs[0], epochs[1])
    assert len({45 - int(shown.sum()) for shown in epochs}) > 1


def test_the_order_is_a_permutation_by_seed_and_epoch():
    source = stream(numbered(), seed=4)
    expected = np.random.default_rng((4, 2, 10)).permutation(10)[:9]
    np.testing.assert_array_equal(seen(source, 2), expected)


@pytest.mark.parametrize(
    "options",
    [
        {"augmentation": EVERYTHING, "channels": 3},
        {
            "augmentation": AugmentationConfig(cutmix_alpha=1.0),
            "channels": 3,
            "preprocessing": PreprocessingConfig(),
        },
    ],
)
def test_a_batch_is_the_same_whatever_came_before(options):
    whole = batches(stream(noise(), **options), 0, 10)
    keras.utils.set_random_seed(7)
    later = batches(stream(noise(), **options), 4, 6)
    for (images, labels), (expected, wanted) in zip(
        later, whole[4:], strict=True
    ):
        np.testing.assert_array_equal(images, expected)
        np.testing.assert_array_equal(labels, wanted)


def test_augmentation_goes_by_the_number_of_the_image_not_by_its_batch():
    options = {
        "augmentation": AugmentationConfig(shift=0.3, rand_augment_layers=2),
        "channels": 3,
    }
    threes = batches(stream(noise(), **options), 0, 3)
    nine = batches(stream(noise(), batch_size=9, **options), 0, 1)
    together = np.concatenate([images for images, _ in threes])
    np.testing.assert_array_equal(together, nine[0][0])


def test_the_seed_changes_the_order():
    one, other = stream(numbered()), stream(numbered(), seed=1)
    assert not np.array_equal(seen(one, 0), seen(other, 0))


def test_flip_mirrors_about_every_second_image():
    preprocessing = PreprocessingConfig(train="squash", flip=True)
    size = {"image_size": (12, 10), "channels": 3}
    source = stream(noise(), preprocessing=preprocessing, **size)
    mirrored = []
    for images, labels in batches(source, 0, 60):
        for image, label in zip(images, labels.argmax(-1), strict=True):
            original = noise().contents[label]
            mirrored.append(np.array_equal(image, original[:, ::-1]))
            assert mirrored[-1] or np.array_equal(image, original)
    assert 60 < sum(mirrored) < 120


def test_names_of_a_step_are_those_of_its_images():
    source = stream(numbered())
    for step in (0, 2, 7):
        ((_, labels),) = batches(source, step, 1)
        expected = [f"numbers[{label}]" for label in labels.argmax(-1)]
        assert source.names_of(step) == expected


def test_names_stay_in_a_subset():
    assert numbered().subset([7, 3]).name_of(1) == "numbers[3]"
    assert numbered().subset([7, 3]).subset([1]).name_of(0) == "numbers[3]"


def test_nothing_before_the_step_is_decoded():
    first = int(np.random.default_rng((0, 0, 10)).permutation(10)[0])
    source = stream(encoded([first], on_broken_image="stop"))
    batches(source, 1, 2)
    with pytest.raises(STOPPED):
        batches(source, 0, 1)


@pytest.mark.parametrize("kind", ["encoded", "path"])
def test_a_broken_image_stops_with_its_name(kind, tmp_path):
    examples, name = encoded([5], on_broken_image="stop"), r"numbers.*5"
    if kind == "path":
        paths = [tmp_path / f"{i}.png" for i in range(10)]
        for path, content in zip(paths, examples.contents, strict=True):
            path.write_bytes(content)
        paths[5].unlink()
        contents = np.array(list(map(str, paths)), object)
        examples = Examples(contents, examples.labels, kind="path")
        name = "5.png"
    with pytest.raises(STOPPED, match=name):
        batches(stream(examples), 0, 3)


def test_a_broken_image_is_skipped_counted_and_named(caplog):
    source = stream(encoded([5, 8]))
    with caplog.at_level(logging.WARNING):
        taken = batches(source, 0, 12)
    assert source.skipped == {"numbers[5]", "numbers[8]"}
    assert sum("numbers[5]" in line for line in caplog.messages) == 1
    for images, labels in taken:
        # In its place there is another image of the batch, with its label.
        np.testing.assert_array_equal(labels.argmax(-1), images[:, 0, 0, 0])
        assert not {5, 8} & set(labels.argmax(-1))
    whole = batches(stream(encoded()), 0, 12)
    for (images, _), (expected, labels) in zip(taken, whole, strict=True):
        read = ~np.isin(labels.argmax(-1), (5, 8))
        np.testing.assert_array_equal(images[read], expected[read])


def test_labels_outside_the_range_are_refused():
    with pytest.raises(ValueError, match="0 to 6: 3 of 10.* 7 of image 7"):
        stream(numbered(), num_classes=7)


def test_labels_of_several_classes_are_vectors():
    labels = np.eye(10, dtype=np.uint8)
    labels[:, 0] = 1
    examples = Examples(numbered().contents, labels)
    ((images, vectors),) = batches(stream(examples), 0, 1)
    np.testing.assert_array_equal(vectors, labels[images[:, 0, 0, 0]])
    with pytest.raises(ValueError, match="10 classes.* 11"):
        stream(examples, num_classes=11)


def test_batches_that_the_images_do_not_fill_are_refused():
    with pytest.raises(ValueError, match="=11 .* 10 training"):
        stream(numbered(), batch_size=11)


def test_fit_takes_the_stream_and_continues():
    model = keras.Sequential([keras.layers.Flatten(), keras.layers.Dense(10)])
    model.compile("sgd", "mse")
    source = stream(numbered())
    model.fit(
        source.from_step(2),
        epochs=2,
        steps_per_epoch=source.steps_per_epoch,
        shuffle=False,
        verbose=0,
    )
    assert int(model.optimizer.iterations) == 6
