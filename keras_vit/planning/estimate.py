"""The size, memory and time of a training run, and the layouts that fit.

The time comes from an assumed share of the devices' peak.

Letters: T tokens, D hidden dimension, M MLP dimension, H heads.

Sources: "An Image Is Worth 16x16 Words" (arXiv:2010.11929): Table 2 for
TPUv3-core-days, Table 3 for epochs, Table 6 for exaFLOPs, section 4.1 for the
sizes of the data sets; "Big Transfer" (arXiv:1912.11370), section 3.3, for the
40 epochs of BiT-L. Table 2 has a run of Noisy Student besides, an
EfficientNet that keras_vit does not have.
"""

import dataclasses
import functools
import math
from typing import Any, NamedTuple

from keras_vit.analysis.compute import multiply_adds
from keras_vit.io.checks import (
    PRECISIONS,
    check_at_least,
    check_choice,
    check_kind,
    check_types,
    check_whole,
)
from keras_vit.models import VisionTransformer, ViTConfig
from keras_vit.models.options import STEMS, changed, options_of
from keras_vit.models.resnet import UNITS
from keras_vit.models.vit import last_queries, num_tokens
from keras_vit.planning.devices_table import DEVICES, Machine
from keras_vit.runtime.workarounds import without_values
from keras_vit.sizes import BIT, VIT
from keras_vit.text.tower import TextConfig, TextTransformer

__all__ = [
    "Counts",
    "Duration",
    "FLOAT32",
    "Kept",
    "LAYOUTS",
    "Memory",
    "OPTIMIZERS",
    "PaperRun",
    "Row",
    "Settings",
    "Stack",
    "StepCost",
    "TextMemory",
    "Way",
    "activation_bytes",
    "bit_multiply_adds",
    "count",
    "cost_of",
    "duration",
    "kept_by_block",
    "largest_batch",
    "memory",
    "model_axis",
    "paper_runs",
    "plan",
    "planned_memory",
    "text_memory",
    "training_flops",
    "usable_memory",
    "vit_config",
]

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
    """Of a forward pass on one image or text."""

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


def count(config: ViTConfig | TextConfig) -> Counts:
    """Count the parameters and multiply-adds of a tower of images or texts.

    From the layers of a model without values, of which one block is built, as
    all are alike; the multiply-adds as `keras_vit.analysis.multiply_adds`.

    Raises:
        ValueError: for a hybrid and others that are not planned.

    Example:
        >>> count(vit_config("ViT_B16")).parameters
        86567656
    """
    check_kind(ViTConfig | TextConfig, config=config)
    return _count(config)


