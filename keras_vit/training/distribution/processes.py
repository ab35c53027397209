"""The processes of a run, one a host or more, of which the first one writes.

All of them run the same program. What is said here of several is nothing in a
run of one process.
"""

import contextlib
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
from keras_vit.training.distribution import tf_distribute
from keras_vit.training.distribution.start import place_in_tf_config, start_jax
from keras_vit.workarounds import jax_store, set_value

__all__ = [
    "LostProcessError",
    "agreed",
    "by_process",
    "explaining_loss",
    "gathered",
    "is_first",
    "leave",
    "place",
    "share",
    "start",
    "to_numpy",
]


WEEK = 7 * 24 * 3600 * 1000  # milliseconds that the first may take alone

_numbers = itertools.count()


def start(choice: str) -> None:
    """Finds the other processes; before the backend computes anything.

    Args:
        choice: as that of `setup`.

    Raises:
        ValueError: when the environment is wrong, or it is too late.
    """
    if keras.backend.backend() == "jax":
        start_jax()
    tensorflow = keras.backend.backend() == "tensorflow"
    if tensorflow and (place()[1] > 1 or choice == "multiworker"):
        tf_distribute.strategy()


def place() -> tuple[int, int]:
    """Which process this is, counted from 0, and how many there are.

    Example:
        >>> place()
        (0, 1)
    """
    if keras.backend.backend() == "jax":
        import jax

        # Asked before the start, JAX would go on alone.
        if jax.distributed.is_initialized():
            return jax.process_index(), jax.process_count()
    return place_in_tf_config() or (0, 1)


def is_first() -> bool:
    """Whether this is the process that writes.

    Example:
        >>> if is_first():
        ...     path.write_text("...")
    """
    return place()[0] == 0


def by_process(devices: list[str]) -> list[list[str]]:
    """Sorts the devices that a backend names by the process that has them.

    Args:
        devices: names, of this process alone on TensorFlow.

    Returns:
        A list of names a process.
    """
    _, count = place()
    if count == 1:
        return [devices]
    if keras.backend.backend() == "tensorflow":
        own = devices[: len(tf_distribute.strategy().extended.worker_devices)]
        return [[f"process {i} {name}" for name in own] for i in range(count)]
    import jax

    found = [[] for _ in range(count)]
    for name, device in zip(devices, jax.devices(), strict=True):
        found[device.process_index].append(name)
    return found


def share(replicas: int, parts: int = 1) -> Share:
    """The share of each batch that this process reads.

    Args:
        replicas: int, shares that the devices cut a batch into.
        parts: int, batches of a step whose gradients are accumulated.

    Returns:
        A `Share`. Processes whose devices share a layer have the same.
    """
    index, count = place()
    together = max(count // replicas, 1)
    return Share(index // together, count // together, parts)


def agreed(function: Callable[[], Any]) -> Any:
    """Runs a function in the first process alone, while the others wait.

    Args:
        function: without arguments; returns what JSON has.

    Returns:
        What the function returned, in all processes.

    Raises:
        ValueError: in the others, when it raised in the first.

    Example:
        >>> agreed(lambda: 7)
        7
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


def _shared(text):
    if keras.backend.backend() == "tensorflow":
        return tf_distribute.shared_text(text)
    store = jax_store()
    name = f"keras_vit/{next(_numbers)}"
    if text is not None:
        store.key_value_set(name, text)
        return text
    return store.blocking_key_value_get(name, WEEK)


def to_numpy(variable) -> np.ndarray:
    """The whole value of a variable, whose parts may be on several hosts.

    All processes ask for the same ones in the same order.

    Args:
        variable: a Keras variable.

    Returns:
        A NumPy array of its own.
    """
    value = variable
    if _is_spread(variable):
        from jax.experimental import multihost_utils

        value = multihost_utils.process_allgather(variable.value, tiled=True)
    return np.array(keras.ops.convert_to_numpy(value))


def _is_spread(variable):
    if keras.backend.backend() != "jax":
        return False
    value = variable.value
    return not (value.is_fully_addressable or value.is_fully_replicated)


@contextlib.contextmanager
def gathered(model) -> Iterator[None]:
    """Lets this process hold the whole of each weight for a while.

    Args:
        model: a Keras model.

    Example:
        >>> with gathered(model):
        ...     model.save("model.keras")
    """
    spread = [(x, x.value) for x in model.variables if _is_spread(x)]
    for variable, _ in spread:
        whole = keras.ops.convert_to_tensor(to_numpy(variable))
        set_value(variable, whole)
    try:
        yield
    finally:
        for variable, value in spread:
            set_value(variable, value)


# What backends say when they no longer hear of another process.
LOST = (
    r"gloo|nccl|unavailable|aborted|deadline.exceeded|connection|socket closed"
    r"|coordination.?service|heartbeat|unhealthy|cancelled"
)

EXIT_CODE = 1


class LostProcessError(ConnectionError):
    """Another process of the run has ended, or cannot be reached.

    Example:
        >>> raise LostProcessError("Give the same command to all again.")
    """


@contextlib.contextmanager
def explaining_loss(run_dir) -> Iterator[None]:
    """Says what to do where another process of the run is gone.

    Args:
        run_dir: the run folder.

    Raises:
        LostProcessError: instead of what the backend raises.

    Example:
        >>> with explaining_loss("runs/digits"):
        ...     model.fit(batches)
    """
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
    """Ends this process, which others no longer hear, at once.

    JAX would wait for them before it ends, and then say the same at length.

    Args:
        message: the reason.

    Example:
        >>> leave("Another process of the run has ended.")
    """
    print(f"error: {message}", file=sys.stderr)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(EXIT_CODE)
