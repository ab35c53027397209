"""The machine and the backend that a run computes on.

Versions, devices, memory, the backend's own random states and what it compiled.
Keras is imported where the backend matters: an exported model, which is run
without Keras, needs the free memory alone.
"""

import contextlib
import datetime
import os
import pathlib
import platform
import subprocess
import sys
from collections.abc import Iterator

import numpy as np

from keras_vit.version import __version__

__all__ = [
    "COMPILED",
    "available_memory",
    "compilation_cache_in",
    "devices",
    "environment",
    "peak_memory",
    "random_states",
    "set_random_states",
    "shortage",
    "sync_state",
    "versions",
]


def versions() -> dict[str, str]:
    """Versions of keras_vit, Python, Keras, its backend and NumPy."""
    import keras

    backend = keras.backend.backend()
    return {
        "keras_vit": __version__,
        "python": platform.python_version(),
        "keras": keras.__version__,
        backend: sys.modules[backend].__version__,
        "numpy": np.__version__,
    }


def environment() -> dict:
    """Time, versions, devices, platform, and the commit of the code if any.

    What a run writes to environment.json.
    """
    now = datetime.datetime.now(datetime.UTC)
    return {
        "time": now.isoformat("T", "seconds"),
        "versions": versions(),
        "backend": _backend(),
        "devices": devices(),
        "platform": platform.platform(),
        "processors": os.cpu_count(),
        "commit": _commit(pathlib.Path(__file__).parents[1]),
    }


def _backend() -> str:
    import keras

    return keras.backend.backend()


def _commit(package: pathlib.Path) -> str | None:
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
    """Names the devices that the backend computes on, such as "gpu:0"."""
    import keras

    from keras_vit.runtime.workarounds import torch_devices

    if keras.backend.backend() == "torch":
        return torch_devices()
    return keras.distribution.list_devices()


def sync_state(model) -> None:
    """Updates the variables of a model in the middle of `fit`.

    JAX carries the values from step to step beside the variables.
    """
    if _backend() == "jax":
        model.jax_state_sync()


def random_states() -> dict[str, np.ndarray]:
    """The states of torch's own generators, by device; none elsewhere.

    Keras's dropout draws from them on torch unless it is given a seed. The
    other backends draw from variables of the model alone.
    """
    if _backend() != "torch":
        return {}
    import torch

    states = {"cpu": torch.get_rng_state()}
    for i in range(torch.cuda.device_count()):
        states[f"cuda{i}"] = torch.cuda.get_rng_state(i)
    return {name: state.numpy() for name, state in states.items()}


def set_random_states(states: dict[str, np.ndarray]) -> None:
    """Restores what `random_states` returned; skips missing devices."""
    for name in random_states().keys() & states.keys():
        import torch

        state = torch.from_numpy(states[name])
        if name == "cpu":
            torch.set_rng_state(state)
        else:
            torch.cuda.set_rng_state(state, int(name.removeprefix("cuda")))


def peak_memory() -> int | None:
    """The most bytes in use so far, on the first accelerator or else here.

    None where the system does not say.
    """
    return _PEAKS[_backend()]() or _process_peak()


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


def available_memory() -> int | None:
    """Bytes that this process can still take of the machine's memory.

    Of what is free, what a container leaves and what `ulimit -v` leaves, the
    least; None where the system does not say.
    """
    found = [_free_memory(), _left_in_container(), _left_of_limit()]
    return min((x for x in found if x is not None), default=None)


def shortage(needed: int) -> str:
    """Return in words that so many bytes are more than there are, or "".

    Example:
        >>> shortage(10**15)
        '1,000,000.0 GB, and 12.3 GB are free'
    """
    free = available_memory()
    if free is None or needed <= free:
        return ""
    free = max(free, 0)
    return f"{needed / 10**9:,.1f} GB, and {free / 10**9:,.1f} GB are free"


def _free_memory():
    return _kilobytes("/proc/meminfo", "MemAvailable")


def _left_in_container():
    folder = pathlib.Path("/sys/fs/cgroup")
    try:
        limit = int((folder / "memory.max").read_text())
        return limit - int((folder / "memory.current").read_text())
    except (OSError, ValueError):  # "max" is no limit.
        return None


def _left_of_limit():
    try:
        import resource
    except ImportError:  # Windows
        return None
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    used = _kilobytes("/proc/self/status", "VmSize")
    if limit == resource.RLIM_INFINITY or used is None:
        return None
    return limit - used


def _kilobytes(path, name) -> int | None:
    """A line `name: 123 kB` of a file of Linux, in bytes."""
    try:
        lines = pathlib.Path(path).read_text().splitlines()
    except OSError:
        return None
    found = (line.split() for line in lines if line.startswith(f"{name}:"))
    return next((1024 * int(words[1]) for words in found), None)


COMPILED = ".compiled"
CACHE_DIR = "jax_compilation_cache_dir"
# Everything is kept: together, the many small functions of a start take as
# long as the step. The defaults leave out what takes less than a second.
CACHE_SETTINGS = {
    "jax_persistent_cache_min_compile_time_secs": 0.0,
    "jax_persistent_cache_min_entry_size_bytes": -1,
}


@contextlib.contextmanager
def compilation_cache_in(parent: str | os.PathLike) -> Iterator[None]:
    """Caches what JAX compiles in `.compiled` beside the run folders.

    A folder that the user chose by JAX_COMPILATION_CACHE_DIR, or in
    `jax.config`, stays, and JAX_ENABLE_COMPILATION_CACHE=false keeps nothing.
    The other backends keep nothing.
    """
    if _backend() != "jax":
        yield
        return
    import jax

    if getattr(jax.config, CACHE_DIR):
        yield
        return
    folder = str(pathlib.Path(parent).resolve() / COMPILED)
    old = {name: getattr(jax.config, name) for name in CACHE_SETTINGS}
    _configure_jax({**CACHE_SETTINGS, CACHE_DIR: folder})
    try:
        yield
    finally:
        _configure_jax({**old, CACHE_DIR: None})


def _configure_jax(settings):
    import jax
    from jax.experimental.compilation_cache import compilation_cache

    for name, value in settings.items():
        jax.config.update(name, value)
    compilation_cache.reset_cache()  # It looks at the folder only once.
