"""Padded batches are evaluated as the images in them are."""

import keras
import numpy as np
import pytest
import tiny_training as tiny

from keras_vit import data
from keras_vit.training.build import validation_batches

NUM_IMAGES, BATCH = 10, 8


@pytest.fixture(scope="module")
def padded():
    """10 images in two batches of 8."""
    return data.evaluation_batches(
        tiny.examples(NUM_IMAGES, seed=1),
        image_size=8,
        channels=1,
        batch_size=BATCH,
        preprocessing=data.PreprocessingConfig(evaluation="squash"),
    )


@pytest.fixture(scope="module")
def model():
    keras.utils.set_random_seed(0)
    found = tiny.model()
    found.get_layer("predictions").kernel.assign(
        np.random.default_rng(0).normal(size=(8, 3))
    )
    found.compile(loss=tiny.loss(), weighted_metrics=["accuracy"])
    return found


@pytest.fixture(scope="module")
def expected(padded, model):
    """Mean cross-entropy and share of right names of the images alone."""
    images, labels, mask = map(
        np.concatenate, zip(*padded.as_numpy_iterator(), strict=True)
    )
    assert mask.sum() == NUM_IMAGES < len(mask)
    images, labels = images[mask], labels[mask]
    scores = keras.ops.convert_to_numpy(model(images)).astype("float64")
    normalised = scores - np.log(np.exp(scores).sum(axis=1, keepdims=True))
    losses = -normalised[np.arange(NUM_IMAGES), labels]
    return {
        "loss": losses.mean(),
        "accuracy": (scores.argmax(axis=1) == labels).mean(),
    }


def test_each_image_counts_once(padded, model, expected):
    batches = validation_batches(padded, NUM_IMAGES, 3)
    found = model.evaluate(batches, verbose=0, return_dict=True)
    assert found == pytest.approx(expected, rel=1e-5)


def test_plain_keras_lets_padding_lower_the_loss(padded, model, expected):
    """Where it does not, weights of 1 will do in `validation_batches`."""
    images, labels, mask = map(
        np.concatenate, zip(*padded.as_numpy_iterator(), strict=True)
    )
    found = model.evaluate(
        images, np.eye(3)[labels], BATCH, 0, mask, return_dict=True
    )
    assert found["loss"] < 0.9 * expected["loss"]
