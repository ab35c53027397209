"""How many parameters and multiply-adds a model has, without building it.

Letters: T tokens, D hidden dimension, M MLP dimension, K classes, P values
in a patch.
"""

import dataclasses
import math

from keras_vit.io.checks import check_choice
from keras_vit.layers.attention_positions import (
    bias_multiply_adds,
    bias_parameters,
)
from keras_vit.models import ViTConfig
from keras_vit.models.resnet import STEMS, UNITS
from keras_vit.models.vit import num_tokens
from keras_vit.models.vit_config import ATTENTION_POOLINGS
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


def count(config: ViTConfig) -> Counts:
    """Counts the parameters and multiply-adds of a Vision Transformer.

    As `keras_vit.analysis.multiply_adds` counts them from a built model.

    Raises:
        ValueError: for a hybrid or attention pooling, which are not planned.

    Example:
        >>> count(vit_config("ViT_B16")).parameters
        86567656
    """
    check_planned(config)
    tokens, dim = num_tokens(config), config.hidden_dim
    patch = math.prod(config.patch_size) * config.channels  # P
    kernels, vectors = block_parameters(config)
    embedding = (patch + config.patch_bias) * dim
    embedding += config.num_pooled_prefix_tokens * dim
    norms = config.final_norm + config.norm_before_blocks + config.patch_norm
    norms *= 2 if config.normalization == "layer_norm" else 1
    if config.position_embedding == "learned":
        embedding += tokens * dim
    head, head_products = _head(config)
    products = tokens * kernels + 2 * tokens**2 * dim
    if config.relative_position_bias:
        products += bias_multiply_adds(config)
        if config.relative_positions_shared:
            embedding += bias_parameters(config)
    if config.talking_heads:  # Of each pair of tokens, not of each token.
        products += 2 * config.num_heads**2 * (tokens**2 - tokens)
    blocks = config.num_layers * products
    late_parameters, late_products = class_stage(config)
    return Counts(
        parameters=config.num_layers * (kernels + vectors)
        + embedding
        + norms * dim
        + late_parameters
        + head,
        block_parameters=kernels + vectors,
        kernel_parameters=config.num_layers * kernels,
        multiply_adds=math.prod(config.grid) * patch * dim
        + blocks
        + late_products
        + head_products,
        block_multiply_adds=blocks,
    )


def block_parameters(config) -> tuple[int, int]:
    """Counts the weights of a block without building it.

    Args:
        config: with the options of the block, and hidden_dim, D.

    Returns:
        The numbers in its kernels, and those in its biases and scales.
    """
    dim, mlp_dim = config.hidden_dim, config.mlp_dim
    widths = (2 if config.gated_mlp else 1) * mlp_dim
    kernels = 4 * dim**2 + dim * (widths + mlp_dim)
    # A scale, and for layer normalisation an offset.
    norm = 2 if config.normalization == "layer_norm" else 1
    vectors = norm * 2 * dim
    vectors += config.attention_inner_norm * norm * dim
    vectors += config.mlp_inner_norm * norm * mlp_dim
    vectors += config.qk_norm * norm * 2 * dim // config.num_heads
    vectors += config.projection_bias * (2 * dim + widths)
    vectors += config.qkv_bias * 3 * dim
    scales = 1 + config.mlp_layer_scale
    vectors += (config.layer_scale_init is not None) * scales * dim
    if config.mlp_placement == "beside":  # One norm, one bias, one scale.
        vectors -= norm * dim + dim
        vectors -= (config.layer_scale_init is not None) * dim
    if config.differential_attention:
        vectors += 3 * dim // config.num_heads
    if config.talking_heads:
        kernels += 2 * config.num_heads**2
        vectors += 2 * config.num_heads
    if config.rope == "mixed":
        vectors += dim
    if config.relative_position_bias and not config.relative_positions_shared:
        vectors += bias_parameters(config)
    return kernels, vectors


def class_stage(config: ViTConfig) -> tuple[int, int]:
    """Parameters and multiply-adds of all class-attention blocks.

    Each has a plain attention and MLP; keys and values are those of all
    tokens, everything else that of the class token.
    """
    plain = dataclasses.replace(
        config, talking_heads=False, rope=None, relative_position_bias=False
    )
    kernels, vectors = block_parameters(plain)
    dim, tokens = config.hidden_dim, math.prod(config.grid) + 1
    of_tokens = 2 * dim**2 * tokens + 2 * tokens * dim
    of_token = kernels - 2 * dim**2
    layers = config.class_attention_layers
    return layers * (kernels + vectors), layers * (of_tokens + of_token)


UNPLANNED = (
    *("resnet_units", "patch_stem", "key_value_heads"),
    *("window_size", "neck_dim"),
)


def check_planned(config: ViTConfig) -> None:
    """Raises a ValueError for parts whose memory is not modelled."""
    found = {x: getattr(config, x) for x in UNPLANNED}
    found = {x: y for x, y in found.items() if y != getattr(ViTConfig, x)}
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


def _head(config):
    """Parameters and multiply-adds after the last normalisation."""
    parts = {"prefix": config.num_pooled_prefix_tokens, "token_and_mean": 2}
    pooled = parts.get(config.pooling, 1) * config.hidden_dim
    sizes = [pooled, config.representation_dim, config.num_classes]
    sizes = [size for size in sizes if size]
    pairs = list(zip(sizes[:-1], sizes[1:], strict=True))
    products = sum(i * j for i, j in pairs)
    biases = sum(sizes[1:])
    if config.head_bias is None:
        biases -= config.num_classes
    return products + biases, products


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
