"""What a backend keeps to itself: places, generators, memory in use."""

import sys

import keras
import numpy as np

from keras_vit.training.distribution.processes import to_numpy

__all__ = [
    "collect",
    "devices",
    "peak_memory",
    "random_states",
    "set_random_states",
    "sync_state",
]


def devices() -> list[str]:
    """Names the devices that the backend computes on.

    Returns:
        For example ["cpu:0"], or ["gpu:0", "gpu:1"].

    Example:
        >>> devices()
        ['cpu:0']
    """
    if keras.backend.backend() == "torch":
        return _torch_devices()
    return keras.distribution.list_devices()


def _torch_devices():
    # Keras 3.15 has no keras.distribution for torch.
    import torch

    if not torch.accelerator.is_available():
        return ["cpu:0"]
    kind = torch.accelerator.current_accelerator()
    return [f"{kind}:{i}" for i in range(torch.accelerator.device_count())]


def sync_state(model) -> None:
    """Lets the variables of a model in `fit` hold what they are by now.

    JAX carries the values from step to step beside the variables.

    Args:
        model: a Keras model.

    Example:
        >>> sync_state(model)  # in on_train_batch_begin of a callback
        >>> float(model.optimizer.learning_rate)
    """
    if keras.backend.backend() == "jax":
        model.jax_state_sync()


def collect(model, *more) -> None:
    """Takes a trained model out of its distribution, for use as any other.

    On JAX its variables lie on several devices, where only batches that these
    can share may meet them; afterwards they are on one. TensorFlow's need
    nothing.

    Args:
        model: a compiled Keras model whose optimizer is built.
        *more: further models, of whose variables it may have some.

    Example:
        >>> with setup("fsdp").scope():
        ...     model.fit(batches)
        >>> collect(model)
        >>> model(image[None])
    """
    if keras.backend.backend() != "jax":
        return
    groups = [model.optimizer.variables, model.metrics_variables]
    groups += [x.variables for x in (model, *more)]
    for variable in (x for group in groups for x in group):
        value = to_numpy(variable)
        variable._layout = None
        variable.assign(value)
    # They were compiled for the devices of before.
    model.train_function = model.test_function = None
    model.predict_function = None


def random_states() -> dict[str, np.ndarray]:
    """The states of the generators that the backend keeps to itself.

    On torch, Keras's dropout draws from torch's own generators unless it is
    given a seed; the other backends draw from variables of the model alone.

    Returns:
        Name of a device to uint8 array; empty on the other backends.

    Example:
        >>> sorted(random_states())
        ['cpu', 'cuda0']
    """
    if keras.backend.backend() != "torch":
        return {}
    import torch

    states = {"cpu": torch.get_rng_state()}
    for i in range(torch.cuda.device_count()):
        states[f"cuda{i}"] = torch.cuda.get_rng_state(i)
    return {name: state.numpy() for name, state in states.items()}


def set_random_states(states: dict[str, np.ndarray]) -> None:
    """Takes the generators back to states that they had.

    Args:
        states: as `random_states` returned them; those of devices that there
            are not are passed over.

    Example:
        >>> set_random_states(states)
    """
    for name in random_states().keys() & states.keys():
        import torch

        state = torch.from_numpy(states[name])
        if name == "cpu":
            torch.set_rng_state(state)
        else:
            torch.cuda.set_rng_state(state, int(name.removeprefix("cuda")))


def peak_memory() -> int | None:
    """The most memory that was in use so far.

    Returns:
        Bytes, of the first accelerator, or of the process where there is
        none; None where the system does not tell.

    Example:
        >>> peak_memory() > 0
        True
    """
    return _PEAKS[keras.backend.backend()]() or _process_peak()


def _tensorflow_peak():
    import tensorflow as tf

    if not tf.config.list_physical_devices("GPU"):
        return None
    return tf.config.experimental.get_memory_info("GPU:0")["peak"]


def _jax_peak():
    import jax

    statistics = jax.local_devices()[0].memory_stats() or {}
    return statistics.get("peak_bytes_in_use")


def _torch_peak():
    import torch

    available = torch.cuda.is_available()
    return torch.cuda.max_memory_allocated() if available else None


def _process_peak():
    try:
        import resource
    except ImportError:  # Windows
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


_PEAKS = {
    "tensorflow": _tensorflow_peak,
    "jax": _jax_peak,
    "torch": _torch_peak,
}
