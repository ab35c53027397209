"""The processes of a run, one per host or more, of which the first one writes.

All run the same program. TensorFlow finds them in TF_CONFIG, JAX in the
variables of `keras.distribution`, or by itself in a cluster of Slurm or Open
MPI and in a pod of TPUs. In a run of one process, nothing here does anything.
"""

import contextlib
import functools
import inspect
import itertools
import json
import os
import re
import sys
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

import keras
import numpy as np

from keras_vit.data import Share
from keras_vit.runtime.interrupts import handlers_kept
from keras_vit.runtime.workarounds import (
    jax_store,
    layout_of,
    mend_reduce,
    set_layout,
    set_value,
)

__all__ = [
    "LostProcessError",
    "agreed",
    "alone",
    "by_process",
    "check_reader",
    "collect",
    "explain_lost_process",
    "gathered",
    "is_first",
    "is_spread",
    "leave",
    "place",
    "predicted_alone",
    "say",
    "share",
    "stacked",
    "start",
    "strategy",
    "to_numpy",
    "wait_for",
]

# A process that is silent for so long has ended. With JAX's own 100 seconds
# the others would wait for more than a minute.
HEARTBEAT_SECONDS = 20
WEEK = 7 * 24 * 3600 * 1000  # milliseconds that the first may compute alone

ADDRESSES = "KERAS_DISTRIBUTION_JOB_ADDRESSES"
COUNT = "KERAS_DISTRIBUTION_NUM_PROCESSES"
INDEX = "KERAS_DISTRIBUTION_PROCESS_ID"
TF_CONFIG = "TF_CONFIG"
# What tells that a cluster has several processes, which JAX itself finds.
CLUSTERS = {
    "SLURM_NTASKS": ("SLURM_PROCID", "SLURM_STEP_NODELIST"),
    "OMPI_COMM_WORLD_SIZE": ("OMPI_COMM_WORLD_RANK",),
    "TPU_WORKER_HOSTNAMES": ("TPU_WORKER_ID",),
}
# What backends say when another process no longer answers.
LOST = (
    r"gloo|nccl|unavailable|aborted|deadline.exceeded|connection|socket closed"
    r"|coordination.?service|heartbeat|unhealthy|cancelled"
)
EXIT_CODE = 1

_numbers = itertools.count()


def start(choice: str) -> None:
    """Connect the processes, before the backend computes anything.

    Raises:
        ValueError: when the environment is wrong, or it is too late.
    """
    if keras.backend.backend() == "jax":
        _start_jax()
    if _are_several_of_tensorflow(choice):
        strategy()


def check_reader(choice: str, reader: str) -> None:
    """Raise a ValueError where tf.data has to read the images and does not."""
    if reader == "pillow" and _are_several_of_tensorflow(choice):
        raise ValueError(
            "Several processes of TensorFlow get their images from tf.data. "
            "Received: data.reader='pillow'. Set it to tensorflow."
        )


def _are_several_of_tensorflow(choice):
    several = place()[1] > 1 or choice == "multiworker"
    return keras.backend.backend() == "tensorflow" and several


def _start_jax() -> None:
    import jax

    settings = _jax_settings()
    if settings is None or jax.distributed.is_initialized():
        return
    try:
        timeouts = _timeouts(jax.distributed.initialize)
        with handlers_kept():
            jax.distributed.initialize(**settings, **timeouts)
    except RuntimeError as error:
        if "must be called before" not in str(error):
            raise
        raise ValueError(
            "The processes of a run must find each other before JAX computes "
            "anything. Call keras_vit.training.distribution.setup first of "
            f"all, or unset {ADDRESSES} for a run of one process."
        ) from error


def _timeouts(initialize) -> dict:
    """Return the timeouts that this JAX has: 0.7 has no second one."""
    names = ("heartbeat_timeout_seconds", "shutdown_timeout_seconds")
    known = inspect.signature(initialize).parameters
    return {name: HEARTBEAT_SECONDS for name in names if name in known}