@functools.lru_cache(maxsize=256)
def _count(config):
    make = TextTransformer
    if isinstance(config, ViTConfig):
        check_planned(config)
        make = VisionTransformer
    with without_values():
        model = make(dataclasses.replace(config, num_layers=1))
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
    if config.pooling in ("attention", "none") or found:
        shown = "".join(f"{x}={y}, " for x, y in found.items())
        raise ValueError(
            "Vision Transformers without a ResNet or stem, of blocks that are "
            "alike, that classify a class token, a mean or a map are planned. "
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


# Forward; backward for the inputs and for the weights: once each.
PASSES = 3
FLOPS = 2  # in a multiply-add
# ILSVRC2012_img_train.tar: 147,897,477,120 bytes, 1,281,167 images.
JPEG_BYTES = 115_440
FLOAT32 = 4
# Numbers that an optimizer keeps for each parameter; muon one for the matrices
# that it orthogonalises, which depend on the backend, and two for all others.
OPTIMIZERS = {
    **{"adamw": 2, "sgd": 1, "lion": 1, "lamb": 2},
    **{"muon": 2, "schedule_free": 2},
}
ATTENTION = ("explicit", "flash", "recomputed")
COMPILERS = ("keeping", "fusing")


@dataclasses.dataclass(frozen=True)
class Settings:
    """The memory of a training step on each device.

    Args:
        batch: int, images per step on all devices together.
        precision: dtype policy.
        optimizer: "adamw", "sgd" with momentum, "lion", "lamb", "muon" (at
            most) or "schedule_free".
        attention: "explicit" keeps the softmax weights of all heads for the
            backward pass, "flash" computes them again in a fused kernel,
            "recomputed" without one, block by block, as on TPUs.
        compiler: "keeping" keeps for the backward pass what JAX saves, as XLA
            does for processors: an upper bound for others. "fusing" computes
            again what costs no product, as XLA does for TPUs.
        model_axis: int, devices that share a layer under model_parallel; None
            for two where they divide the heads and the MLPs, and else one.
        efficiency: float in (0, 1], the share of the peak that the products
            run at; an assumption.
        method: a `Pretraining`, or None to train with labels.

    Raises:
        ValueError: for unknown names and numbers out of range.
    """

    batch: int = 4096
    precision: str = "mixed_bfloat16"
    optimizer: str = "adamw"
    attention: str = "explicit"
    compiler: str = "keeping"
    model_axis: int | None = None
    efficiency: float = 0.4
    method: Any = None

    def __post_init__(self):
        check_types(self)
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


@dataclasses.dataclass(frozen=True)
class Stack:
    """Blocks that views of an image pass in a step."""

    config: ViTConfig
    tokens: int
    """Of a view."""
    views: int = 1
    """Of an image."""
    is_trained: bool = True
    is_decoder: bool = False
    """Whether devices do not divide it, and nothing of it is recomputed."""


@dataclasses.dataclass(frozen=True)
class StepCost:
    """What a training step has of an image, and of the model."""

    stacks: tuple[Stack, ...]
    trained: Counts
    """Of what gets gradients: parameters, and products of a forward pass."""
    frozen: Counts | None = None
    """Likewise of a teacher, which computes forward alone."""
    kept_bytes: int = 0
    """Outside of the blocks, until the backward pass."""
    numbers: int = 0
    """In float32, that an image is given as."""
    is_whole: bool = False
    """Whether a batch is never cut into parts."""


def cost_of(config: ViTConfig, method: Any = None) -> StepCost:
    """Count a step of a method, a `Pretraining` or None for one with labels.

    Example:
        >>> cost_of(vit_config("ViT_B16")).numbers
        150528
    """
    check_kind(ViTConfig, config=config)
    if method is not None and not hasattr(method, "cost"):
        raise ValueError(
            "A method is a keras_vit.planning.Pretraining, or None for a step "
            f"with labels. Received: method={method!r}."
        )
    return _cost_of(config, method)


@functools.lru_cache(maxsize=256)
def _cost_of(config, method):
    if method is not None:
        return method.cost(config)
    return StepCost(
        (Stack(config, num_tokens(config)),),
        count(config),
        numbers=pixels_of(config),
    )


def pixels_of(config: ViTConfig) -> int:
    """Return the numbers of an image."""
    return math.prod(config.image_size) * config.channels


class Kept(NamedTuple):
    """A tensor that stays in memory until the backward pass reaches it."""

    name: str
    values: int
    """Numbers for one image."""
    size: int
    """Bytes of each."""
    divided: bool = False
    """Whether model_parallel divides it."""


def kept_by_block(
    config: ViTConfig, settings: Settings, tokens: int | None = None
) -> list[Kept]:
    """Count what one block keeps for one image, of all tokens or so many.

    "keeping" compilers keep what JAX saves
    (`jax.ad_checkpoint.print_saved_residuals`), less the products inside
    GELU. "fusing" compilers keep what goes into each product, once, and
    compute normalisations and GELU again where they are used.
    """
    tokens = _tiled(tokens or num_tokens(config), settings, 8)
    dim = config.hidden_dim
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
    """Round a size up to the tiles that TPUs have."""
    return -(-size // tile) * tile if settings.compiler == "fusing" else size


def _computes_again(config, settings):
    """Return whether no block keeps the weights of its attention."""
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
    """Count what a block keeps that only the class token uses.

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
    cost: StepCost, settings: Settings, rematerialize: bool, shares: int
) -> float:
    """Count the bytes per image on a device, kept or worked on.

    Devices divide what attention and MLPs compute into so many shares. What is
    worked on is that of one stack at a time; a teacher keeps nothing.
    """
    total, most = float(cost.kept_bytes), 0.0
    for stack in cost.stacks:
        parts = 1 if stack.is_decoder else shares
        again = rematerialize and not stack.is_decoder
        kept, working = _stack_bytes(stack, settings, again, parts)
        total += stack.views * kept
        most = max(most, stack.views * working)
    return total + most


def _stack_bytes(stack, settings, rematerialize, shares) -> tuple[float, float]:
    """Return the bytes that a view keeps, and what is worked on."""
    config, tokens = stack.config, stack.tokens
    dim, compute = config.hidden_dim, PRECISIONS[settings.precision]

    def held(kept):
        return sum(
            one.values * one.size / (shares if one.divided else 1)
            for one in kept
        )

    asking = last_queries(config) or tokens
    block = last = held(kept_by_block(config, settings, tokens))
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
    if config.pooling == "map":  # Its keys and values, and their gradients.
        ends += 4 * tokens * dim * compute
    is_fused = settings.attention == "flash"
    scores = 0 if is_fused else config.num_heads * tokens
    # The gradients of the stream and of the widest tensors beside it.
    widest = max(3 * dim + scores, config.mlp_dim) / shares
    working = tokens * (dim + widest) * compute
    if not stack.is_trained:
        return 0, block / 2  # Its attention or its MLP, one after the other.
    if rematerialize:
        inputs = config.num_layers * tokens * dim * compute
        return inputs + ends, block + working
    return (config.num_layers - 1) * block + last + ends, working


class TextMemory(NamedTuple):
    """Bytes that a tower of texts takes to embed, in float32."""

    weights: int
    working: int
    """Of all texts at a time, in the block that takes the most."""


def text_memory(config: TextConfig, texts: int = 256) -> TextMemory:
    """Estimate the memory of a tower of texts that is not trained.

    Recipes train the tower of images alone; that of texts embeds the names of
    the classes once, 256 sentences at a time.

    Args:
        config: of the tower.
        texts: int, how many at a time.

    Raises:
        ValueError: for a number of texts below 1.

    Example:
        >>> text_memory(TextConfig()).weights // 4  # CLIP B
        63428096
    """
    check_kind(TextConfig, config=config)
    check_whole(1, texts=texts)
    tokens, dim = config.context_length, config.hidden_dim
    # Queries, keys, values and scores, or the MLP before and after GELU.
    attention = 3 * dim + config.num_heads * tokens
    widest = max(attention, 2 * config.mlp_dim)
    return TextMemory(
        FLOAT32 * count(config).parameters,
        FLOAT32 * texts * tokens * (dim + widest),
    )


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
    check_kind(ViTConfig, config=config)
    check_kind(Settings, settings=settings)
    check_kind(bool, rematerialize=rematerialize)
    split = _split(config, settings, layout, devices)
    cost = cost_of(config, settings.method)
    compute = PRECISIONS[settings.precision]
    images = images_per_device(settings, split, parts)
    trained, frozen = (
        _held_bytes(counts, split) for counts in (cost.trained, cost.frozen)
    )
    slots = OPTIMIZERS[settings.optimizer] + (parts > 1)
    held = trained + frozen
    copies = held * compute / FLOAT32 if compute < FLOAT32 else 0
    # The block at hand, the next, and the gradient of one are whole.
    gathered = cost.trained.block_parameters * (2 * compute + FLOAT32)
    per_image = activation_bytes(
        cost, settings, rematerialize, split.activations
    )
    return Memory(
        weights=round(held + copies + gathered * (layout == "fsdp")),
        optimizer=round(trained * slots),
        gradients=round(trained),
        activations=round(per_image * images),
        images=FLOAT32 * cost.numbers * images,
    )


def _held_bytes(counts: Counts | None, split) -> float:
    """Return the bytes of weights on a device."""
    if counts is None:
        return 0.0
    rest = counts.parameters - counts.kernel_parameters
    return FLOAT32 * (counts.kernel_parameters / split.kernels + rest)


class Split(NamedTuple):
    """Into how many shares something is cut."""

    batch: int
    kernels: int = 1
    """The kernels of attention and MLPs."""
    activations: int = 1
    """What attention and MLPs compute."""


def _split(config, settings, layout, devices):
    check_choice("layout", layout, LAYOUTS)
    check_whole(1, devices=devices)
    if layout == "data_parallel":
        return Split(devices)
    if layout == "fsdp":
        return Split(devices, kernels=devices)
    axis = model_axis(config, settings)
    for stack in cost_of(config, settings.method).stacks:
        heads, mlp_dim = stack.config.num_heads, stack.config.mlp_dim
        uneven = heads % axis or mlp_dim % axis
        if axis < 2 or devices % axis or uneven and not stack.is_decoder:
            raise ValueError(
                f"model_axis={axis} must be at least 2 and divide the "
                f"{devices} devices, the {heads} heads and the MLPs' {mlp_dim}."
            )
    return Split(devices // axis, kernels=axis, activations=axis)


def model_axis(config: ViTConfig, settings: Settings) -> int:
    """Return the devices that share a layer under model_parallel.

    Example:
        >>> model_axis(vit_config("ViT_Ti16"), Settings())  # of 3 heads
        1
    """
    if settings.model_axis is not None:
        return settings.model_axis
    return 1 if config.num_heads % 2 or config.mlp_dim % 2 else 2


def images_per_device(settings: Settings, split: Split, parts: int = 1) -> int:
    """Return the images on a device at a time; refuse uneven shares."""
    check_whole(1, parts=parts)
    shares = split.batch * parts
    if settings.batch % shares:
        raise ValueError(
            f"A batch of {settings.batch} cannot be cut into {shares} equal "
            f"shares ({split.batch} devices, {parts} parts). Choose a "
            f"multiple of {shares}."
        )
    return settings.batch // shares


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


def training_flops(
    counts: Counts, rematerialize: bool = False, frozen: Counts | None = None
) -> int:
    """Floating-point operations to train on one image.

    Rematerialisation adds another forward pass of the blocks; what is frozen
    has one alone.

    Example:
        >>> counts = count(vit_config("ViT_B16"))
        >>> round(training_flops(counts) / 1e9)  # Table 6: 224e18 in 7 epochs
        105
    """
    again = counts.block_multiply_adds if rematerialize else 0
    again += 0 if frozen is None else frozen.multiply_adds
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
    check_kind(ViTConfig, config=config)
    check_kind(Settings, settings=settings)
    check_kind(Machine, machine=machine)
    check_kind(bool, rematerialize=rematerialize)
    cost = cost_of(config, settings.method)
    counts = cost.trained
    flops = training_flops(counts, rematerialize, cost.frozen) * settings.batch
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
    the model axis is 1 or does not divide the devices.

    Raises:
        ValueError: for a batch that the devices do not divide, or a model
            that is not planned.

    Example:
        >>> rows = plan(vit_config("ViT_B16"), Settings(), machine("v5e-8"))
        >>> [row.parts for row in rows if row.layout == "fsdp"]
        [8, 1]
    """
    check_kind(ViTConfig, config=config)
    check_kind(Settings, settings=settings)
    check_kind(Machine, machine=machine)
    return [
        _row(config, settings, machine, Way(layout, rematerialize))
        for layout in layouts_of(config, settings, machine)
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


def layouts_of(
    config: ViTConfig, settings: Settings, machine: Machine
) -> tuple[str, ...]:
    """Return the layouts that a machine has devices for."""
    if machine.count == 1:
        return LAYOUTS[:1]
    axis = model_axis(config, settings)
    if axis == 1 or machine.count % axis:
        return LAYOUTS[:2]
    return LAYOUTS


def usable_memory(machine: Machine) -> float:
    """Return the bytes of a device that a plan may fill."""
    return USABLE * machine.device.memory_gb * 1e9


def planned_memory(
    config: ViTConfig,
    settings: Settings,
    machine: Machine,
    way: Way | Row,
    parts: int = 1,
) -> Memory:
    """Return the memory of a row, with its batch cut into so many parts."""
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
    """Return the largest batch that fits at once, on all devices together.

    Args:
        config: of the model.
        settings: their batch does not count.
        machine: what the batch must fit.
        way: a row, or its layout and whether it rematerializes.
        ratio: what the memory is multiplied by before it is compared.

    Returns:
        int, 0 where one image a replica is too many. From eight images a
        replica on it is a multiple of eight, as the tiles of TPUs are.

    Raises:
        ValueError: for a way that is none, or a ratio that is not above 0.

    Example:
        >>> way = Way("data_parallel", False)
        >>> config, devices = vit_config("ViT_B16"), machine("h200x8")
        >>> largest_batch(config, Settings(), devices, way)
        6656
    """
    check_kind(Way | Row, way=way)
    check_kind(ViTConfig, config=config)
    check_kind(Settings, settings=settings)
    check_kind(Machine, machine=machine)
    check_kind(float, ratio=ratio)
    if ratio <= 0:
        raise ValueError(f"ratio must be above 0. Received: ratio={ratio}.")
    replicas = replicas_of(config, settings, machine, way)
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


def replicas_of(
    config: ViTConfig, settings: Settings, machine: Machine, way: Way | Row
) -> int:
    """Return the shares that the devices cut a batch into."""
    is_shared = way.layout == "model_parallel"
    return machine.count // (model_axis(config, settings) if is_shared else 1)


def _parts(config, settings, machine, way):
    usable = usable_memory(machine)
    local = settings.batch // replicas_of(config, settings, machine, way)
    is_whole = cost_of(config, settings.method).is_whole
    for parts in range(1, 2 if is_whole else local + 1):
        if local % parts:
            continue
        needed = planned_memory(config, settings, machine, way, parts)
        if needed.total <= usable:
            return parts
    return None
