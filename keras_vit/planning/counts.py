"""The parameters and multiply-adds of a model, from its layers."""

import dataclasses
import functools
import math

from keras_vit.analysis.compute import multiply_adds
from keras_vit.io.checks import check_choice
from keras_vit.models import VisionTransformer, ViTConfig
from keras_vit.models.options import ATTENTION_POOLINGS, changed, options_of
from keras_vit.models.resnet import STEMS, UNITS
from keras_vit.runtime.workarounds import without_values
from keras_vit.sizes import VIT

__all__ = ["Counts", "bit_multiply_adds", "count", "vit_config"]

PLANNED = [name for name, size in VIT.items() if "resnet_units" not in size]


@dataclasses.dataclass(frozen=True)
class Counts:
    """What a model costs, whatever it runs on."""

    parameters: int
    """Of the whole model."""

    block_parameters: int
    """Of one block, without relative positions that all blocks share."""

    kernel_parameters: int
    """In the kernels of the blocks, which devices can share."""

    multiply_adds: int
    """Of a forward pass on one image."""

    block_multiply_adds: int
    """Those of them in the blocks, which rematerialisation does twice."""


def vit_config(model: str, **options) -> ViTConfig:
    """The config of a named Vision Transformer.

    Args:
        model: str, such as "ViT_B16"; the hybrids are not planned.
        **options: fields of `ViTConfig`, such as image_size.

    Raises:
        ValueError: for an unknown model, with the nearest, or options that do
            not fit.

    Example:
        >>> vit_config("ViT_H14", image_size=518).grid
        (37, 37)
    """
    check_choice("model", model, PLANNED)
    return ViTConfig(**{**VIT[model], **options})


@functools.lru_cache(maxsize=256)
def count(config: ViTConfig) -> Counts:
    """Count the parameters and multiply-adds of a Vision Transformer.

    From the layers of a model without values, of which one block is built, as
    all are alike; the multiply-adds as `keras_vit.analysis.multiply_adds`.

    Raises:
        ValueError: for a hybrid or attention pooling, which are not planned.

    Example:
        >>> count(vit_config("ViT_B16")).parameters
        86567656
    """
    check_planned(config)
    with without_values():
        model = VisionTransformer(dataclasses.replace(config, num_layers=1))
    sizes = {x.path: math.prod(x.shape) for x in model.weights}
    block = {x: y for x, y in sizes.items() if x.startswith("block_0/")}
    kernels = (
        size
        for path, size in block.items()
        if path.endswith("/kernel") and "/position_bias/" not in path
    )
    products = multiply_adds(model)
    more = config.num_layers - 1
    return Counts(
        parameters=sum(sizes.values()) + more * sum(block.values()),
        block_parameters=sum(block.values()),
        kernel_parameters=config.num_layers * sum(kernels),
        multiply_adds=sum(products.values()) + more * products["block_0"],
        block_multiply_adds=config.num_layers * products["block_0"],
    )


def check_planned(config: ViTConfig) -> None:
    """Raises a ValueError for parts whose memory is not modelled."""
    rows = options_of(config)
    found = {x: y for x, y in changed(config).items() if not rows[x].planned}
    if config.relative_position_kind == "decomposed":
        found["relative_position_kind"] = "decomposed"
    unpooled = config.pooling in (*ATTENTION_POOLINGS, "none")
    if unpooled or found:
        shown = "".join(f"{x}={y}, " for x, y in found.items())
        raise ValueError(
            "Vision Transformers without a ResNet or stem, of blocks that are "
            "alike, that classify the class token or a mean are planned. "
            f"Received: {shown}pooling={config.pooling!r}."
        )


def bit_multiply_adds(
    units: tuple,
    width: int,
    image_size: int,
    classes: int,
    *,
    unit: str = "bottleneck",
    stem: str = "single",
) -> int:
    """Multiply-adds of a BiT ResNet, the paper's baseline, per image.

    Args:
        units: of each stage, see `BiTConfig`.
        width: int, channels of the root.
        image_size: int, pixels, a multiple of 32.
        classes: int, outputs of the classification layer.
        unit: see `BiTConfig`.
        stem: see `BiTConfig`.

    Example:
        >>> round(bit_multiply_adds((3, 4, 6, 3), 64, 224, 1000) / 1e9, 1)
        4.1
    """
    eighths = [x * width // 8 for x in STEMS[stem]]
    size = 7 if len(eighths) == 1 else 3
    pairs = zip([3, *eighths[:-1]], eighths, strict=True)
    total = (image_size // 2) ** 2 * size**2 * sum(i * j for i, j in pairs)
    side, channels = image_size // 4, width
    for stage, number in enumerate(units):
        filters = width * 2**stage
        for i in range(number):
            stride = 2 if stage and i == 0 else 1
            convolutions = UNITS[unit](filters, stride)
            outputs = convolutions[-1][0]
            if i == 0 and (stage or unit == "bottleneck"):  # the shortcut
                total += (side // stride) ** 2 * channels * outputs
            for made, size, stride in convolutions:
                side //= stride
                total += side**2 * size**2 * channels * made
                channels = made
    return total + channels * classes
