"""Two TensorFlow devices train as one does: virtual ones, in a process."""

import json
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest

TESTS = pathlib.Path(__file__).parents[1]

DEVICES = """
import sys
import tensorflow as tf

(cpu,) = tf.config.list_physical_devices("CPU")
tf.config.set_logical_device_configuration(
    cpu, [tf.config.LogicalDeviceConfiguration()] * 2
)
"""
LOSSES = """
import json
import keras
import numpy as np
import tiny_training as tiny
from keras_vit.training.distribution import setup
from keras_vit.training.distribution_gradients import sum_gradients_first

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
RUNS = """
import pathlib
import keras
import numpy as np
from test_run import DATASET, Interrupt, recipe, values
from keras_vit.training import train

folder = pathlib.Path(sys.argv[1])

def trained(name, choice, callbacks=()):
    asked = recipe(folder / name, distribution=choice)
    return train(asked, dataset=DATASET, callbacks=callbacks)

one = trained("one", "single")
try:
    trained("several", "mirrored", [Interrupt()])
except KeyboardInterrupt:
    pass
several = trained("several", "mirrored")
for x, y in zip(values(one.model), values(several.model), strict=True):
    np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-6)
for name, expected in one.history.items():
    if name != "images_per_second":
        np.testing.assert_allclose(several.history[name], expected, 1e-5)
lines = [
    (folder / name / "metrics.jsonl").read_text().splitlines()
    for name in ("one", "several")
]
assert len(lines[0]) == len(lines[1])
print("same")
"""


@pytest.fixture(autouse=True)
def on_tensorflow(backend):
    if backend != "tensorflow":
        pytest.skip("tf.distribute is there on TensorFlow alone.")


def run(script, *arguments):
    """The last line of what a script says, in a process of its own."""
    paths = [
        str(TESTS),
        str(TESTS / "training"),
        str(TESTS.parent),
        os.environ.get("PYTHONPATH", ""),
    ]
    ended = subprocess.run(
        [sys.executable, "-c", DEVICES + script, *map(str, arguments)],
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        },
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert ended.returncode == 0, ended.stderr[-3000:]
    return ended.stdout.splitlines()[-1]


@pytest.mark.slow
def test_gradients_are_clipped_as_those_of_the_whole_batch():
    """Plain Keras does not: where it does, the mend is no longer needed."""
    for found in json.loads(run(LOSSES)):
        assert len(found["one"]) == 30
        assert np.abs(np.divide(found["plain"], found["one"]) - 1).max() > 1e-3
        np.testing.assert_allclose(found["mended"], found["one"], 1e-5)


@pytest.mark.slow
def test_a_mirrored_run_goes_on_and_ends_as_one_on_one_device(tmp_path):
    """Metrics and the padded evaluation included."""
    assert run(RUNS, tmp_path) == "same"


@pytest.mark.slow
@pytest.mark.parametrize(
    "option", ["accumulation_steps", "steps_per_execution"]
)
def test_what_keras_cannot_do_on_several_is_refused(tmp_path, option):
    script = f"""
from test_run import DATASET, recipe
from keras_vit.training import train

try:
    train(
        recipe(
            sys.argv[1],
            distribution="mirrored",
            training={{"{option}": 2}},
        ),
        dataset=DATASET,
    )
except ValueError as error:
    print(error)
"""
    assert f"training.{option}=2" in run(script, tmp_path / "run")
