"""TensorFlow leaves the GPUs to the backend that computes."""

import dataclasses

import keras
import numpy as np
import pytest

from keras_vit import data

tf = pytest.importorskip("tensorflow")

EXAMPLES = data.Examples(
    np.zeros((4, 2, 2, 1), "uint8"), np.arange(4, dtype="int32")
)
BY_PILLOW = dataclasses.replace(EXAMPLES, reader="pillow")
DOORS = {
    "open": lambda: data.open_dataset(data.DataConfig(name="digits")),
    "train": lambda: data.training_stream(
        EXAMPLES, 4, image_size=2, channels=1, batch_size=2, seed=0
    ),
    "evaluate": lambda: data.evaluation_batches(
        EXAMPLES, image_size=2, channels=1, batch_size=2
    ),
}


@pytest.mark.parametrize("backend", ["jax", "tensorflow", "torch"])
@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("error", [None, RuntimeError("it has started")])
def test_gpus_are_out_of_sight_for_all_backends_but_one(
    backend, door, error, monkeypatch
):
    asked = []

    def record(devices, kind):
        asked.append((devices, kind))
        if error:
            raise error

    monkeypatch.setattr(tf.config, "set_visible_devices", record)
    monkeypatch.setattr(keras.backend, "backend", lambda: backend)
    DOORS[door]()
    others = backend != "tensorflow"
    assert set(map(str, asked)) == ({str(([], "GPU"))} if others else set())


def test_nothing_is_asked_of_tensorflow_where_pillow_reads(monkeypatch):
    monkeypatch.setattr(tf.config, "set_visible_devices", None)
    monkeypatch.setattr(keras.backend, "backend", lambda: "jax")
    data.evaluation_batches(BY_PILLOW, image_size=2, channels=1, batch_size=2)
    config = data.DataConfig(reader="pillow")
    assert data.open_dataset(config).train.reader == "pillow"
