"""The devices and processes of a run, and how they share the work."""

from keras_vit.training.distribution.layouts import (
    Distribution,
    setup,
)
from keras_vit.training.distribution.machine import (
    collect,
    compilation_cache_in,
    devices,
    environment,
    peak_memory,
    random_states,
    set_random_states,
    sync_state,
    versions,
)

__all__ = [
    "Distribution",
    "collect",
    "devices",
    "environment",
    "compilation_cache_in",
    "peak_memory",
    "random_states",
    "set_random_states",
    "setup",
    "sync_state",
    "versions",
]
