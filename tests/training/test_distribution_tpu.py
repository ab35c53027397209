"""A TPU of TensorFlow, whose cores are virtual devices of a CPU here."""

import json
import types

import pytest
import virtual_devices
import whole_runs
from whole_runs import recipe

from keras_vit.training import train
from keras_vit.training.distribution import layouts, setup

# The program that TensorFlow compiles for a TPU is one for all cores; that of
# a CPU is compiled for one device, whose replica meets itself alone.
WHOLE = """
import json
import tensorflow as tf

class Cores(tf.distribute.MirroredStrategy):
    used = ["cpu:0", "cpu:1"]

    def __init__(self, resolver):
        assert resolver == "resolver"
        super().__init__(self.used)

def giving(result):
    return lambda *_, **options: result

tf.distribute.cluster_resolver.TPUClusterResolver = giving("resolver")
tf.config.experimental_connect_to_cluster = giving(None)
tf.tpu.experimental.initialize_tpu_system = giving(None)
tf.distribute.TPUStrategy = Cores

import keras
import numpy as np
import tiny_training as tiny
import whole_runs
from keras_vit.runtime.workarounds import draw_own_masks, sum_gradients_first
from keras_vit.training.distribution import setup

whole_runs.main(sys.argv[1], "{}", "single", "tpu")

def stepped(compiled):
    keras.utils.set_random_seed(3)
    model = tiny.model(dropout_rate=0.0, stochastic_depth_rate=0.0)
    rule = keras.optimizers.AdamW(0.01, global_clipnorm=0.5)
    model.compile(rule, tiny.loss(), jit_compile=compiled)
    sum_gradients_first(rule)
    draw_own_masks(model)
    images = np.random.default_rng(0).uniform(0, 255, (8, 8, 8, 1))
    labels = np.eye(3)[np.arange(8) % 3]
    model.fit(images, labels, batch_size=4, shuffle=False, verbose=0)
    return model.get_weights()

Cores.used = ["cpu:0"]
with setup("tpu").scope():
    compiled = stepped(True)
for x, y in zip(stepped(False), compiled, strict=True):
    np.testing.assert_allclose(y, x, rtol=1e-4, atol=1e-6)
"""


@pytest.fixture(autouse=True)
def on_tensorflow(backend):
    if backend != "tensorflow":
        pytest.skip("On JAX a TPU's cores are devices like any other.")


@pytest.fixture
def calls(monkeypatch):
    """What is asked of TensorFlow, in order, of a TPU with eight cores."""
    import tensorflow as tf

    made = []

    def noted(name, result=None):
        def call(*arguments, **options):
            made.append((name, *arguments, *options.values()))
            return result

        return call

    strategy = types.SimpleNamespace(num_replicas_in_sync=8)
    monkeypatch.setattr(
        tf.distribute.cluster_resolver,
        "TPUClusterResolver",
        noted("resolve", "resolver"),
    )
    connect = noted("connect")
    monkeypatch.setattr(tf.config, "experimental_connect_to_cluster", connect)
    monkeypatch.setattr(
        tf.tpu.experimental, "initialize_tpu_system", noted("initialise")
    )
    strategies = noted("strategy", strategy)
    monkeypatch.setattr(tf.distribute, "TPUStrategy", strategies)
    names = [f"tpu:{i}" for i in range(8)]
    monkeypatch.setattr(
        layouts, "devices", lambda: made.append(("devices",)) or names
    )
    return made


@pytest.mark.parametrize(
    ("name", "asked"),
    [(None, "local"), ("", "local"), ("grpc://10.0.0.2:8470",) * 2],
)
def test_a_tpu_is_set_up_before_devices_are_listed(
    name, asked, calls, monkeypatch
):
    monkeypatch.delenv("TPU_NAME", raising=False)
    if name is not None:
        monkeypatch.setenv("TPU_NAME", name)
    chosen = setup("tpu", batch_size=64)
    assert calls == [
        ("resolve", asked),
        ("connect", "resolver"),
        ("initialise", "resolver"),
        ("strategy", "resolver"),
        ("devices",),
    ]
    assert str(chosen) == (
        "tpu: 8 devices (tpu:0, tpu:1, tpu:2, tpu:3, tpu:4, tpu:5, tpu:6, "
        "tpu:7), 8 replicas, batch 64 (8 on each)"
    )


def test_a_batch_that_the_cores_cannot_share_is_refused(calls):
    with pytest.raises(ValueError, match="a multiple of 8"):
        setup("tpu", batch_size=60)


def test_where_there_is_no_tpu_it_is_said_what_to_do(monkeypatch):
    monkeypatch.setenv("TPU_NAME", "local")
    with pytest.raises(ValueError, match="finds no TPU 'local'") as refused:
        setup("tpu", batch_size=64)
    for part in ("tensorflow-tpu", "2.20.0", "KERAS_BACKEND to jax"):
        assert part in str(refused.value)


def test_an_address_that_answers_nothing_is_no_tpu(calls, monkeypatch):
    import tensorflow as tf

    def unreachable(resolver):
        raise tf.errors.UnavailableError(None, None, "no route to host")

    monkeypatch.setattr(
        tf.config, "experimental_connect_to_cluster", unreachable
    )
    monkeypatch.setenv("TPU_NAME", "grpc://10.0.0.2:8470")
    with pytest.raises(ValueError, match="no route to host"):
        setup("tpu")


def test_float16_is_refused_before_the_tpu_is_taken(tmp_path, calls):
    asked = recipe(
        tmp_path / "run", "tpu", training={"precision": "mixed_float16"}
    )
    with pytest.raises(ValueError, match="Set it to mixed_bfloat16"):
        train(asked)
    assert not calls
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_a_whole_run_and_a_compiled_step_are_those_of_one_device(tmp_path):
    """With clipping, averages, Mixup, metrics and a padded evaluation."""
    last = virtual_devices.run(WHOLE, tmp_path, devices=2, backend="tensorflow")
    found = json.loads(last)
    whole_runs.check_same(found["single"], found["tpu"])
