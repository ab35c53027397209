import keras
import numpy as np
import pytest

from keras_vit.data import RandomAffine, Split, TrainingBatches


def numbered(count=10):
    """Images that tell their number, which is their label as well."""
    numbers = np.arange(count)
    images = np.broadcast_to(numbers[:, None, None, None], (count, 4, 4, 1))
    return Split(images.astype(np.uint8), numbers)


def batches(**options):
    settings = {"batch_size": 3, "epochs": 4, "seed": 0, **options}
    return TrainingBatches(numbered(), 10, **settings)


def seen(source, epoch):
    steps = range(source.steps_per_epoch)
    first = epoch * source.steps_per_epoch
    return np.concatenate(
        [source[first + step][0][:, 0, 0, 0] for step in steps]
    )


def test_an_epoch_shows_no_image_twice():
    for epoch in range(4):
        images = seen(batches(), epoch)
        assert len(images) == 9
        assert len(set(images)) == 9


def test_epochs_have_different_orders():
    assert not np.array_equal(seen(batches(), 0), seen(batches(), 1))


def test_the_images_left_over_change():
    left = {45 - int(seen(batches(), epoch).sum()) for epoch in range(4)}
    assert len(left) > 1


def test_a_batch_is_the_same_whatever_came_before():
    source = batches(augment=RandomAffine(shift=0.3))
    in_order = [source[i] for i in range(len(source))]
    images, labels = batches(augment=RandomAffine(shift=0.3))[7]
    np.testing.assert_array_equal(images, in_order[7][0])
    np.testing.assert_array_equal(labels, in_order[7][1])


def test_augmentation_goes_by_the_number_of_the_image():
    augment = RandomAffine(shift=0.3)
    images, labels = batches(augment=augment)[7]  # of epoch 2
    for image, example in zip(images, labels.argmax(-1), strict=True):
        original = numbered().images[[example]]
        (expected,) = augment(original, [example], seed=0, epoch=2)
        np.testing.assert_array_equal(image, expected)


def test_labels_are_one_hot_and_stay_with_their_images():
    images, labels = batches()[5]
    np.testing.assert_array_equal(labels.argmax(-1), images[:, 0, 0, 0])
    np.testing.assert_array_equal(labels.sum(-1), 1)


def test_the_seed_changes_the_order():
    assert not np.array_equal(seen(batches(), 0), seen(batches(seed=1), 0))


def test_a_batch_larger_than_the_data_is_refused():
    with pytest.raises(ValueError, match="batch_size=11.* 10 training images"):
        batches(batch_size=11)


def test_fit_takes_the_batches_in_their_order():
    class Recorded(TrainingBatches):
        def __init__(self, *args, **options):
            super().__init__(*args, **options)
            self.calls = []

        def __getitem__(self, index):
            self.calls.append(index)
            return super().__getitem__(index)

    source = Recorded(numbered(), 10, batch_size=3, epochs=4, seed=0)
    model = keras.Sequential([keras.layers.Flatten(), keras.layers.Dense(10)])
    model.compile("sgd", "mse")
    model.fit(
        source,
        epochs=4,
        steps_per_epoch=source.steps_per_epoch,
        shuffle=False,
        verbose=0,
    )
    # Keras also peeks at the first batches before and after.
    calls = ",".join(map(str, source.calls))
    assert ",".join(map(str, range(12))) in calls
    assert int(model.optimizer.iterations) == 12
