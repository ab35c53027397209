"""What a TPU needs of the compiled steps, read off the program without one.

JAX lowers a step for a TPU on any machine. TensorFlow lowers it with XLA for
this one: the program that XLA gets is the same.
"""

import dataclasses
import logging
import pathlib
import re
import types

import keras
import numpy as np
import pytest
import tiny_training as tiny

from keras_vit.training import training_run
from keras_vit.training.build import Accuracy
from keras_vit.training.distribution import setup

FLOATS = {"float32": {"f32"}, "mixed_bfloat16": {"f32", "bf16"}}
BATCH = (np.zeros((8, 8, 8, 1), "uint8"), np.zeros((8, 3), "float32"))
WEIGHTS = np.ones(8, "float32")


@pytest.fixture(params=sorted(FLOATS))
def precision(request):
    keras.config.set_dtype_policy(request.param)
    yield request.param
    keras.config.set_dtype_policy("float32")


@pytest.fixture
def model(precision):
    """As a run compiles it, with dropout, clipping and a moving average."""
    keras.utils.set_random_seed(0)
    found = tiny.model()
    one = training_run.Loop(pathlib.Path(), tiny.PLAN, tiny.CLASS_NAMES)
    one._compile(found, tiny.optimizer(), tiny.loss(), [Accuracy()])
    found._symbolic_build(data_batch=(*BATCH, WEIGHTS))
    return found


@pytest.fixture
def tpu(monkeypatch):
    """Keras takes JAX's devices to be TPUs."""
    import jax

    stand_in = types.SimpleNamespace(platform="tpu", id=0)
    with monkeypatch.context() as patch:
        patch.setattr(jax, "devices", lambda *kinds, **options: [stand_in])
        yield
    keras.config.enable_flash_attention()


def exported(model, step):
    """The program of a step for a TPU, in StableHLO."""
    import jax

    groups = [model.trainable_variables, model.non_trainable_variables]
    if step == "train_step":
        groups.append(model.optimizer.variables)
    groups.append(model.metrics_variables)
    state = [[variable.value for variable in group] for group in groups]
    function = jax.jit(getattr(model, step))
    export = jax.export.export(function, platforms=["tpu"])
    return export(state, (*BATCH, WEIGHTS)).mlir_module()


def only(backend, name):
    if backend != name:
        pytest.skip(f"It is of {name}.")


@pytest.mark.parametrize("step", ["train_step", "test_step"])
def test_jax_lowers_for_a_tpu(backend, step, model, precision, tpu, caplog):
    only(backend, "jax")
    program = exported(model, step)
    assert re.findall(r"stablehlo\.dot_general", program)
    kinds = set(re.findall(r"tensor<(?:\d+x)*(\w+)>", program))
    assert {kind for kind in kinds if "f" in kind} == FLOATS[precision]
    assert not re.findall(r"custom_call|infeed|outfeed|send|recv", program)
    assert not re.findall(r"tensor<[^>]*\?", program)
    assert not caplog.records


def test_keras_fails_with_the_fused_kernel_of_a_tpu(backend, tpu, caplog):
    """Where it does not, `setup` need not disable it on TPUs."""
    only(backend, "jax")
    import jax

    function = jax.jit(lambda x: keras.ops.dot_product_attention(x, x, x))
    heads = np.zeros((8, 5, 2, 4), "float32")
    with caplog.at_level(logging.ERROR):
        jax.export.export(function, platforms=["tpu"])(heads)
    assert "Failed to apply Splash kernel" in caplog.text


def test_setup_disables_the_fused_kernel_on_a_tpu(monkeypatch):
    names = ["tpu:0", "tpu:1"]
    monkeypatch.setattr(
        "keras_vit.training.distribution.layouts.devices", lambda: names
    )
    try:
        setup("single")
        assert keras.config.is_flash_attention_enabled() is False
    finally:
        keras.config.enable_flash_attention()


@pytest.mark.parametrize(
    "step", [pytest.param("train_step", marks=pytest.mark.slow), "test_step"]
)
def test_tensorflow_lowers_with_xla(backend, step, model, precision):
    only(backend, "tensorflow")
    import tensorflow as tf

    batch = [tf.constant(x) for x in (*BATCH, WEIGHTS)]
    function = tf.function(getattr(model, step), jit_compile=True)
    # XLA refuses calls of Python by itself.
    program = function.experimental_get_compiler_ir(batch)(stage="hlo")
    assert re.findall(r"\bdot\(", program)
    kinds = set(re.findall(r"\b(\w*f\d+)\[", program))
    assert kinds == FLOATS[precision]
    assert not re.findall(
        r"custom-call|\b(?:infeed|outfeed|send|recv)\(", program
    )
    assert not re.findall(r"\[<=|,<=", program)


@pytest.mark.parametrize("parts", [1, 2])
def test_batches_are_of_one_size_that_is_known(parts):
    """Whole ones in training, padded ones in the evaluation."""
    plan = dataclasses.replace(tiny.PLAN, batches_per_step=parts)
    one = training_run.Loop(pathlib.Path(), plan, tiny.CLASS_NAMES)
    training = shapes(one._batches(tiny.stream(), 0))
    assert training[0] == (8 // parts, 8, 8, 1)
    for shape in (*training, *shapes(tiny.validation())):
        assert None not in shape


def shapes(batches):
    return [tuple(spec.shape) for spec in batches.element_spec]
