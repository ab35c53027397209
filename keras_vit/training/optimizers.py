"""The optimizer of a recipe, made of Keras's parts."""

import dataclasses

import keras

from keras_vit.models.base import check_choice
from keras_vit.training.checks import check_not_negative, check_positive

__all__ = ["OptimizerConfig", "make_optimizer"]

MOMENTUM = 0.9  # arXiv:2010.11929, section 4.1: fine-tuning with SGD.

OPTIMIZERS = {
    "adamw": keras.optimizers.AdamW,
    "sgd": lambda *args, **kwargs: keras.optimizers.SGD(
        *args, momentum=MOMENTUM, **kwargs
    ),
}


@dataclasses.dataclass(frozen=True)
class OptimizerConfig:
    """How the weights are changed: linear warm-up, then cosine to zero."""

    name: str = "adamw"
    """"adamw", or "sgd" with momentum 0.9 as the paper fine-tunes."""

    learning_rate: float = 2e-3
    """Highest learning rate, reached at the end of the warm-up."""

    weight_decay: float = 0.01
    """Decoupled decay of the kernels, times the learning rate at each step;
    biases, normalisations and position embeddings have none."""

    warmup_epochs: float = 5.0
    """Length of the warm-up."""

    clip_norm: float = 1.0
    """Largest norm of all gradients together; larger ones are scaled down."""

    def __post_init__(self):
        check_choice("optimizer", self.name, OPTIMIZERS)
        check_positive(self, "learning_rate", "clip_norm")
        check_not_negative(self, "weight_decay", "warmup_epochs")


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
