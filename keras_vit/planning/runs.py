"""A run on a machine, under every layout."""

import dataclasses

from keras_vit.models import ViTConfig
from keras_vit.planning.devices_table import Machine
from keras_vit.planning.duration import Duration, duration
from keras_vit.planning.memory import LAYOUTS, Memory, memory
from keras_vit.planning.settings import Settings

__all__ = ["Row", "plan"]

# The runtime, fragmentation and what the estimate misses have the rest.
USABLE = 0.9


@dataclasses.dataclass(frozen=True)
class Row:
    """One way to run it."""

    layout: str
    rematerialize: bool
    memory: Memory
    """Of a device, with the whole of its batch at once."""
    parts: int | None
    """The fewest equal parts that the batch of a device must be cut into so
    that it fits; None if no number is enough."""
    duration: Duration


def plan(config: ViTConfig, settings: Settings, machine: Machine) -> list[Row]:
    """Plans a training run.

    Args:
        config: a `ViTConfig`.
        settings: a `Settings`.
        machine: a `Machine`.

    Returns:
        A `Row` for each layout, without and with rematerialisation. One
        device has no layouts but the first; model_parallel is left out where
        the devices are not a multiple of settings.model_axis.

    Raises:
        ValueError: for what does not fit together.

    Example:
        >>> rows = plan(vit_config("ViT_B16"), Settings(), machine("v5e-8"))
        >>> [row.parts for row in rows if row.layout == "fsdp"]
        [8, 1]
    """
    rows = []
    for layout in layouts_of(settings, machine):
        for rematerialize in (False, True):
            options = {
                "layout": layout,
                "devices": machine.count,
                "rematerialize": rematerialize,
            }
            rows.append(
                Row(
                    layout,
                    rematerialize,
                    memory(config, settings, **options),
                    _parts(config, settings, machine, options),
                    duration(
                        config, settings, machine, rematerialize=rematerialize
                    ),
                )
            )
    return rows


def layouts_of(settings: Settings, machine: Machine) -> tuple[str, ...]:
    """The layouts that a machine has devices for."""
    if machine.count == 1:
        return LAYOUTS[:1]
    if machine.count % settings.model_axis:
        return LAYOUTS[:2]
    return LAYOUTS


def _parts(config, settings, machine, options):
    usable = USABLE * machine.device.memory_gb * 1e9
    axis = settings.model_axis if options["layout"] == "model_parallel" else 1
    local = settings.batch * axis // machine.count
    for parts in range(1, local + 1):
        if local % parts:
            continue
        needed = memory(config, settings, parts=parts, **options)
        if needed.total <= usable:
            return parts
    return None
