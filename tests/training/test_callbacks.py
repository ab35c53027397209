import json
import time

import keras
import numpy as np
import pytest

from keras_vit.training.callbacks import JSONLines, Throughput


class Wait(keras.callbacks.Callback):
    """Makes training steps and validation take at least a known time."""

    def on_train_batch_end(self, batch, logs=None):
        time.sleep(0.05)

    def on_test_begin(self, logs=None):
        time.sleep(0.5)


def fitted(callbacks, **options):
    model = keras.Sequential([keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(0.25), "mse")
    images, labels = np.ones((8, 2), "float32"), np.ones((8, 1), "float32")
    return model.fit(
        images,
        labels,
        batch_size=2,
        epochs=2,
        verbose=0,
        callbacks=callbacks,
        **options,
    )


def test_speed_counts_the_training_and_not_the_validation():
    validation = np.ones((2, 2), "float32"), np.ones((2, 1), "float32")
    history = fitted([Throughput(8), Wait()], validation_data=validation)
    # The second epoch compiles nothing: 4 steps of 50 ms and a little.
    assert 8 / 0.6 < history.history["images_per_second"][1] <= 8 / 0.2


def test_speed_without_validation():
    history = fitted([Throughput(8), Wait()])
    assert 8 / 0.6 < history.history["images_per_second"][1] <= 8 / 0.2


def test_learning_rate_is_logged():
    rates = fitted([Throughput(8)]).history["learning_rate"]
    assert rates == pytest.approx([0.25, 0.25])


def test_a_line_an_epoch_says_what_the_history_says(tmp_path):
    path = tmp_path / "metrics.jsonl"
    history = fitted([Throughput(8), JSONLines(path)]).history
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert [row.pop("epoch") for row in rows] == [0, 1]
    for i, row in enumerate(rows):
        expected = {name: values[i] for name, values in history.items()}
        assert row == pytest.approx(expected)
