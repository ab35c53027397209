"""The memory of a training step on each device.

Letters: T tokens, D hidden dimension, M MLP dimension, H heads.
"""

import dataclasses
from typing import NamedTuple

from keras_vit.io.checks import PRECISIONS, check_at_least, check_choice
from keras_vit.models import ViTConfig
from keras_vit.models.vit import last_queries, num_tokens
from keras_vit.planning.counts import count

__all__ = [
    "FLOAT32",
    "Kept",
    "LAYOUTS",
    "Memory",
    "OPTIMIZERS",
    "Settings",
    "activation_bytes",
    "kept_by_block",
    "memory",
]

FLOAT32 = 4
# Numbers that an optimizer keeps for each parameter.
OPTIMIZERS = {"adamw": 2, "sgd": 1}
ATTENTION = ("explicit", "flash", "recomputed")
COMPILERS = ("keeping", "fusing")


@dataclasses.dataclass(frozen=True)
class Settings:
    """The memory of a training step on each device.

    Args:
        batch: int, images per step on all devices together.
        precision: dtype policy.
        optimizer: "adamw" or "sgd" with momentum.
        attention: "explicit" keeps the softmax weights of all heads for the
            backward pass, "flash" computes them again in a fused kernel,
            "recomputed" without one, block by block, as on TPUs.
        compiler: "keeping" keeps for the backward pass what JAX saves, as XLA
            does for processors: an upper bound for others. "fusing" computes
            again what costs no product, as XLA does for TPUs.
        model_axis: int, devices that share a layer under model_parallel.
        efficiency: float in (0, 1], the share of the peak that the products
            run at; an assumption.

    Raises:
        ValueError: for unknown names and numbers out of range.
    """

    batch: int = 4096
    precision: str = "mixed_bfloat16"
    optimizer: str = "adamw"
    attention: str = "explicit"
    compiler: str = "keeping"
    model_axis: int = 2
    efficiency: float = 0.4

    def __post_init__(self):
        check_choice("precision", self.precision, PRECISIONS)
        check_choice("optimizer", self.optimizer, OPTIMIZERS)
        check_choice("attention", self.attention, ATTENTION)
        check_choice("compiler", self.compiler, COMPILERS)
        check_at_least(self, 1, "batch", "model_axis")
        if not 0 < self.efficiency <= 1:
            raise ValueError(
                "efficiency is a share of the peak, above 0 and at most 1. "
                f"Received: efficiency={self.efficiency}."
            )


class Kept(NamedTuple):
    """A tensor that stays in memory until the backward pass reaches it."""

    name: str
    values: int
    """Numbers for one image."""
    size: int
    """Bytes of each."""
    divided: bool = False
    """Whether model_parallel divides it."""


def kept_by_block(config: ViTConfig, settings: Settings) -> list[Kept]:
    """What one block keeps for one image.

    "keeping" compilers keep what JAX saves
    (`jax.ad_checkpoint.print_saved_residuals`), less the products inside
    GELU. "fusing" compilers keep what goes into each product, once, and
    compute normalisations and GELU again where they are used.
    """
    tokens, dim = _tiled(num_tokens(config), settings, 8), config.hidden_dim
    stream, compute = tokens * dim, PRECISIONS[settings.precision]
    softmax, mlp = config.num_heads * tokens**2, tokens * config.mlp_dim
    # XLA for TPUs lays heads out with the tokens side by side.
    of_heads = _tiled(tokens, settings, 128) * dim
    kept = [
        Kept("queries, keys, values", 3 * of_heads, compute, True),
        Kept("heads", of_heads, compute, True),
    ]
    if settings.compiler == "fusing":
        kept += [
            Kept("inputs of the normalisations", 2 * stream, compute),
            Kept("before GELU", mlp, compute, True),
        ]
    else:
        softmax *= 3  # The logits, their exponentials, the weights.
        kept += [
            Kept("inputs of the normalisations", 2 * stream, FLOAT32),
            Kept("normalised", 2 * stream, compute),
            Kept("before GELU, its tanh, after it", 3 * mlp, compute, True),
        ]
    if config.talking_heads:  # Scores and weights of both sides of a mixture.
        both = 2 * config.num_heads * tokens**2
        kept.append(Kept("mixed scores and weights", both, compute))
    if config.differential_attention:  # The second softmax, the difference.
        kept.append(Kept("second softmax", softmax, compute))
        difference = config.num_heads * tokens**2
        kept.append(Kept("difference", difference, compute))
    if _computes_again(config, settings):
        sums = config.num_heads * tokens  # Their logarithms.
        return [*kept, Kept("sums of the softmax", sums, FLOAT32, True)]
    return [*kept, Kept("softmax", softmax, compute, True)]


