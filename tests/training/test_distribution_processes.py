"""How a process learns its place, and that one process alone needs none."""

import functools
import json
import os
import sys

import keras
import numpy as np
import pytest
import tiny_training as tiny

from keras_vit.data import Share
from keras_vit.runs.script import exit_code
from keras_vit.training.distribution import layouts, processes, setup
from keras_vit.training.distribution.processes import (
    LostProcessError,
    explain_lost_process,
)

WORKERS = ["10.0.0.1:1234", "10.0.0.2:1234"]


def tf_config(cluster, kind="worker", index=0):
    return json.dumps(
        {"cluster": cluster, "task": {"type": kind, "index": index}}
    )


@pytest.fixture
def on_tensorflow(backend):
    if backend != "tensorflow":
        pytest.skip("TF_CONFIG is read on TensorFlow alone.")


@pytest.fixture
def on_jax(backend):
    if backend != "jax":
        pytest.skip("These variables are read on JAX alone.")


def test_one_process_is_the_first_and_reads_all(monkeypatch):
    monkeypatch.delenv("TF_CONFIG", raising=False)
    assert processes.place() == (0, 1)
    assert processes.is_first()
    assert processes.agreed(lambda: [1]) == [1]
    assert processes.share(replicas=4, parts=2) == Share(0, 1, 2)
    network = tiny.model()
    with processes.gathered(network):
        for variable in network.weights:
            np.testing.assert_array_equal(
                processes.to_numpy(variable),
                keras.ops.convert_to_numpy(variable),
            )


@pytest.mark.parametrize(
    ("place", "replicas", "share"),
    [
        ((1, 2), 2, Share(1, 2)),
        ((1, 2), 8, Share(1, 2)),
        ((1, 2), 1, Share(0, 1)),  # their devices share each layer
        ((2, 4), 2, Share(1, 2)),
    ],
)
def test_the_share_is_that_of_the_devices(monkeypatch, place, replicas, share):
    monkeypatch.setattr(processes, "place", lambda: place)
    assert processes.share(replicas) == share


@pytest.mark.parametrize(
    ("text", "place"),
    [
        (tf_config({"worker": WORKERS}, index=1), (1, 2)),
        (tf_config({"chief": WORKERS[:1], "worker": WORKERS[1:]}), (1, 2)),
        (tf_config({"chief": WORKERS[:1]}, "chief"), (0, 1)),
    ],
)
def test_tf_config_tells_the_place(on_tensorflow, monkeypatch, text, place):
    monkeypatch.setenv("TF_CONFIG", text)
    assert processes._place_in_tf_config() == place


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "must be as"),
        ("{}", "must be as"),
        (tf_config({"worker": WORKERS}, index=2), "must be as"),
        (tf_config({"worker": WORKERS}, index=-1), "must be as"),
        (tf_config({"worker": WORKERS}, "evaluator"), "must be as"),
        (tf_config({"worker": ["10.0.0.1"]}), "host:port"),
    ],
)
def test_a_wrong_tf_config_is_refused(on_tensorflow, monkeypatch, text, reason):
    monkeypatch.setenv("TF_CONFIG", text)
    with pytest.raises(ValueError, match=reason):
        setup("auto")


def test_several_processes_need_tf_config(on_tensorflow, monkeypatch):
    monkeypatch.delenv("TF_CONFIG", raising=False)
    with pytest.raises(ValueError, match="TF_CONFIG, which is not set"):
        setup("multiworker")


def test_tensorflow_has_no_loop_of_steps_in_several(on_tensorflow):
    with pytest.raises(ValueError, match="training.steps_per_execution=2"):
        layouts.multiworker(2)


@pytest.mark.parametrize(
    ("addresses", "count", "index", "reason"),
    [
        ("10.0.0.1:1234", None, "0", "Set KERAS_DISTRIBUTION_NUM_PROCESSES"),
        (None, "2", "0", "Set KERAS_DISTRIBUTION_JOB_ADDRESSES"),
        ("10.0.0.1:1234", "2", "2", "from 0 to one less"),
        ("10.0.0.1:1,10.0.0.2:1", "3", "0", "or one for each"),
        ("10.0.0.1", "2", "0", "host:port"),
        ("10.0.0.1:1234", "two", "0", "must be a number"),
    ],
)
def test_a_wrong_environment_of_jax_is_refused(
    on_jax, monkeypatch, addresses, count, index, reason
):
    values = (addresses, count, index)
    names = (processes.ADDRESSES, processes.COUNT, processes.INDEX)
    for name, value in zip(names, values, strict=True):
        if value is not None:
            monkeypatch.setenv(name, value)
    with pytest.raises(ValueError, match=reason):
        setup("auto")


