"""What lies in the memory of a device when it is fullest."""

import dataclasses
from typing import NamedTuple

from keras_vit.models import ViTConfig
from keras_vit.models.base import check_choice
from keras_vit.planning.activations import activation_bytes
from keras_vit.planning.counts import count
from keras_vit.planning.settings import (
    FLOAT32,
    OPTIMIZERS,
    PRECISIONS,
    Settings,
)

__all__ = ["LAYOUTS", "Memory", "memory"]

# data_parallel: all of the model on each device, a share of the batch.
# fsdp: a share of every kernel of the blocks as well, gathered when its block
# is computed. The rest stays whole: it is small, and XLA, given a share of the
# position embedding, distributed the activations anew (56 % more memory).
# model_parallel: a share of the heads and of the MLPs among some devices, a
# share of the batch among the others.
LAYOUTS = ("data_parallel", "fsdp", "model_parallel")


@dataclasses.dataclass(frozen=True)
class Memory:
    """Bytes on one device."""

    weights: int
    """In float32, and once more in 16 bits where these compute."""

    optimizer: int
    """Its slots and, where a batch is cut into parts, summed gradients."""

    gradients: int
    """Of one backward pass."""

    activations: int
    """What the backward pass needs, with what it works on."""

    images: int
    """The batch, in float32."""

    @property
    def total(self) -> int:
        """The peak.

        The gradients are made while the activations they come from are
        given up, so the larger of the two counts.
        """
        return (
            self.weights
            + self.optimizer
            + self.images
            + max(self.gradients, self.activations)
        )


def memory(
    config: ViTConfig,
    settings: Settings,
    layout: str = "data_parallel",
    *,
    devices: int = 1,
    parts: int = 1,
    rematerialize: bool = False,
) -> Memory:
    """Estimates the memory of a training step on each device.

    Args:
        config: a `ViTConfig`.
        settings: a `Settings`.
        layout: "data_parallel", "fsdp" or "model_parallel".
        devices: int, that train together.
        parts: int, that the batch is cut into, one after the other.
        rematerialize: bool, see `ViTConfig`.

    Returns:
        The `Memory`.

    Raises:
        ValueError: for what is not planned, or devices or parts that do not
            divide the batch.

    Example:
        >>> config = vit_config("ViT_B16")
        >>> round(memory(config, Settings(batch=128)).total / 1e9)
        20
    """
    split = _split(config, settings, layout, devices)
    counts = count(config)
    compute = PRECISIONS[settings.precision]
    images = images_per_device(settings, split, parts)
    rest = counts.parameters - counts.kernel_parameters
    held = FLOAT32 * (counts.kernel_parameters / split.kernels + rest)
    slots = OPTIMIZERS[settings.optimizer] + (parts > 1)
    copies = held * compute / FLOAT32 if compute < FLOAT32 else 0
    # The block at hand, the next, and the gradient of one are whole.
    gathered = counts.block_parameters * (2 * compute + FLOAT32)
    per_image = activation_bytes(
        config, settings, rematerialize, split.activations
    )
    pixels = config.image_size[0] * config.image_size[1] * config.channels
    return Memory(
        weights=round(held + copies + gathered * (layout == "fsdp")),
        optimizer=round(held * slots),
        gradients=round(held),
        activations=round(per_image * images),
        images=FLOAT32 * pixels * images,
    )


class Split(NamedTuple):
    """Into how many shares something is cut."""

    batch: int
    kernels: int = 1
    """The kernels of attention and MLPs."""
    activations: int = 1
    """What attention and MLPs compute."""


def _split(config, settings, layout, devices):
    check_choice("layout", layout, LAYOUTS)
    if layout == "data_parallel":
        return Split(devices)
    if layout == "fsdp":
        return Split(devices, kernels=devices)
    axis = settings.model_axis
    if devices % axis or config.num_heads % axis or config.mlp_dim % axis:
        raise ValueError(
            f"model_axis={axis} must divide the {devices} devices, the "
            f"{config.num_heads} heads and the MLPs' {config.mlp_dim}."
        )
    return Split(devices // axis, kernels=axis, activations=axis)


def images_per_device(settings: Settings, split: Split, parts: int = 1) -> int:
    """Images that are on a device at a time; raises if they do not divide."""
    shares = split.batch * parts
    if settings.batch % shares:
        raise ValueError(
            f"A batch of {settings.batch} cannot be cut into {shares} equal "
            f"shares ({split.batch} devices, {parts} parts). Choose a "
            f"multiple of {shares}."
        )
    return settings.batch // shares