def _jax_settings() -> dict | None:
    """Arguments of jax.distributed.initialize; None for one process."""
    names = (ADDRESSES, COUNT, INDEX)
    given = [name for name in names if os.environ.get(name)]
    if not given:
        return {} if _is_in_cluster() else None
    if missing := [name for name in names if name not in given]:
        raise ValueError(
            f"Several processes need {', '.join(names)}. Received: "
            f"{_shown(given)}. Set {' and '.join(missing)}, or unset the "
            "others for a run of one process."
        )
    count, index = (_number(name) for name in (COUNT, INDEX))
    addresses = os.environ[ADDRESSES].split(",")
    _check_addresses(addresses, ADDRESSES)
    if len(addresses) not in (1, count) or not 0 <= index < count:
        raise ValueError(
            f"{ADDRESSES} is the address of the first process, or one for "
            f"each, {COUNT} their number, and {INDEX} from 0 to one less. "
            f"Received: {_shown(names)}."
        )
    return {
        "coordinator_address": addresses[0],
        "num_processes": count,
        "process_id": index,
    }


def _is_in_cluster():
    for several, others in CLUSTERS.items():
        value = os.environ.get(several, "")
        number = int(value) if value.isdigit() else len(value.split(","))
        if number > 1 and all(name in os.environ for name in others):
            return True
    return False


def _shown(names):
    return ", ".join(f"{name}={os.environ.get(name)!r}" for name in names)


def _number(name):
    if not os.environ[name].isdigit():
        raise ValueError(f"{name} must be a number. Received: {_shown([name])}")
    return int(os.environ[name])


def _check_addresses(addresses, name):
    for address in addresses:
        host, _, port = str(address).rpartition(":")
        if not host or not port.isdigit():
            raise ValueError(
                f"Addresses in {name} are host:port, such as 10.0.0.1:1234. "
                f"Received: {address!r}."
            )


@functools.cache
def strategy():
    """Return the MultiWorkerMirroredStrategy of the processes in TF_CONFIG.

    TensorFlow makes it once, before it computes anything.

    Raises:
        ValueError: without TF_CONFIG, or after TensorFlow has computed.
    """
    import tensorflow as tf

    if _place_in_tf_config() is None:
        raise ValueError(
            "multiworker needs the processes in the environment variable "
            "TF_CONFIG, which is not set. On one host, use mirrored."
        )
    try:
        made = tf.distribute.MultiWorkerMirroredStrategy()
    except RuntimeError as error:
        if "program startup" not in str(error):
            raise
        raise ValueError(
            "The processes of a run must find each other before TensorFlow "
            "computes anything. Call keras_vit.training.distribution.setup "
            "first of all, or unset TF_CONFIG for a run of one process."
        ) from error
    mend_reduce(made)
    return made


def place() -> tuple[int, int]:
    """Return the number of this process, from 0, and how many there are."""
    if keras.backend.backend() == "jax":
        import jax

        # Asked before the start, JAX would go on alone.
        if jax.distributed.is_initialized():
            return jax.process_index(), jax.process_count()
    return _place_in_tf_config() or (0, 1)


def _place_in_tf_config() -> tuple[int, int] | None:
    """`place` by TF_CONFIG, the chief first; None where there is none."""
    text = os.environ.get(TF_CONFIG)
    if not text or keras.backend.backend() != "tensorflow":
        return None
    try:
        config = json.loads(text)
        cluster, task = config["cluster"], config["task"]
        kind, index = task["type"], int(task["index"])
        chiefs, workers = (cluster.get(x, []) for x in ("chief", "worker"))
        number = {"chief": 0, "worker": len(chiefs)}[kind] + index
        known = 0 <= index < len(cluster[kind]) and len(chiefs) < 2
    except (ValueError, KeyError, TypeError, AttributeError):
        known = False
    if not known:
        raise ValueError(
            'TF_CONFIG must be as {"cluster": {"worker": ["10.0.0.1:1234", '
            '"10.0.0.2:1234"]}, "task": {"type": "worker", "index": 0}}, with '
            "the index of this process; one of them may be the chief instead. "
            f"Received: {text}"
        )
    _check_addresses([*chiefs, *workers], TF_CONFIG)
    return number, len(chiefs) + len(workers)


def is_first() -> bool:
    """Return whether this is the process that writes."""
    return place()[0] == 0


def by_process(devices: list[str]) -> list[list[str]]:
    """Group the names of devices by the process that has them.

    TensorFlow names those of this process alone.
    """
    _, count = place()
    if count == 1:
        return [devices]
    if keras.backend.backend() == "tensorflow":
        own = devices[: len(strategy().extended.worker_devices)]
        return [[f"process {i} {name}" for name in own] for i in range(count)]
    import jax

    found = [[] for _ in range(count)]
    for name, device in zip(devices, jax.devices(), strict=True):
        found[device.process_index].append(name)
    return found


