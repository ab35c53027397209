import keras
import numpy as np
import pytest

from keras_vit.training import TrainingConfig
from keras_vit.training.build import make_loss

LOGITS = np.random.default_rng(0).normal(scale=5, size=(6, 4))
# Labels as Mixup makes them.
LABELS = np.random.default_rng(1).dirichlet([0.3] * 4, size=6)


def loss_of(labels=LABELS, logits=LOGITS, **fields):
    loss = make_loss(TrainingConfig(**fields))
    return float(
        loss(
            keras.ops.convert_to_tensor(labels.astype("float32")),
            keras.ops.convert_to_tensor(logits.astype("float32")),
        )
    )


def smoothed(smoothing):
    return LABELS * (1 - smoothing) + smoothing / 4


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_softmax_is_the_mean_over_the_images(smoothing):
    logarithms = LOGITS - np.log(np.exp(LOGITS).sum(axis=1, keepdims=True))
    expected = -np.mean((smoothed(smoothing) * logarithms).sum(axis=1))
    found = loss_of(loss="softmax", label_smoothing=smoothing)
    assert found == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_sigmoid_is_the_sum_over_the_classes(smoothing):
    probabilities = 1 / (1 + np.exp(-LOGITS))
    labels = smoothed(smoothing)
    losses = -labels * np.log(probabilities)
    losses -= (1 - labels) * np.log(1 - probabilities)
    found = loss_of(loss="sigmoid", label_smoothing=smoothing)
    assert found == pytest.approx(losses.sum(axis=1).mean(), rel=1e-5)


def test_sigmoid_of_large_logits_is_finite():
    logits = np.array([[1000.0, -1000.0]])
    wrong = loss_of(
        np.array([[0.0, 1.0]]), logits, loss="sigmoid", label_smoothing=0.0
    )
    assert wrong == pytest.approx(2000)


def test_sigmoid_loss_survives_its_config():
    loss = make_loss(TrainingConfig(loss="sigmoid", label_smoothing=0.25))
    again = keras.losses.deserialize(keras.losses.serialize(loss))
    assert again.label_smoothing == 0.25
