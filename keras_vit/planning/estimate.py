"""How long training takes, and the layouts that fit a machine.

The time comes from an assumed share of the devices' peak.

Sources: "An Image Is Worth 16x16 Words" (arXiv:2010.11929): Table 2 for
TPUv3-core-days, Table 3 for epochs, Table 6 for exaFLOPs, section 4.1 for the
sizes of the data sets; "Big Transfer" (arXiv:1912.11370), section 3.3, for the
40 epochs of BiT-L. Table 2 has a run of Noisy Student besides, an
EfficientNet that keras_vit does not have.
"""

import dataclasses
from typing import NamedTuple

from keras_vit.models import ViTConfig
from keras_vit.planning.counts import (
    Counts,
    bit_multiply_adds,
    count,
    vit_config,
)
from keras_vit.planning.devices_table import DEVICES, Machine
from keras_vit.planning.memory import (
    FLOAT32,
    LAYOUTS,
    OPTIMIZERS,
    Memory,
    Settings,
    memory,
)
from keras_vit.sizes import BIT

__all__ = [
    "Duration",
    "PaperRun",
    "Row",
    "Way",
    "duration",
    "largest_batch",
    "paper_runs",
    "plan",
    "planned_memory",
    "training_flops",
    "usable_memory",
]

# Forward; backward for the inputs and for the weights: once each.
PASSES = 3
FLOPS = 2  # in a multiply-add
# ILSVRC2012_img_train.tar: 147,897,477,120 bytes, 1,281,167 images.
JPEG_BYTES = 115_440


@dataclasses.dataclass(frozen=True)
class Duration:
    """The time of a step and the data that it needs."""

    flops: int
    """Of a step on all devices together, recomputation included."""

    seconds: float
    """Of a step."""

    images_per_second: float
    """On all devices together."""

    pixel_bytes: float
    """Per second, as 8-bit pixels."""

    jpeg_bytes: float
    """Per second, as files of the size of ImageNet's."""

    def device_days(self, images: float, devices: int) -> float:
        """Days of one device, for so many images in all epochs together."""
        return devices * images / self.images_per_second / 86_400


def training_flops(counts: Counts, rematerialize: bool = False) -> int:
    """Floating-point operations to train on one image.

    Rematerialisation adds another forward pass of the blocks.

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
    optimizer at the bandwidth of a device's memory. Communication between
    devices is not counted; the share has to allow for it.

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


# Images and classes.
DATASETS = {"JFT-300M": (303e6, 18_291), "ImageNet-21k": (14e6, 21_843)}
# Model, data set, epochs, exaFLOPs (Table 6), core-days (Table 2). Table 3
# has two lengths for L/16 on ImageNet-21k and Table 2 does not say which.
TABLE_2 = [
    ("ViT_H14", "JFT-300M", 14, 4262, 2500),
    ("ViT_L16", "JFT-300M", 14, 1567, 680),
    ("ViT_L16", "ImageNet-21k", 90, None, 230),
    ("ViT_L16", "ImageNet-21k", 30, None, 230),
    ("BiT_R152x4", "JFT-300M", 40, None, 9900),
]
IMAGE_SIZE = 224


@dataclasses.dataclass(frozen=True)
class PaperRun:
    """A run of the paper: our estimate, and what the paper says."""

    model: str
    dataset: str
    epochs: int
    exaflops: float
    """10^18 operations, ours."""
    paper_exaflops: float | None
    core_days: float
    """Of a TPUv3 core, ours, at the assumed share of its peak."""
    paper_core_days: float
    efficiency: float
    """The share of the peak at which ours would equal the paper's."""


def paper_runs(efficiency: float = 0.4) -> list[PaperRun]:
    """Estimates the runs of Table 2.

    Args:
        efficiency: float in (0, 1], the share of the peak that is assumed.

    Raises:
        ValueError: for an efficiency out of range.

    Example:
        >>> round(paper_runs()[0].core_days)
        2004
    """
    Settings(efficiency=efficiency)  # Checks it.
    return [_run(efficiency, *row) for row in TABLE_2]


def _run(efficiency, model, dataset, epochs, paper_exaflops, paper_core_days):
    images, classes = DATASETS[dataset]
    flops = _flops(model, classes) * images * epochs
    core_day = DEVICES["v3"].peak_tflops * 1e12 * 86_400
    return PaperRun(
        model,
        dataset,
        epochs,
        flops / 1e18,
        paper_exaflops,
        flops / (core_day * efficiency),
        paper_core_days,
        flops / (core_day * paper_core_days),
    )