def test_processes_are_not_started_after_a_computation(on_jax, monkeypatch):
    keras.ops.ones(1)
    for name, value in {
        processes.ADDRESSES: "localhost:1",
        processes.COUNT: "2",
        processes.INDEX: "0",
    }.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ValueError, match="before JAX computes"):
        setup("auto")


@pytest.mark.parametrize(
    ("environment", "several"),
    [
        ({}, False),
        ({"SLURM_NTASKS": "2"}, False),  # in salloc, before srun
        (
            {
                "SLURM_NTASKS": "2",
                "SLURM_PROCID": "0",
                "SLURM_STEP_NODELIST": "a,b",
            },
            True,
        ),
        ({"OMPI_COMM_WORLD_SIZE": "1", "OMPI_COMM_WORLD_RANK": "0"}, False),
        ({"TPU_WORKER_HOSTNAMES": "localhost", "TPU_WORKER_ID": "0"}, False),
        ({"TPU_WORKER_HOSTNAMES": "a,b", "TPU_WORKER_ID": "1"}, True),
    ],
)
def test_a_cluster_of_several_finds_itself(
    on_jax, monkeypatch, environment, several
):
    import jax

    told = []

    @functools.wraps(jax.distributed.initialize)  # with its signature
    def initialize(**options):
        told.append(options)

    monkeypatch.setattr(jax.distributed, "initialize", initialize)
    for name in {
        name for x in processes.CLUSTERS.items() for name in (x[0], *x[1])
    }:
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    processes._start_jax()
    assert len(told) == several
    for options in told:
        assert "coordinator_address" not in options
        assert options["heartbeat_timeout_seconds"] < 60


def test_an_older_jax_is_not_told_what_it_does_not_know(on_jax, monkeypatch):
    import jax

    told = []

    def initialize(coordinator_address=None, heartbeat_timeout_seconds=100):
        told.append((coordinator_address, heartbeat_timeout_seconds))

    monkeypatch.setattr(jax.distributed, "initialize", initialize)
    monkeypatch.setattr(processes, "_jax_settings", dict)
    processes._start_jax()
    assert told == [(None, processes.HEARTBEAT_SECONDS)]


@pytest.mark.parametrize("choice", ["single", "mirrored"])
def test_what_is_of_one_process_is_refused_to_several(
    monkeypatch, choice, backend
):
    monkeypatch.setattr(processes, "start", lambda choice: None)
    monkeypatch.setattr(processes, "place", lambda: (1, 2))
    monkeypatch.setattr(processes, "by_process", lambda x: [["cpu:0"], ["a"]])
    with pytest.raises(ValueError, match=f"process 1 of 2, and '{choice}'"):
        setup(choice)


def test_a_lost_process_is_told_with_what_to_do(monkeypatch):
    lost = "lost_test"
    module = "keras_vit.training.distribution.processes.place"
    monkeypatch.setattr(module, lambda: (0, 2))
    with pytest.raises(LostProcessError, match="same command to all") as told:
        with explain_lost_process(lost):
            raise RuntimeError("\nUNAVAILABLE: Socket closed\nmore")
    assert lost in str(told.value)
    assert "(UNAVAILABLE: Socket closed)" in str(told.value)


@pytest.mark.once
def test_a_program_ends_at_once_where_a_process_is_lost(monkeypatch, capsys):
    """With exit code 1, and not as a wrong use of it."""

    def lost():
        raise LostProcessError("Another process has ended.")

    monkeypatch.setattr(os, "_exit", sys.exit)
    with pytest.raises(SystemExit) as ended:
        exit_code(lost, "the same command continues")
    assert ended.value.code == 1
    assert capsys.readouterr().err == "error: Another process has ended.\n"


@pytest.mark.parametrize(
    ("count", "error"),
    [
        (1, RuntimeError("UNAVAILABLE")),
        (2, RuntimeError("out of memory")),
        (2, ConnectionRefusedError("no connection to the server")),
        (2, ValueError("connection")),
    ],
)
def test_other_errors_stay_as_they_are(monkeypatch, count, error):
    module = "keras_vit.training.distribution.processes.place"
    monkeypatch.setattr(module, lambda: (0, count))
    with pytest.raises(type(error)) as told, explain_lost_process("run"):
        raise error
    assert told.value is error
