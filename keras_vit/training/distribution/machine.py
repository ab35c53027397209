"""The machine and the backend that a run computes on.

Versions, devices, memory, the backend's own random states and what it compiled.
"""

import contextlib
import os
import pathlib
import platform
import subprocess
import sys
from collections.abc import Iterator

import keras
import numpy as np

from keras_vit.training.distribution.processes import to_numpy
from keras_vit.version import __version__
from keras_vit.workarounds import reset_layout, torch_devices

__all__ = [
    "COMPILED",
    "collect",
    "devices",
    "environment",
    "keeping_compiled",
    "peak_memory",
    "random_states",
    "set_random_states",
    "sync_state",
    "versions",
]


def versions() -> dict[str, str]:
    """Versions of what decides the numbers of a run.

    Returns:
        Name to version, of keras_vit, Python, Keras, its backend and NumPy.

    Example:
        >>> versions()["keras"]
        '3.15.1'
    """
    backend = keras.backend.backend()
    return {
        "keras_vit": __version__,
        "python": platform.python_version(),
        "keras": keras.__version__,
        backend: sys.modules[backend].__version__,
        "numpy": np.__version__,
    }


def environment() -> dict:
    """Everything about the machine and the code that a reader may ask for.

    Returns:
        Versions, backend, devices, platform, number of processors, and the
        commit of the code, None where it is not in a git repository.

    Example:
        >>> environment()["backend"]
        'jax'
    """
    return {
        "versions": versions(),
        "backend": keras.backend.backend(),
        "devices": devices(),
        "platform": platform.platform(),
        "processors": os.cpu_count(),
        "commit": _commit(pathlib.Path(__file__).parents[2]),
    }


def _commit(package: pathlib.Path) -> str | None:
    """Commit of the repository that holds the package, if one does."""
    # An installed package may lie in a folder of somebody else's repository.
    if not (package.parent / ".git").exists():
        return None
    command = ["git", "describe", "--always", "--dirty", "--abbrev=40"]
    try:
        described = subprocess.run(
            [*command, "--exclude=*"],
            cwd=package,
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return described.stdout.strip()


def devices() -> list[str]:
    """Names the devices that the backend computes on.

    Returns:
        For example ["cpu:0"], or ["gpu:0", "gpu:1"].

    Example:
        >>> devices()
        ['cpu:0']
    """
    if keras.backend.backend() == "torch":
        return torch_devices()
    return keras.distribution.list_devices()


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
        reset_layout(variable)
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


COMPILED = ".compiled"
PLACE = "jax_compilation_cache_dir"
# Everything is kept: the many small functions of a start cost as much time
# together as the step. The defaults leave out what takes less than a second.
SETTINGS = {
    "jax_persistent_cache_min_compile_time_secs": 0.0,
    "jax_persistent_cache_min_entry_size_bytes": -1,
}


@contextlib.contextmanager
def keeping_compiled(parent: str | os.PathLike) -> Iterator[None]:
    """Lets JAX keep what it compiles in the block, and find it there again.

    The other backends keep nothing. A folder that the user chose by
    JAX_COMPILATION_CACHE_DIR, or in `jax.config`, stays, and
    JAX_ENABLE_COMPILATION_CACHE=false keeps nothing either.

    Args:
        parent: the folder of the run folders, in which `.compiled` is made.

    Example:
        >>> with keeping_compiled("runs"):
        ...     model.fit(batches)
    """
    if keras.backend.backend() != "jax":
        yield
        return
    import jax

    if getattr(jax.config, PLACE):
        yield
        return
    folder = str(pathlib.Path(parent).resolve() / COMPILED)
    old = {name: getattr(jax.config, name) for name in SETTINGS}
    _set({**SETTINGS, PLACE: folder})
    try:
        yield
    finally:
        _set({**old, PLACE: None})


def _set(settings):
    import jax
    from jax.experimental.compilation_cache import compilation_cache

    for name, value in settings.items():
        jax.config.update(name, value)
    compilation_cache.reset_cache()  # It looks at the folder once alone.
