"""Steps that JAX compiled once, kept for the runs that follow."""

import contextlib
import os
import pathlib
from collections.abc import Iterator

import keras

__all__ = ["FOLDER", "keeping_compiled"]

FOLDER = ".compiled"
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
    folder = str(pathlib.Path(parent).resolve() / FOLDER)
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
