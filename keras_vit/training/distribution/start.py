"""How a process learns which one of a run it is, before anything is computed.

TensorFlow reads TF_CONFIG, JAX the variables of `keras.distribution`; a
cluster of Slurm or Open MPI, and a pod of TPUs, tell JAX themselves.
"""

import inspect
import json
import os

import keras

__all__ = ["HEARTBEAT_SECONDS", "place_in_tf_config", "start_jax"]

# A process that is not heard of for so long has ended: JAX's 100 seconds
# would leave the others waiting for more than a minute.
HEARTBEAT_SECONDS = 20

ADDRESSES = "KERAS_DISTRIBUTION_JOB_ADDRESSES"
COUNT = "KERAS_DISTRIBUTION_NUM_PROCESSES"
INDEX = "KERAS_DISTRIBUTION_PROCESS_ID"
TF_CONFIG = "TF_CONFIG"

# Where JAX finds the rest itself: what tells that there are several.
CLUSTERS = {
    "SLURM_NTASKS": ("SLURM_PROCID", "SLURM_STEP_NODELIST"),
    "OMPI_COMM_WORLD_SIZE": ("OMPI_COMM_WORLD_RANK",),
    "TPU_WORKER_HOSTNAMES": ("TPU_WORKER_ID",),
}


def start_jax() -> None:
    """Starts the processes of JAX where the environment has several.

    Raises:
        ValueError: for an environment that says it in part, or wrongly, or
            when something was computed before.
    """
    import jax

    settings = _jax_settings()
    if settings is None or jax.distributed.is_initialized():
        return
    try:
        jax.distributed.initialize(
            **settings,
            **_timeouts(jax.distributed.initialize),
        )
    except RuntimeError as error:
        if "must be called before" not in str(error):
            raise
        raise ValueError(
            "The processes of a run must find each other before JAX computes "
            "anything. Call keras_vit.training.distribution.setup first of "
            f"all, or unset {ADDRESSES} for a run of one process."
        ) from None


def _timeouts(initialize) -> dict:
    """Those that this JAX lets one choose: 0.7 has no word for the second."""
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
        told = os.environ.get(several, "")
        number = int(told) if told.isdigit() else len(told.split(","))
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


def place_in_tf_config() -> tuple[int, int] | None:
    """Reads TF_CONFIG.

    Returns:
        The number of this process, counted from 0, the chief first, and how
        many there are; None without TF_CONFIG or on another backend.

    Raises:
        ValueError: when TF_CONFIG does not say it.

    Example:
        >>> os.environ["TF_CONFIG"] = json.dumps({
        ...     "cluster": {"worker": ["10.0.0.1:1234", "10.0.0.2:1234"]},
        ...     "task": {"type": "worker", "index": 1}})
        >>> place_in_tf_config()
        (1, 2)
    """
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