def _flops(model, classes):
    if model in BIT:
        size = BIT[model]
        products = bit_multiply_adds(
            size["units"], size["width"], IMAGE_SIZE, classes
        )
        return FLOPS * PASSES * products
    config = vit_config(model, image_size=IMAGE_SIZE, num_classes=classes)
    return training_flops(count(config))


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
    largest_batch: int
    """The largest batch of all devices that fits at once, 0 if none does."""
    duration: Duration


def plan(config: ViTConfig, settings: Settings, machine: Machine) -> list[Row]:
    """Plans a training run: a row per layout, without and with remat.

    One device has no layout but the first; model_parallel is left out where
    the devices are not a multiple of settings.model_axis.

    Raises:
        ValueError: for a batch that the devices do not divide, or a model
            that is not planned.

    Example:
        >>> rows = plan(vit_config("ViT_B16"), Settings(), machine("v5e-8"))
        >>> [row.parts for row in rows if row.layout == "fsdp"]
        [8, 1]
    """
    return [
        _row(config, settings, machine, Way(layout, rematerialize))
        for layout in layouts_of(settings, machine)
        for rematerialize in (False, True)
    ]


class Way(NamedTuple):
    """How a row is run, which is all that its memory depends on."""

    layout: str
    rematerialize: bool


def _row(config, settings, machine, way):
    return Row(
        way.layout,
        way.rematerialize,
        planned_memory(config, settings, machine, way),
        _parts(config, settings, machine, way),
        largest_batch(config, settings, machine, way),
        duration(config, settings, machine, rematerialize=way.rematerialize),
    )


def layouts_of(settings: Settings, machine: Machine) -> tuple[str, ...]:
    """The layouts that a machine has devices for."""
    if machine.count == 1:
        return LAYOUTS[:1]
    if machine.count % settings.model_axis:
        return LAYOUTS[:2]
    return LAYOUTS


def usable_memory(machine: Machine) -> float:
    """The bytes of a device that a plan may fill."""
    return USABLE * machine.device.memory_gb * 1e9


def planned_memory(
    config: ViTConfig,
    settings: Settings,
    machine: Machine,
    way: Way | Row,
    parts: int = 1,
) -> Memory:
    """The memory of a row, with its batch cut into so many parts."""
    return memory(
        config,
        settings,
        way.layout,
        devices=machine.count,
        parts=parts,
        rematerialize=way.rematerialize,
    )


def largest_batch(
    config: ViTConfig,
    settings: Settings,
    machine: Machine,
    way: Way | Row,
    ratio: float = 1.0,
) -> int:
    """The largest batch that fits at once, on all devices together.

    Args:
        config: of the model.
        settings: their batch does not count.
        machine: what the batch must fit.
        way: a row, or its layout and whether it rematerializes.
        ratio: what the memory is multiplied by before it is compared.

    Returns:
        int, 0 where one image a replica is too many. From eight images a
        replica on it is a multiple of eight, as the tiles of TPUs are.

    Example:
        >>> way = Way("data_parallel", False)
        >>> config, devices = vit_config("ViT_B16"), machine("h200x8")
        >>> largest_batch(config, Settings(), devices, way)
        6656
    """
    replicas = replicas_of(settings, machine, way)
    usable = usable_memory(machine)

    def fits(images):
        one = dataclasses.replace(settings, batch=images * replicas)
        return ratio * planned_memory(config, one, machine, way).total <= usable

    few = sum(fits(images) for images in range(1, 8))
    if not fits(8):
        return few * replicas
    low, high = 1, 2  # Eights that fit, and that may not.
    while fits(8 * high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(8 * middle) else (low, middle)
    return 8 * low * replicas


def replicas_of(settings: Settings, machine: Machine, way: Way | Row) -> int:
    """The shares that the devices cut a batch into."""
    is_shared = way.layout == "model_parallel"
    return machine.count // (settings.model_axis if is_shared else 1)


def _parts(config, settings, machine, way):
    usable = usable_memory(machine)
    local = settings.batch // replicas_of(settings, machine, way)
    for parts in range(1, local + 1):
        if local % parts:
            continue
        needed = planned_memory(config, settings, machine, way, parts)
        if needed.total <= usable:
            return parts
    return None
