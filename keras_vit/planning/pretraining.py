"""What a training step without labels costs besides that of its encoder.

The decoder of a masked autoencoder, the crops, heads and teacher of DINO, and
the teacher of a distillation, whose training is in `keras_vit.training.tasks`.

Letters: N patches, K of them visible, T tokens, D hidden dimension, G crops
that a teacher sees, V all of them.
"""

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import keras

from keras_vit.analysis.compute import layer_multiply_adds
from keras_vit.models import VisionTransformer, ViTConfig
from keras_vit.models.vit import num_tokens
from keras_vit.planning.estimate import (
    FLOAT32,
    Counts,
    Stack,
    StepCost,
    count,
    pixels_of,
)
from keras_vit.runtime.workarounds import without_values
from keras_vit.training.tasks import (
    DINOConfig,
    DistillConfig,
    MAEConfig,
    autoencoder,
    dino,
    dino_network,
)
from keras_vit.training.tasks.dino import DRAWS, OutputLoss
from keras_vit.training.tasks.distillation import (
    DistillationLoss,
    distillation_network,
)
from keras_vit.training.tasks.mae import LOSSES, check_model

__all__ = ["METHODS", "Pretraining", "decoder_config", "read_method"]


@dataclasses.dataclass(frozen=True)
class Pretraining:
    """A method without labels, in `Settings`.

    Args:
        options: a `MAEConfig`, `DINOConfig` or `DistillConfig`.
        teacher: config of the teacher of a distillation.

    Raises:
        ValueError: for a distillation without a teacher.

    Example:
        >>> config = vit_config("ViT_B16", num_classes=0)
        >>> settings = Settings(batch=8, method=Pretraining(MAEConfig()))
        >>> round(duration(config, settings, machine("h200x8")).flops / 1e12, 2)
        0.46
    """

    options: MAEConfig | DINOConfig | DistillConfig
    teacher: ViTConfig | None = None

    def __post_init__(self):
        if isinstance(self.options, DistillConfig) and self.teacher is None:
            raise ValueError(
                "A distillation needs the config of a teacher. Received: "
                "teacher=None. Give the command --options teacher=ViT_B16, or "
                "another name."
            )

    def cost(self, config: ViTConfig) -> StepCost:
        """Count a step of a model of this config, see `cost_of`."""
        return METHODS[self.name].cost(config, self)

    def encoder(self, config: ViTConfig) -> ViTConfig:
        """Return the config of the model that is trained: of what classes."""
        if getattr(self.options, "logits", 0):
            return config
        return dataclasses.replace(config, num_classes=0, representation_dim=0)

    @property
    def name(self) -> str:
        """Return the key of `METHODS`."""
        kinds = {method.options: name for name, method in METHODS.items()}
        return kinds[type(self.options)]


@functools.lru_cache(maxsize=64)
def block_products(config: ViTConfig, tokens: int) -> int:
    """Return the multiply-adds of a block of a model on so many tokens."""
    with without_values():
        model = VisionTransformer(dataclasses.replace(config, num_layers=1))
    shape = (tokens, config.hidden_dim)
    return layer_multiply_adds(model.get_layer("block_0"), shape)


def decoder_config(config: ViTConfig, options: MAEConfig) -> ViTConfig:
    """Return the config of a model with the blocks of a decoder."""
    full = options.filled()
    return ViTConfig(
        image_size=config.image_size,
        patch_size=config.patch_size,
        channels=config.channels,
        hidden_dim=full.decoder_dim,
        num_layers=full.decoder_layers,
        num_heads=full.decoder_heads,
        mlp_dim=full.decoder_mlp_dim,
        num_classes=0,
        pooling="mean",
    )


def dense(inputs: int, units: int) -> int:
    """Return the parameters of a dense layer with biases."""
    return (inputs + 1) * units


