"""A TPU of TensorFlow up to its first call: the rest has not been run."""

import types

import pytest
from whole_runs import recipe

from keras_vit.training import train
from keras_vit.training.distribution import layouts, setup


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
def test_a_tpu_is_set_up_before_anything_asks_for_devices(
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