def share(replicas: int, parts: int = 1) -> Share:
    """Return the share of each batch that this process reads.

    Args:
        replicas: shares that the devices cut a batch into.
        parts: batches of a step, whose gradients are accumulated.

    Returns:
        A `Share`. Processes whose devices share a layer have the same one.
    """
    index, count = place()
    together = max(count // replicas, 1)
    return Share(index // together, count // together, parts)


def agreed(function: Callable[[], Any]) -> Any:
    """Call a function in the first process alone; all get its result.

    Args:
        function: without arguments; its result is plain enough for JSON.

    Raises:
        ValueError: in the other processes, when it raised in the first.
    """
    if place()[1] == 1:
        return function()
    if not is_first():
        answer = json.loads(_shared(None))
        if "error" in answer:
            raise ValueError(f"The first process ended: {answer['error']}")
        return answer["value"]
    try:
        value = function()
    except BaseException as error:
        _shared(json.dumps({"error": str(error) or type(error).__name__}))
        raise
    _shared(json.dumps({"value": value}))
    return value


def say(name: str, text: str) -> None:
    """Let other processes `wait_for` a text; from any thread, on JAX."""
    jax_store().key_value_set(f"keras_vit/{name}", text)


def wait_for(name: str) -> str:
    """Receive what another process says under a name, which it forgets."""
    text = jax_store().blocking_key_value_get(f"keras_vit/{name}", WEEK)
    jax_store().key_value_delete(f"keras_vit/{name}")
    return text


def _shared(text):
    if keras.backend.backend() == "tensorflow":
        return _shared_text(text)
    store = jax_store()
    name = f"keras_vit/{next(_numbers)}"
    if text is not None:
        store.key_value_set(name, text)
        return text
    return store.blocking_key_value_get(name, WEEK)


def _shared_text(text: str | None) -> str:
    """Give the text of the first process to all; the others pass None."""
    content = np.frombuffer((text or "").encode(), np.uint8).astype("int32")
    (size,) = _sum_over_processes(np.array([len(content)], "int32"))
    content = content if len(content) else np.zeros(size, "int32")
    return bytes(_sum_over_processes(content).astype("uint8")).decode()


def _sum_over_processes(array):
    """Return the sum over the processes, of which all but one pass zeros."""
    import tensorflow as tf

    def one_replica():
        context = tf.distribute.get_replica_context()
        first = tf.equal(context.replica_id_in_sync_group, 0)
        value = tf.where(first, tf.constant(array), 0)
        return context.all_reduce(tf.distribute.ReduceOp.SUM, value)

    found = strategy().run(tf.function(one_replica))
    return strategy().experimental_local_results(found)[0].numpy()


def stacked(array: np.ndarray) -> np.ndarray:
    """Return the arrays of all processes, in their order, on a new first axis.

    All processes call this with arrays of one shape and dtype.
    """
    index, count = place()
    if count == 1:
        return array[None]
    if keras.backend.backend() == "jax":
        from jax.experimental import multihost_utils

        found = multihost_utils.process_allgather(array)
        return np.asarray(found).astype(array.dtype)
    own = np.zeros((count, *array.shape), array.dtype)
    own[index] = array
    # Collectives have no booleans. Beside zeros, each number stays as it is.
    own = own.astype("int32") if array.dtype.kind == "b" else own
    found = strategy().run(_reduction(), args=(own,))
    (total, *_) = strategy().experimental_local_results(found)
    return total.numpy().astype(array.dtype)


@functools.cache
def _reduction():
    """Return the sum over the first replicas of the processes."""
    import tensorflow as tf

    replicas = len(strategy().extended.worker_devices)

    @tf.function
    def reduction(value):
        context = tf.distribute.get_replica_context()
        first = context.replica_id_in_sync_group % replicas == 0
        value = tf.where(first, value, tf.zeros_like(value))
        return context.all_reduce(tf.distribute.ReduceOp.SUM, value)

    return reduction


def to_numpy(variable) -> np.ndarray:
    """Return a copy of the whole value of a variable, shared by hosts or not.

    All processes call this for the same variables in the same order.
    """
    if keras.backend.backend() != "jax":
        return np.array(keras.ops.convert_to_numpy(variable))
    if is_spread(variable):
        from jax.experimental import multihost_utils

        return np.array(
            multihost_utils.process_allgather(variable.value, tiled=True)
        )
    return _copied(variable.value)


def _copied(value) -> np.ndarray:
    """Return a copy of an array of JAX that the devices of this process hold.

    Shard by shard: what JAX itself puts together, it keeps beside the copy.
    """
    if value.is_fully_replicated:
        return np.array(value.addressable_data(0))
    found = np.empty(value.shape, value.dtype)
    for shard in value.addressable_shards:
        found[shard.index] = np.asarray(shard.data)
    return found


def is_spread(variable) -> bool:
    """Test if several processes share a variable, so that none has all."""
    if keras.backend.backend() != "jax":
        return False
    value = variable.value
    return not (value.is_fully_addressable or value.is_fully_replicated)


@contextlib.contextmanager
def gathered(model) -> Iterator[None]:
    """Hold the whole of each weight in this process, to save a model."""
    spread = [(x, x.value) for x in model.variables if is_spread(x)]
    for variable, _ in spread:
        set_value(variable, keras.ops.convert_to_tensor(to_numpy(variable)))
    try:
        yield
    finally:
        for variable, value in spread:
            set_value(variable, value)


@contextlib.contextmanager
def alone(model) -> Iterator[None]:
    """Let each of several processes compute with a model for itself.

    On JAX the variables of the model are whole and on one device of each
    process meanwhile, and what is compiled is for that. All processes enter
    this together.
    """
    if keras.backend.backend() != "jax" or place()[1] == 1:
        yield
        return
    kept = [(x, x.value, layout_of(x)) for x in model.variables]
    chosen = keras.distribution.distribution()
    whole = [to_numpy(variable) for variable, *_ in kept]
    keras.distribution.set_distribution(None)
    try:
        for (variable, *_), value in zip(kept, whole, strict=True):
            set_layout(variable, None)
            set_value(variable, keras.ops.convert_to_tensor(value))
        yield
    finally:
        for variable, value, layout in kept:
            set_value(variable, value)
            set_layout(variable, layout)
        keras.distribution.set_distribution(chosen)


def predicted_alone(model, images) -> np.ndarray:
    """Predict a batch in this process, within `alone`.

    Args:
        model: a Keras model of one output, not used otherwise.
        images: array (B, ...).
    """
    if keras.backend.backend() == "tensorflow" and place()[1] > 1:
        # Of `predict` the processes would put the shares together.
        return np.asarray(model(images, training=False))
    # Under tf.distribute every replica predicts the whole batch.
    return np.asarray(model.predict_on_batch(images))[: len(images)]


class LostProcessError(ConnectionError):
    """Another process of the run has ended, or cannot be reached."""


@contextlib.contextmanager
def explain_lost_process(run_dir) -> Iterator[None]:
    """Raise a `LostProcessError` where the backend misses a process."""
    try:
        yield
    except Exception as error:
        about = f"{type(error).__name__} {error}"
        # Python's own errors are of this process: a download, for instance.
        own = isinstance(error, (ValueError, FloatingPointError, OSError))
        if place()[1] == 1 or own or not re.search(LOST, about, re.IGNORECASE):
            raise
        raise LostProcessError(
            "Another process of the run has ended or cannot be reached; its "
            "own output says why. The last checkpoint is whole. End the "
            "processes that are left, and give the same command to all again "
            f"to continue in {str(run_dir)!r}. ({_first_line(error)})"
        ) from error


def _first_line(error):
    lines = [line for line in str(error).splitlines() if line.strip()]
    known = [line for line in lines if re.search(LOST, line, re.IGNORECASE)]
    return (known or lines or [type(error).__name__])[0].strip()


def leave(message: str) -> NoReturn:
    """End this process at once, after another one was lost.

    JAX would wait for the others first, and then say the same at length.
    """
    print(f"error: {message}", file=sys.stderr)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(EXIT_CODE)


def collect(model, *more) -> None:
    """Move a trained model, and more that share its layers, to one device.

    On JAX a model on several devices takes only batches that these can share.
    TensorFlow needs nothing.
    """
    if keras.backend.backend() != "jax":
        return
    groups = [model.optimizer.variables, model.metrics_variables]
    groups += [x.variables for x in (model, *more)]
    for variable in (x for group in groups for x in group):
        value = to_numpy(variable)
        set_layout(variable, None)
        variable.assign(value)
    # They were compiled for several devices.
    model.train_function = model.test_function = None
    model.predict_function = None
