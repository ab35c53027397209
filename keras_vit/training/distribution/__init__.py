"""Where a run computes: devices, hosts, and how they share the work."""

from keras_vit.training.distribution.backend_state import (
    collect,
    devices,
    peak_memory,
    random_states,
    set_random_states,
    sync_state,
)
from keras_vit.training.distribution.layouts import (
    DISTRIBUTIONS,
    Distribution,
    setup,
)

__all__ = [
    "DISTRIBUTIONS",
    "Distribution",
    "collect",
    "devices",
    "peak_memory",
    "random_states",
    "set_random_states",
    "setup",
    "sync_state",
]