def mae_cost(config: ViTConfig, method: Pretraining) -> StepCost:
    """Count a masked autoencoder: K tokens in the encoder, N in the decoder."""
    options: Any = method.options
    full = options.filled()
    check_model(config, options)
    config = dataclasses.replace(method.encoder(config), pooling="mean")
    encoder, pixels = count(config), pixels_of(config)
    dim, tokens, patches = (
        config.hidden_dim,
        num_tokens(config),
        patches_of(config),
    )
    given = 2 * pixels + 2 * patches  # Image, target, order and weights.
    if full.kind == "simmim":
        last = dense(dim, pixels // patches)
        trained = more(encoder, dim + last, pixels * dim)
        stacks = (Stack(config, tokens),)
        return StepCost(stacks, trained, None, FLOAT32 * pixels, given)
    visible = (
        tokens - patches + full.num_visible(config.image_size, config.grid)
    )
    decoder = decoder_config(config, options)
    width, of_decoder = decoder.hidden_dim, count(decoder)
    blocks = config.num_layers * block_products(config, visible)
    embed = encoder.multiply_adds - encoder.block_multiply_adds
    decoded = decoder.num_layers * block_products(decoder, tokens)
    trained = Counts(
        parameters=encoder.parameters
        + dense(dim, width)
        + width  # The mask token.
        + decoder.num_layers * of_decoder.block_parameters
        + 2 * width
        + dense(width, pixels // patches),
        block_parameters=encoder.block_parameters,
        kernel_parameters=encoder.kernel_parameters,
        multiply_adds=embed
        + blocks
        + visible * dim * width
        + decoded
        + pixels * width,
        block_multiply_adds=blocks,
    )
    stacks = Stack(config, visible), Stack(decoder, tokens, is_decoder=True)
    return StepCost(stacks, trained, None, FLOAT32 * pixels, given)


def patches_of(config: ViTConfig) -> int:
    """Return N."""
    return math.prod(config.grid)


def more(counts: Counts, parameters: int, products: int) -> Counts:
    """Return counts with those of other layers."""
    return dataclasses.replace(
        counts,
        parameters=counts.parameters + parameters,
        multiply_adds=counts.multiply_adds + products,
    )


def dino_cost(config: ViTConfig, method: Pretraining) -> StepCost:
    """Count DINO: V crops through a student, G of them through a teacher."""
    options: Any = method.options
    dino.check_model(config, options)
    large, small = options.global_crops, options.local_crops
    config = method.encoder(config)
    if options.ibot_weight:
        of_large = dataclasses.replace(config, pooling="mean")
    else:
        of_large = config
    side = options.side_of_local(config)
    of_small = dataclasses.replace(config, image_size=(side, side))
    dim, channels = config.hidden_dim, config.channels
    sizes = (dim, options.head_dim, options.head_dim, options.bottleneck_dim)
    pairs = list(zip(sizes, sizes[1:], strict=False))
    kernel = options.bottleneck_dim * options.out_dim
    head = sum(dense(*pair) for pair in pairs) + kernel
    head += 0 if options.norm_last_layer else options.out_dim
    products = sum(x * y for x, y in pairs) + kernel
    heads = 1 + (options.ibot_weight > 0 and options.ibot_head == "own")
    # Features and hidden patches that a head sees.
    places = large * options.most_hidden(patches_of(config))
    places *= options.ibot_weight > 0
    known, seen = large + places, large + small + places
    encoder = count(of_large)
    local = count(of_small).multiply_adds
    student = Counts(
        parameters=encoder.parameters + heads * head + dim * (places > 0),
        block_parameters=encoder.block_parameters,
        kernel_parameters=encoder.kernel_parameters,
        multiply_adds=large * encoder.multiply_adds
        + small * local
        + seen * products,
        block_multiply_adds=large * encoder.block_multiply_adds
        + small * count(of_small).block_multiply_adds,
    )
    teacher = dataclasses.replace(
        encoder,
        parameters=encoder.parameters + heads * head,
        multiply_adds=large * encoder.multiply_adds + known * products,
    )
    side_of_image = dino.canvas_side(config, options)
    crops = channels * (large * math.prod(config.image_size) + small * side**2)
    # Of the student's heads: what goes into each product, before and after
    # GELU; of both networks the logits and their softmax.
    hidden = dim + 4 * options.head_dim + 2 * options.bottleneck_dim
    kept = crops + seen * hidden + 2 * (seen + known) * options.out_dim
    return StepCost(
        (
            Stack(of_large, num_tokens(config), large),
            *[Stack(of_small, num_tokens(of_small), small)] * (small > 0),
            Stack(of_large, num_tokens(config), large, is_trained=False),
        ),
        student,
        teacher,
        FLOAT32 * kept,
        channels * side_of_image**2 + (large + small) * len(DRAWS),
        is_whole=True,
    )


def distill_cost(config: ViTConfig, method: Pretraining) -> StepCost:
    """Count a distillation: a student, and forward its teacher."""
    options: Any = method.options
    of_teacher: Any = method.teacher
    config = method.encoder(config)
    if options.patches:
        config = dataclasses.replace(config, pooling="mean")
    dim, taught = config.hidden_dim, of_teacher.hidden_dim
    # Of the pooled features and of patches, each with a projection.
    places = [1] * (options.features > 0)
    places += [patches_of(config)] * (options.patches > 0)
    student, teacher = count(config), count(of_teacher)
    trained = more(
        student,
        len(places) * dense(dim, taught),
        sum(places) * dim * taught,
    )
    # Projected features and those of the teacher, of unit length.
    kept = sum(places) * (dim + 3 * taught)
    return StepCost(
        (
            Stack(config, num_tokens(config)),
            Stack(of_teacher, num_tokens(of_teacher), is_trained=False),
        ),
        trained,
        teacher,
        FLOAT32 * kept,
        pixels_of(config),
    )


def read_method(fields: dict) -> Pretraining:
    """Return a `Pretraining` of its name and fields, as in JSON."""
    teacher = fields["teacher"] and ViTConfig(**fields["teacher"])
    options = METHODS[fields["name"]].options(**fields["options"])
    return Pretraining(options, teacher)


class Method(NamedTuple):
    """What is planned of a method."""

    options: type
    """Of a `Pretraining`."""
    cost: Callable[[ViTConfig, Pretraining], StepCost]
    network: Callable[[VisionTransformer, Pretraining], keras.Model]
    loss: Callable[[Pretraining], keras.losses.Loss]
    answers: Callable[[keras.Model], tuple]
    """Shapes for an image of what a network is trained with."""


def taught_by(model, method) -> keras.Model:
    """Build the network of a distillation, of a model and a teacher."""
    teacher = VisionTransformer(method.teacher, name="taught_by")
    return distillation_network(model, teacher, method.options)


METHODS = {
    "mae": Method(
        MAEConfig,
        mae_cost,
        lambda model, method: autoencoder(model, method.options),
        lambda method: LOSSES[method.options.kind](),
        lambda network: (
            network.output_shape[1:],
            (network.output_shape[1], 1),
        ),
    ),
    "dino": Method(
        DINOConfig,
        dino_cost,
        lambda model, method: dino_network(model, method.options),
        lambda method: OutputLoss(),
        lambda network: (network.output_shape[1:],),
    ),
    "distill": Method(
        DistillConfig,
        distill_cost,
        taught_by,
        lambda method: DistillationLoss(method.options),
        lambda network: ((max(network.output_shape[-1] // 2, 1),),),
    ),
}
