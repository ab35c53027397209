"""Several devices give what one gives, awkward sizes included."""

import pytest
import virtual_devices

COMMON = """
import keras
import numpy as np
from padded import padded_batches
from keras_vit import evaluation

def check(model):
    generator = np.random.default_rng(0)
    model.set_weights(
        [generator.normal(size=w.shape) for w in model.get_weights()]
    )
    for size in (1, 7, 9, 13):
        images = generator.normal(size=(size, 4)).astype("float32")
        labels = generator.integers(0, 6, size).astype("int32")
        kernel, bias = model.get_weights()
        ranks = np.argsort(-(images @ kernel + bias), axis=1)
        found = evaluation.predict_classes(
            model, PREPARE(list(padded_batches(images, labels, 8)))
        )
        np.testing.assert_array_equal(found.classes, ranks[:, :5])
        np.testing.assert_array_equal(found.labels, labels)
    print("same")

def new_model():
    return keras.Sequential([keras.Input((4,)), keras.layers.Dense(6)])
"""
JAX = """
PREPARE = iter
devices = keras.distribution.list_devices()
assert len(devices) == 4
keras.distribution.set_distribution(keras.distribution.DataParallel(devices=devices))
check(new_model())
"""
TENSORFLOW = """
def PREPARE(batches):
    parts = tuple(map(np.concatenate, zip(*batches)))
    return tf.data.Dataset.from_tensor_slices(parts).batch(8)

strategy = tf.distribute.MirroredStrategy()
assert strategy.num_replicas_in_sync == 4
with strategy.scope():
    check(new_model())
"""
SCRIPTS = {"jax": JAX, "tensorflow": TENSORFLOW}


@pytest.mark.slow
def test_any_number_of_devices(backend):
    if backend not in SCRIPTS:
        pytest.skip("Keras has no distribution on torch.")
    script = COMMON + SCRIPTS[backend]
    assert virtual_devices.run(script, devices=4, backend=backend) == "same"
