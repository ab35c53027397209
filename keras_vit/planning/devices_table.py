"""Accelerators, by the numbers of those who make them.

Sources: cloud.google.com/tpu/docs/v2, v3, v4, v5e, v5p and v6e (bfloat16; a
device is what JAX shows as one, half a chip for v2 and v3, a chip from v4 on);
NVIDIA's data sheets of P100 (PCIe), V100 (SXM2), T4, L4, A100 (SXM), H100
(SXM) and H200 (SXM), dense 16-bit products with sparsity left out. P100, V100
and T4 have fast products in float16 only.
"""

import dataclasses
import re
from typing import NamedTuple

from keras_vit.io.checks import check_choice, check_kind

__all__ = ["DEVICES", "Device", "Machine", "machine"]


class Device(NamedTuple):
    """One accelerator. GB: 10^9 bytes, TFLOPS: 10^12 operations per second."""

    memory_gb: float
    peak_tflops: float
    """Of 16-bit products."""
    bandwidth_gb: float
    """Of its memory, per second."""
    attention: str = "flash"
    """What attention runs as there on JAX, see `Settings`."""
    compiler: str = "keeping"
    """An upper bound for GPUs, see `Settings`."""
    cores_per_device: int = 1
    """Of the cores that the number in a TPU's name counts."""


TPU = ("recomputed", "fusing")
DEVICES: dict[str, Device] = {
    "v2": Device(8, 22.5, 300, *TPU),
    "v3": Device(16, 61.5, 450, *TPU),
    "v4": Device(32, 275, 1200, *TPU, cores_per_device=2),
    "v5e": Device(16, 197, 819, *TPU),
    "v5p": Device(95, 459, 2765, *TPU, cores_per_device=2),
    "v6e": Device(32, 918, 1638, *TPU),
    "p100": Device(16, 18.7, 732, "explicit"),
    "v100": Device(16, 125, 900, "explicit"),
    "t4": Device(16, 65, 320, "explicit"),
    "l4": Device(24, 121, 300),
    "a100-40gb": Device(40, 312, 1555),
    "a100": Device(80, 312, 2039),
    "h100": Device(80, 989, 3350),
    "h200": Device(141, 989, 4800),
}


@dataclasses.dataclass(frozen=True)
class Machine:
    """Devices of one kind that train together.

    Args:
        name: str, a key of DEVICES.
        count: int, devices.

    Example:
        >>> Machine("v5e", 8).device.memory_gb
        16
    """

    name: str
    count: int

    @property
    def device(self) -> Device:
        """One of them."""
        return DEVICES[self.name]


MOST_DEVICES = 1_000_000


def machine(text: str) -> Machine:
    """Reads the name of a machine.

    Args:
        text: str, a key of DEVICES and a number: "v5e-8" as Google names
            TPUs, where v2, v3, v4 and v5p count cores, or "h200x8".

    Raises:
        ValueError: for another form, an unknown device, with the nearest, or
            half a device.

    Example:
        >>> machine("v4-32")
        Machine(name='v4', count=16)
    """
    check_kind(str, text=text)
    # "a100-40gb" ends with no digit: a number at the end is always the count.
    match = re.fullmatch(r"(.+?)(?:-|x)(\d+)", text.strip().lower())
    if match is None or int(match[2]) < 1:
        raise ValueError(
            "Devices are a name and how many, such as v5e-8, v4-32, h200x8 or "
            f"t4x2. Received: {text!r}. Known names: {', '.join(DEVICES)}."
        )
    name, number = match[1], int(match[2][:9])
    if number > MOST_DEVICES:
        raise ValueError(
            f"There are at most {MOST_DEVICES:,} devices. Received: "
            f"{text[:100]!r}."
        )
    check_choice("device", name, DEVICES)
    cores = DEVICES[name].cores_per_device
    if number % cores:
        raise ValueError(
            f"The number after {name}- counts cores, {cores} in a device, so "
            f"it is a multiple of {cores}. Received: {text!r}."
        )
    return Machine(name, number // cores)