def _tiled(size, settings, tile):
    """A size with what fills up the tiles that TPUs have."""
    return -(-size // tile) * tile if settings.compiler == "fusing" else size


def _computes_again(config, settings):
    """Whether no block keeps the weights of its attention."""
    plain = not (
        config.talking_heads
        or config.differential_attention
        or config.relative_position_bias
    )
    attention = settings.attention
    return attention == "flash" or attention == "recomputed" and plain


def kept_by_class_block(
    config: ViTConfig, settings: Settings, tokens: int
) -> list[Kept]:
    """What a block keeps of which the class token alone asks.

    A block of class attention, or the last one of a model whose head reads
    the class token. What is kept of the single token is not counted.
    """
    stream, compute = tokens * config.hidden_dim, PRECISIONS[settings.precision]
    kept = [Kept("keys, values", 2 * stream, compute, True)]
    if settings.compiler == "fusing":
        return [*kept, Kept("input of the normalisation", stream, compute)]
    return [
        *kept,
        Kept("input of the normalisation", stream, FLOAT32),
        Kept("normalised", stream, compute),
    ]


def activation_bytes(
    config: ViTConfig, settings: Settings, rematerialize: bool, shares: int
) -> float:
    """Bytes per image on a device: what is kept, and what a block works on.

    Devices divide what attention and MLPs compute into so many shares.
    """
    tokens, dim = num_tokens(config), config.hidden_dim
    compute = PRECISIONS[settings.precision]

    def held(kept):
        return sum(
            one.values * one.size / (shares if one.divided else 1)
            for one in kept
        )

    asking = last_queries(config) or tokens
    block = last = held(kept_by_block(config, settings))
    if asking < tokens:
        last = held(kept_by_class_block(config, settings, tokens))
        # The gradients of queries, keys and values, as heads and as columns:
        # XLA for processors writes them out while all the rest is kept.
        if settings.compiler == "keeping":
            last += 6 * tokens * dim * compute / shares
    # Embedded patches; the last normalisation; class attention.
    norm = compute if settings.compiler == "fusing" else 3 * FLOAT32 + compute
    ends = (tokens * compute + asking * norm) * dim
    ends += config.class_attention_layers * held(
        kept_by_class_block(config, settings, tokens + 1)
    )
    is_fused = settings.attention == "flash"
    scores = 0 if is_fused else config.num_heads * tokens
    # The gradients of the stream and of the widest tensors beside it.
    widest = max(3 * dim + scores, config.mlp_dim) / shares
    working = tokens * (dim + widest) * compute
    if rematerialize:
        inputs = config.num_layers * tokens * dim * compute
        return inputs + block + ends + working
    return (config.num_layers - 1) * block + last + ends + working


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
        freed, so the larger of the two counts.
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
        config: the `ViTConfig` of the model that is trained.
        settings: how it is trained.
        layout: "data_parallel", "fsdp" or "model_parallel".
        devices: int, how many train together.
        parts: int, how many parts the batch is cut into, one after the other.
        rematerialize: bool, whether only the inputs of blocks are kept.

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
