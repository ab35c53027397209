"""The optimizer of a recipe, made of Keras's parts."""

import dataclasses

import keras

from keras_vit.models.base import check_choice, check_rates
from keras_vit.training.checks import check_not_negative, check_positive

__all__ = ["OptimizerConfig", "make_optimizer"]

SCHEDULES = ("cosine", "linear", "constant", "rsqrt")

OPTIMIZERS = {
    "adamw": keras.optimizers.AdamW,
    "sgd": lambda *args, **kwargs: keras.optimizers.SGD(
        *args, momentum=0.9, **kwargs
    ),
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

    learning_rate_grid: tuple[float, ...] = ()
    """Learning rates that recipes/sweep.py compares on the validation
    images."""

    def __post_init__(self):
        check_choice("optimizer", self.name, OPTIMIZERS)
        check_choice("schedule", self.schedule, SCHEDULES)
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
    config: OptimizerConfig, variables, *, epochs: int, steps_per_epoch: int
) -> keras.optimizers.Optimizer:
    """Makes an optimizer with linear warm-up and cosine decay to zero.

    Args:
        config: an `OptimizerConfig`.
        variables: the trainable variables of a model.
        epochs: int, length of the training.
        steps_per_epoch: int.

    Returns:
        A Keras optimizer that decays only the variables named "kernel".

    Example:
        >>> optimizer = make_optimizer(
        ...     OptimizerConfig(),
        ...     model.trainable_variables,
        ...     epochs=100,
        ...     steps_per_epoch=19,
        ... )
    """
    optimizer = OPTIMIZERS[config.name](
        _schedule(config, epochs, steps_per_epoch),
        weight_decay=config.weight_decay,
        global_clipnorm=config.clip_norm,
    )
    optimizer.exclude_from_weight_decay(
        var_list=[x for x in variables if x.name != "kernel"]
    )
    return optimizer


def _schedule(config, epochs, steps_per_epoch):
    warmup = round(config.warmup_epochs * steps_per_epoch)
    return keras.optimizers.schedules.CosineDecay(
        initial_learning_rate=0.0 if warmup else config.learning_rate,
        decay_steps=epochs * steps_per_epoch - warmup,  # after the warm-up
        warmup_target=config.learning_rate if warmup else None,
        warmup_steps=warmup,
    )
