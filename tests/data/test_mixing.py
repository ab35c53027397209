import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_vit.data.augmentation import batch_augmenter, mixup
from keras_vit.data.config import AugmentationConfig
from keras_vit.data.seeds import key

LABELS = np.eye(4, dtype="float32")


def noise(count=4, side=8):
    shape = (count, side, side, 3)
    return np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)


def batch(step=0, seed=0, **options):
    augment = batch_augmenter(AugmentationConfig(**options), seed)
    # As in a stream: inside a graph, whose step is a tensor.
    run = tf.function(lambda *inputs: augment(*inputs))
    images, labels = run(noise(), LABELS, tf.constant(step, tf.int64))
    return images.numpy(), labels.numpy()


def test_mixup_mixes_with_the_image_before_by_one_weight():
    images, labels = batch(mixup_alpha=0.5)
    weight = labels[0, 0]
    expected = weight * noise() + (1 - weight) * noise()[[3, 0, 1, 2]]
    np.testing.assert_allclose(images, expected, rtol=1e-5, atol=1e-3)
    shifted = weight * LABELS + (1 - weight) * LABELS[[3, 0, 1, 2]]
    np.testing.assert_allclose(labels, shifted, rtol=1e-6)
    assert 0.5 <= weight < 1


@pytest.mark.parametrize("alpha", [0.2, 1.0])
def test_mixup_weights_follow_the_beta_distribution(alpha):
    run = tf.function(
        lambda step: mixup(
            tf.zeros((2, 1, 1, 1)),
            tf.eye(2),
            key("mixup", 0, 0, step),
            alpha=alpha,
        )[1][0, 0]
    )
    steps = tf.range(2000, dtype=tf.int64)
    weights = np.array([run(step).numpy() for step in steps])
    drawn = np.random.default_rng(1).beta(alpha, alpha, 200_000)
    expected = np.maximum(drawn, 1 - drawn)
    quantiles = np.linspace(0.05, 0.95, 10)
    np.testing.assert_allclose(
        np.quantile(weights, quantiles),
        np.quantile(expected, quantiles),
        atol=0.04,
    )


def test_cutmix_takes_a_box_of_another_image_and_its_share_of_the_label():
    images, labels = batch(cutmix_alpha=1.0, step=1)
    np.testing.assert_allclose(labels.sum(-1), 1, rtol=1e-5)
    for number, (image, label) in enumerate(zip(images, labels, strict=True)):
        own = (image == noise()[number]).all(-1)
        if label[number] < 1:
            (other,) = set(np.flatnonzero(label)) - {number}
            boxed = (image == noise()[other]).all(-1)
            assert (own | boxed).all()
            # Keras's box has whole pixels, its share is exact.
            assert abs(own.mean() - label[number]) < 0.2
        else:
            assert own.all()
    assert (labels.max(-1) < 1).any()


def test_cutmix_shares_are_of_beta_one_not_of_a_range_of_parameters():
    # Beta(1, 1) is uniform; Keras's plain factor=1.0 draws the parameter from
    # [0, 1], so that little more than a quarter lies in the middle half.
    augment = batch_augmenter(AugmentationConfig(cutmix_alpha=1.0), seed=0)
    run = tf.function(lambda step: augment(noise(), LABELS, step)[1])
    steps = tf.range(100, dtype=tf.int64)
    shares = np.concatenate([np.diag(run(step).numpy()) for step in steps])
    mixed = shares[shares < 1]
    assert 0.42 < np.mean((mixed > 0.25) & (mixed < 0.75)) < 0.58


def test_random_erasing_replaces_a_box_at_its_rate():
    unchanged = []
    for step in range(30):
        images, labels = batch(step, random_erasing_rate=0.5)
        np.testing.assert_array_equal(labels, LABELS)
        unchanged += [(images == noise()).all((1, 2, 3))]
    # 120 images at a rate of one half; boxes below a pixel change nothing.
    assert 35 < np.sum(unchanged) < 100


@pytest.mark.parametrize(
    "options",
    [
        {"mixup_alpha": 0.3},
        {"cutmix_alpha": 1.0},
        {"random_erasing_rate": 1.0},
        {"cutmix_alpha": 1.0, "random_erasing_rate": 1.0},
    ],
)
def test_a_batch_is_a_function_of_the_seed_and_the_step(options):
    first = batch(step=3, **options)
    keras.utils.set_random_seed(99)
    again = batch(step=3, **options)
    np.testing.assert_array_equal(first[0], again[0])
    np.testing.assert_array_equal(first[1], again[1])
    assert not np.array_equal(first[0], batch(step=4, **options)[0])
    assert not np.array_equal(first[0], batch(step=3, seed=1, **options)[0])


def test_nothing_to_do_leaves_bytes():
    images, labels = batch()
    assert images.dtype == np.uint8
    np.testing.assert_array_equal(images, noise())
    np.testing.assert_array_equal(labels, LABELS)


def test_float_policies_of_the_model_do_not_reach_the_labels():
    keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        _, labels = batch(cutmix_alpha=1.0)
    finally:
        keras.config.set_dtype_policy("float32")
    assert labels.dtype == np.float32


def test_mixup_and_cutmix_together_are_refused():
    with pytest.raises(ValueError, match="mixup_alpha=0.2.*cutmix_alpha=1"):
        AugmentationConfig(mixup_alpha=0.2, cutmix_alpha=1.0)


def test_keras_cv_that_is_not_installed_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "keras_cv", None)
    with pytest.raises(ValueError, match=r"RandAugment.*\[cv\]"):
        batch(keras_cv="RandAugment")


def test_a_keras_cv_layer_runs_on_batches(monkeypatch):
    class Halve:
        def __init__(self, dtype, times=1):
            assert dtype == "float32"
            self.divisor = 2**times

        def __call__(self, batch, training):
            assert training
            return {**batch, "images": batch["images"] / self.divisor}

    layers = type("layers", (), {"Halve": Halve})
    module = type("keras_cv", (), {"layers": layers})
    monkeypatch.setitem(sys.modules, "keras_cv", module)
    images, labels = batch(keras_cv="Halve")
    np.testing.assert_array_equal(images, noise() / 2)
    np.testing.assert_array_equal(labels, LABELS)
    images, _ = batch(keras_cv="Halve", keras_cv_arguments={"times": 2})
    np.testing.assert_array_equal(images, noise() / 4)
    with pytest.raises(ValueError, match="no layer keras_cv.layers.Halv;"):
        batch(keras_cv="Halv")
