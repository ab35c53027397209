"""Where a run computes; the one place that asks a backend by its name."""

import sys

import keras

__all__ = ["devices", "peak_memory", "sync_state"]


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
