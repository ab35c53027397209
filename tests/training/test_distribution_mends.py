"""What plain Keras does wrong on two TensorFlow devices, and that it is mended.

Where a test says that Keras no longer does it, the mend is to be deleted.
"""

import json

import keras
import numpy as np
import pytest
import virtual_devices

# A fixture that skips comes behind those of the module.
pytestmark = pytest.mark.skipif(
    keras.backend.backend() != "tensorflow",
    reason="tf.distribute is there on TensorFlow alone.",
)
LOSSES = """
import json
import keras
import numpy as np
import tiny_training as tiny
from keras_vit.training.distribution import setup
from keras_vit.runtime.workarounds import sum_gradients_first

random = np.random.default_rng(0)
classes = random.integers(0, 3, (30, 16))
images = random.uniform(0, 155, (30, 16, 8, 8, 1)) + (
    50 * classes[..., None, None, None]
)
labels = np.eye(3, dtype="float32")[classes]
batches = tf.data.Dataset.from_tensor_slices((images, labels))

def losses(choice, clip, prepare=lambda optimizer: None):
    found = []
    keras.utils.set_random_seed(3)
    with setup(choice, batch_size=16).scope():
        model = tiny.model(
            hidden_dim=16, mlp_dim=32, dropout_rate=0.0,
            stochastic_depth_rate=0.0,
        )
        rule = keras.optimizers.SGD(
            0.05, momentum=0.9, use_ema=True, ema_momentum=0.9, **clip
        )
        prepare(rule)
        model.compile(rule, tiny.loss())
    log = keras.callbacks.LambdaCallback(
        on_train_batch_end=lambda batch, logs: found.append(float(logs["loss"]))
    )
    model.fit(
        batches, epochs=30, steps_per_epoch=1, shuffle=False, verbose=0,
        callbacks=[log],
    )
    return found

print(json.dumps([
    {
        "one": losses("single", clip),
        "plain": losses("mirrored", clip),
        "mended": losses("mirrored", clip, sum_gradients_first),
    }
    for clip in ({"global_clipnorm": 0.5}, {"clipvalue": 0.01})
]))
"""
DEFECTS = """
import json
import keras
import numpy as np
import tiny_training as tiny
from keras_vit.training.distribution import setup
from keras_vit.runtime.workarounds import sum_gradients_first
from keras_vit.runtime.workarounds import draw_own_masks

random = np.random.default_rng(0)
images = random.uniform(0, 255, (8, 8, 8, 1)).astype("float32")
labels = np.eye(3, dtype="float32")[random.integers(0, 3, 8)]

def arrays(variables):
    return [np.array(keras.ops.convert_to_numpy(x)) for x in variables]

def prepared(mended, precision="float32", rule=None, **options):
    keras.utils.set_random_seed(3)
    model = tiny.model(**options)
    model.get_layer("predictions").kernel.assign(random.normal(size=(8, 3)))
    rule = keras.optimizers.SGD(0.1, **(rule or {}))
    if precision == "mixed_float16":
        rule = keras.optimizers.LossScaleOptimizer(rule, initial_scale=1024.0)
    if mended:
        sum_gradients_first(rule)
        draw_own_masks(model)
    return model, rule

def overflow(mended, replica):
    keras.config.set_dtype_policy("mixed_float16")
    with setup("mirrored").scope():
        model, rule = prepared(mended, "mixed_float16")
        model.compile(rule, tiny.loss())
        before, bad = arrays(model.trainable_variables), images.copy()
        bad[4 * replica] = np.inf
        model.fit(bad, labels, batch_size=8, shuffle=False, verbose=0)
        after = arrays(model.trainable_variables)
        scale = float(keras.ops.convert_to_numpy(rule.dynamic_scale))
    keras.config.set_dtype_policy("float32")
    same = all(np.array_equal(x, y) for x, y in zip(before, after))
    return [same, scale]

def trains(mended, rule=None, steps_per_execution=1):
    known = steps_per_execution if mended else 1
    with setup("mirrored", steps_per_execution=known).scope():
        model, rule = prepared(mended, rule=rule)
        model.compile(
            rule, tiny.loss(), steps_per_execution=steps_per_execution
        )
        batches = tf.data.Dataset.from_tensor_slices((images, labels))
        try:
            model.fit(batches.batch(4), shuffle=False, verbose=0)
        except Exception as error:
            return str(error)
    return "trained"

def difference_of_masks(mended, rematerialize):
    # What both replicas make of the same images, and the first and one device.
    chosen = setup("mirrored")
    random.bit_generator.state = state
    with chosen.scope():
        model, _ = prepared(
            mended, dropout_rate=0.5, rematerialize=rematerialize
        )
        call = tf.function(lambda: model(images, training=True))
        strategy = chosen.native
        found = strategy.experimental_local_results(strategy.run(call))
    random.bit_generator.state = state
    one = prepared(mended, dropout_rate=0.5)[0](images, training=True)
    return [float(np.abs(found[0] - x).max()) for x in (found[1], one)]

state = random.bit_generator.state
accumulation = {"gradient_accumulation_steps": 2}
print(json.dumps([
    {
        "overflow": [overflow(mended, replica) for replica in (0, 1)],
        "accumulation": trains(mended, accumulation),
        "steps_per_execution": trains(mended, None, 2),
        "masks": [difference_of_masks(mended, x) for x in (False, True)],
    }
    for mended in (False, True)
]))
"""


def run(script):
    told = virtual_devices.run(script, devices=2, backend="tensorflow")
    return json.loads(told)


@pytest.fixture(scope="module")
def plain_and_mended():
    return run(DEFECTS)


@pytest.mark.slow
def test_an_overflow_on_any_replica_skips_the_update_on_all(plain_and_mended):
    plain, mended = plain_and_mended
    assert plain["overflow"][1] != [True, 512.0], "Keras looks at all replicas."
    assert mended["overflow"] == [[True, 512.0], [True, 512.0]]


@pytest.mark.slow
def test_gradients_are_accumulated(plain_and_mended):
    plain, mended = plain_and_mended
    assert "merge_call" in plain["accumulation"], "Keras accumulates by now."
    assert mended["accumulation"] == "trained"


@pytest.mark.slow
def test_several_steps_run_in_a_call(plain_and_mended):
    plain, mended = plain_and_mended
    assert "placeholder" in plain["steps_per_execution"], (
        "TensorFlow's own reduction runs in a loop by now."
    )
    assert mended["steps_per_execution"] == "trained"


@pytest.mark.slow
def test_each_replica_drops_other_places(plain_and_mended):
    plain, mended = plain_and_mended
    assert [x for x, _ in plain["masks"]] == [0, 0], "Keras's differ by now."
    for between_replicas, from_one_device in mended["masks"]:
        assert between_replicas > 0.1
        assert from_one_device < 1e-4


@pytest.mark.slow
def test_gradients_are_clipped_as_those_of_the_whole_batch():
    for found in run(LOSSES):
        assert len(found["one"]) == 30
        off = np.abs(np.divide(found["plain"], found["one"]) - 1).max()
        assert off > 1e-3, "Keras clips the sum by now."
        np.testing.assert_allclose(found["mended"], found["one"], 1e-5)
