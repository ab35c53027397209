"""The optimizer of a recipe, made of Keras's parts."""

import dataclasses

import keras

from keras_vit.models.base import check_choice, check_rates
from keras_vit.training.checks import check_not_negative, check_positive
from keras_vit.training.schedules import SHAPES, make_schedule
from keras_vit.training.update_rules import layer_depths, with_layer_rates

__all__ = ["OptimizerConfig", "make_optimizer"]

OPTIMIZERS = {"adamw": keras.optimizers.AdamW, "sgd": keras.optimizers.SGD}
RULES = {
    # The epsilon of the original's Adam; Keras's own is 1e-7.
    "adamw": lambda config: {
        "beta_1": config.beta_1,
        "beta_2": config.beta_2,
        "epsilon": 1e-8,
    },
    "sgd": lambda config: {"momentum": config.momentum},
}


@dataclasses.dataclass(frozen=True)
class OptimizerConfig:
    """How the weights are changed, and how fast at which step."""

    name: str = "adamw"
    """"adamw", or "sgd" with momentum as the paper fine-tunes."""

    learning_rate: float = 2e-3
    """Highest learning rate, reached at the end of the warm-up."""

    schedule: str = "cosine"
    """What follows the linear warm-up: "cosine" to 0, "linear" to
    end_learning_rate, "constant", or "rsqrt", the inverse square root."""

    end_learning_rate: float = 1e-5
    """Learning rate that the linear schedule ends at."""

    timescale: int = 10_000
    """Steps after the warm-up in which the rsqrt schedule falls to
    1 / sqrt(2)."""

    warmup_epochs: float = 5.0
    """Length of the warm-up."""

    warmup_steps: int | None = None
    """Length of the warm-up in steps; takes the place of warmup_epochs."""

    cooldown_steps: int = 0
    """Steps at the end in which the learning rate falls linearly to 0."""

    weight_decay: float = 0.01
    """Decoupled decay of the kernels, times the learning rate at each step;
    biases, normalisations and position embeddings have none."""

    clip_norm: float | None = 1.0
    """Largest norm of all gradients together; larger ones are scaled down.
    null clips nothing."""

    momentum: float = 0.9
    """Momentum of sgd."""

    beta_1: float = 0.9
    """Decay of the average of gradients of adamw."""

    beta_2: float = 0.999
    """Decay of the average of squared gradients of adamw."""

    layer_decay: float = 1.0
    """Factor of the learning rate from each block to the one below it; 1
    trains all layers alike. The classification layer has the full rate."""

    def __post_init__(self):
        check_choice("optimizer", self.name, OPTIMIZERS)
        check_choice("schedule", self.schedule, SHAPES)
        check_positive(
            self, "learning_rate", "clip_norm", "timescale", "layer_decay"
        )
        check_not_negative(
            self,
            "weight_decay",
            "warmup_epochs",
            "warmup_steps",
            "cooldown_steps",
            "end_learning_rate",
        )
        check_rates(self, "momentum", "beta_1", "beta_2")


def make_optimizer(
    config: OptimizerConfig,
    model,
    *,
    total_steps: int,
    steps_per_epoch: int = 1,
    training=None,
) -> keras.optimizers.Optimizer:
    """Makes the optimizer of a model.

    Args:
        config: an `OptimizerConfig`.
        model: a Keras model, the layers that are not to be trained frozen.
        total_steps: int, updates of the weights in the whole training.
        steps_per_epoch: int, updates in a pass over the data.
        training: the `TrainingConfig` that asks for gradient accumulation or
            a moving average of the weights, None for neither.

    Returns:
        A Keras optimizer that decays only the variables named "kernel".

    Raises:
        ValueError: when warm-up and cool-down leave nothing of the training,
            or layer_decay is for a model without blocks.

    Example:
        >>> optimizer = make_optimizer(
        ...     OptimizerConfig(name="sgd", warmup_steps=500),
        ...     keras_vit.ViT_B16(classes=10),
        ...     total_steps=10_000,
        ... )
    """
    variables = model.trainable_variables
    accumulated = training.accumulation_steps if training else 1
    averaged = training.ema_decay if training else 0.0
    options = {
        **RULES[config.name](config),
        "learning_rate": make_schedule(
            config,
            total_steps=total_steps,
            steps_per_epoch=steps_per_epoch,
            accumulation_steps=accumulated,
        ),
        "weight_decay": config.weight_decay,
        "global_clipnorm": config.clip_norm,
        "gradient_accumulation_steps": accumulated if accumulated > 1 else None,
        "use_ema": averaged > 0,
        "ema_momentum": averaged,
    }
    # Torch's optimizers are of classes of their own, which the call tells.
    kind = type(OPTIMIZERS[config.name](**options))
    rates = {}
    if config.layer_decay != 1:
        depths = layer_depths(model)
        rates = {x: config.layer_decay**depth for x, depth in depths.items()}
    if rates or (averaged and accumulated > 1):
        kind = with_layer_rates(kind, rates)
    optimizer = kind(**options)
    optimizer.exclude_from_weight_decay(
        var_list=[x for x in variables if x.name != "kernel"]
    )
    return optimizer
