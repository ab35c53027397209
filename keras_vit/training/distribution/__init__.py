"""Where a run computes: devices, hosts, and how they share the work."""

from keras_vit.training.distribution.layouts import (
    Distribution,
    setup,
)
from keras_vit.training.distribution.machine import (
    collect,
    devices,
    environment,
    keeping_compiled,
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
    "keeping_compiled",
    "peak_memory",
    "random_states",
    "set_random_states",
    "setup",
    "sync_state",
    "versions",
]
