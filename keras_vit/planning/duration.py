"""How long training takes, from an assumed share of the devices' peak."""

import dataclasses

from keras_vit.models import ViTConfig
from keras_vit.planning.counts import Counts, count
from keras_vit.planning.devices_table import Machine
from keras_vit.planning.settings import FLOAT32, OPTIMIZERS, Settings

__all__ = ["Duration", "duration", "training_flops"]

# Forward; backward for the inputs and for the weights: once each.
PASSES = 3
FLOPS = 2  # in a multiply-add
# ILSVRC2012_img_train.tar: 147,897,477,120 bytes, 1,281,167 images.
JPEG_BYTES = 115_440


@dataclasses.dataclass(frozen=True)
class Duration:
    """The time of a step and what it has to be fed with."""

    flops: int
    """Of a step on all devices together, recomputation included."""

    seconds: float
    """Of a step."""

    images_per_second: float
    """On all devices together."""

    pixel_bytes: float
    """In a second, as 8-bit pixels."""

    jpeg_bytes: float
    """In a second, as files of the size of ImageNet's."""

    def device_days(self, images: float, devices: int) -> float:
        """Days of one device, for a whole run.

        Args:
            images: how many are trained on, each time counted.
            devices: int, that run.

        Returns:
            float.
        """
        return devices * images / self.images_per_second / 86_400


def training_flops(counts: Counts, rematerialize: bool = False) -> int:
    """Floating-point operations to train on one image.

    Args:
        counts: of a model.
        rematerialize: bool; True adds another forward pass of the blocks.

    Returns:
        int.

    Example:
        >>> counts = count(vit_config("ViT_B16"))
        >>> round(training_flops(counts) / 1e9)  # Table 6: 224e18 in 7 epochs
        105
    """
    again = counts.block_multiply_adds if rematerialize else 0
    return FLOPS * (PASSES * counts.multiply_adds + again)


def duration(
    config: ViTConfig,
    settings: Settings,
    machine: Machine,
    *,
    rematerialize: bool = False,
) -> Duration:
    """Estimates the time of a training step.

    The products at the assumed share of the peak of all devices, then the
    optimizer at the bandwidth of a device's memory. What the devices tell
    each other is not counted; the share has to allow for it.

    Args:
        config: a `ViTConfig`.
        settings: a `Settings`.
        machine: a `Machine`.
        rematerialize: bool.

    Returns:
        The `Duration`.

    Example:
        >>> config, devices = vit_config("ViT_B16"), machine("v5e-8")
        >>> round(duration(config, Settings(), devices).seconds, 2)
        0.69
    """
    counts = count(config)
    flops = training_flops(counts, rematerialize) * settings.batch
    rate = machine.device.peak_tflops * 1e12 * machine.count
    # Reads weight, gradient and slots, writes weight and slots.
    numbers = 3 + 2 * OPTIMIZERS[settings.optimizer]
    update = counts.parameters * FLOAT32 * numbers
    seconds = flops / (rate * settings.efficiency)
    seconds += update / (machine.device.bandwidth_gb * 1e9)
    images = settings.batch / seconds
    height, width = config.image_size
    return Duration(
        flops=flops,
        seconds=seconds,
        images_per_second=images,
        pixel_bytes=images * height * width * config.channels,
        jpeg_bytes=images * JPEG_BYTES,
    )
