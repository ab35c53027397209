"""Where a run computes: devices, hosts, and how they share the work."""

from keras_vit.training.distribution.choice import (
    DISTRIBUTIONS,
    Distribution,
    setup,
)
from keras_vit.training.distribution.state import (
    collect,
    devices,
    peak_memory,
    random_states,
    set_random_states,
    sync_state,
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
