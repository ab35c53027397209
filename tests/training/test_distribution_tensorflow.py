"""Two TensorFlow devices train as one does: virtual ones, in a process."""

import functools
import json

import keras
import numpy as np
import pytest
import tiny_training as tiny
import virtual_devices
import whole_runs

from keras_vit.runtime.workarounds import (
    draw_own_masks,
    sum_gradients_first,
)

run = functools.partial(virtual_devices.run, devices=2, backend="tensorflow")

RUNS = """
import pathlib
import keras
import numpy as np
from tiny_runs import DATASET, Interrupt, recipe, values
from keras_vit.training import train

folder = pathlib.Path(sys.argv[1])

def trained(name, choice, callbacks=()):
    asked = recipe(folder / name, distribution=choice)
    return train(asked, dataset=DATASET, callbacks=callbacks)

one = trained("one", "single")
for name, choices in (
    ("several", ("single", "mirrored")), ("fewer", ("mirrored", "single"))
):
    try:
        trained(name, choices[0], [Interrupt()])
    except KeyboardInterrupt:
        pass
    other = trained(name, choices[1])
    for x, y in zip(values(one.model), values(other.model), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-6)
    for metric, expected in one.history.items():
        if metric != "images_per_second":
            np.testing.assert_allclose(other.history[metric], expected, 1e-5)
print("same")
"""
KOLEO = """
import json
import numpy as np
from keras_vit.training.tasks.losses import koleo_loss

features = np.random.default_rng(0).normal(size=(16, 6)).astype("float32")

def stepped(strategy):
    # The loss before each of some steps down its gradient, features behind.
    count = strategy.num_replicas_in_sync

    def replica(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = koleo_loss(x)
        return loss, x - 2.0 / count * tape.gradient(loss, x)

    def share(context):
        index = context.replica_id_in_sync_group
        return tf.constant(np.split(features, count)[index])

    run = tf.function(lambda x: strategy.run(replica, (x,)))
    x = strategy.experimental_distribute_values_from_function(share)
    losses = []
    for _ in range(6):
        loss, x = run(x)
        losses.append(np.mean(strategy.experimental_local_results(loss)))
    x = np.concatenate(strategy.experimental_local_results(x))
    return np.array(losses).tolist(), x.tolist()

several = tf.distribute.MirroredStrategy()
assert several.num_replicas_in_sync == 8
found = [stepped(x) for x in (tf.distribute.get_strategy(), several)]
print(json.dumps(found))
"""
WHOLE = """
import whole_runs
whole_runs.main(*sys.argv[1:])
"""


@pytest.fixture(autouse=True)
def on_tensorflow(backend):
    if backend != "tensorflow":
        pytest.skip("tf.distribute is there on TensorFlow alone.")


@pytest.mark.parametrize("steps", [None, 2])
def test_a_single_replica_trains_as_without_a_strategy(steps):
    """To the bit, dropout included."""
    import tensorflow as tf

    random = np.random.default_rng(0)
    images = random.uniform(0, 255, (12, 8, 8, 1)).astype("float32")
    labels = np.eye(3, dtype="float32")[np.arange(12) % 3]

    def weights(strategy):
        keras.utils.set_random_seed(3)
        with strategy.scope():
            model = tiny.model()
            rule = keras.optimizers.SGD(
                0.1, global_clipnorm=0.5, gradient_accumulation_steps=steps
            )
            model.compile(rule, tiny.loss())
            sum_gradients_first(rule)
            draw_own_masks(model)
            model.fit(images, labels, batch_size=4, shuffle=False, verbose=0)
        return [keras.ops.convert_to_numpy(x) for x in model.variables]

    one = weights(tf.distribute.get_strategy())
    other = weights(tf.distribute.MirroredStrategy(["cpu:0"]))
    for x, y in zip(one, other, strict=True):
        np.testing.assert_array_equal(x, y)


@pytest.mark.slow
@pytest.mark.parametrize(
    "training", [{}, {"accumulation_steps": 2, "steps_per_execution": 2}]
)
def test_a_whole_run_is_that_of_one_device(tmp_path, training):
    """With clipping, averages, Mixup, metrics and a padded evaluation."""
    options = json.dumps({"training": training})
    found = json.loads(run(WHOLE, tmp_path, options, "single", "mirrored"))
    whole_runs.check_same(found["single"], found["mirrored"])


@pytest.mark.slow
def test_koleo_and_its_gradient_are_of_the_whole_batch():
    """Two images on each of eight devices, whose nearest are on others."""
    told = virtual_devices.run(KOLEO, devices=8, backend="tensorflow")
    one, several = json.loads(told)
    assert one[0][-1] < one[0][0] - 0.1
    for alone, shared in zip(one, several, strict=True):
        np.testing.assert_allclose(shared, alone, rtol=0, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("name", whole_runs.METHODS)
def test_learning_without_labels_is_that_of_one_device(tmp_path, name):
    """The centres of DINO and iBOT and Sinkhorn are of the whole batch."""
    options = json.dumps(whole_runs.unlabelled(name, tmp_path))
    told = run(WHOLE, tmp_path, options, "single", "mirrored")
    whole_runs.check_unlabelled(*json.loads(told).values())


@pytest.mark.slow
def test_a_run_goes_on_with_another_number_of_devices(tmp_path):
    """Metrics and the padded evaluation included."""
    assert run(RUNS, tmp_path) == "same"
