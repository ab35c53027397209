"""The optimizer of a recipe, and its learning rate at each step."""

import dataclasses
import inspect

import keras
from keras import ops

from keras_vit.io.checks import check_choice
from keras_vit.runtime.workarounds import (
    fused,
    schedule_free,
    with_layer_rates,
)
from keras_vit.training.config import OptimizerConfig
from keras_vit.training.defaults import SCRATCH

__all__ = [
    "InverseSquareRoot",
    "WarmupCooldown",
    "layer_depths",
    "make_optimizer",
    "make_schedule",
]

Schedule = keras.optimizers.schedules.LearningRateSchedule
WARMUP_EPOCHS = 5  # where none are given and the training has at least twice


@keras.saving.register_keras_serializable("keras_vit")
class InverseSquareRoot(Schedule):
    """A schedule that falls as the inverse square root of the step.

    "Scaling Vision Transformers" (arXiv:2106.04560), section 3.5; the form
    is that of big_vision, rate / sqrt(1 + step / timescale).

    Args:
        initial_learning_rate: rate at step 0.
        timescale: the step at which it is down to 1 / sqrt(2).

    Example:
        >>> float(InverseSquareRoot(0.8, timescale=100)(300))
        0.4
    """

    def __init__(self, initial_learning_rate: float, timescale: int):
        self.initial_learning_rate = initial_learning_rate
        self.timescale = timescale

    def __call__(self, step):
        step = ops.cast(step, "float32")
        return self.initial_learning_rate / ops.sqrt(1 + step / self.timescale)

    def get_config(self):
        return {
            "initial_learning_rate": self.initial_learning_rate,
            "timescale": self.timescale,
        }


@keras.saving.register_keras_serializable("keras_vit")
class WarmupCooldown(Schedule):
    """Adds a linear warm-up and cool-down to another schedule.

    The warm-up of `create_learning_rate_schedule` in
    google-research/vision_transformer, a factor of the other schedule's first
    rate; the cool-down of "Scaling Vision Transformers" (arXiv:2106.04560),
    figure 7.

    Args:
        schedule: a Keras schedule; its step 0 is the end of the warm-up.
        total_steps: the step at which the cool-down reaches 0.
        warmup_steps: length of the warm-up.
        cooldown_steps: length of the cool-down.
        accumulation_steps: calls of the optimizer per step.

    Example:
        >>> cosine = keras.optimizers.schedules.CosineDecay(0.1, 90)
        >>> rate = WarmupCooldown(cosine, warmup_steps=10, total_steps=100)
        >>> float(rate(10))
        0.1
    """

    def __init__(
        self,
        schedule,
        *,
        total_steps: int,
        warmup_steps: int = 0,
        cooldown_steps: int = 0,
        accumulation_steps: int = 1,
    ):
        self.schedule = schedule
        self.total_steps = total_steps
        self.warmup_steps = warmup_steps
        self.cooldown_steps = cooldown_steps
        self.accumulation_steps = accumulation_steps

    def __call__(self, step):
        # Keras's optimizers count the calls that accumulate gradients, too.
        step = ops.floor_divide(step, self.accumulation_steps)
        step = ops.cast(step, "float32")
        rate = self.schedule(ops.maximum(step - self.warmup_steps, 0.0))
        if self.warmup_steps:
            rate *= ops.minimum(step / self.warmup_steps, 1.0)
        if self.cooldown_steps:
            left = (self.total_steps - step) / self.cooldown_steps
            rate *= ops.clip(left, 0.0, 1.0)
        return rate

    def get_config(self):
        return {
            "schedule": keras.optimizers.schedules.serialize(self.schedule),
            "total_steps": self.total_steps,
            "warmup_steps": self.warmup_steps,
            "cooldown_steps": self.cooldown_steps,
            "accumulation_steps": self.accumulation_steps,
        }

    @classmethod
    def from_config(cls, config):
        schedule = keras.optimizers.schedules.deserialize(config["schedule"])
        return cls(**{**config, "schedule": schedule})


# From the config and the steps after the warm-up to their schedule.
SHAPES = {
    "cosine": lambda config, steps: keras.optimizers.schedules.CosineDecay(
        config.learning_rate, steps
    ),
    "linear": lambda config, steps: keras.optimizers.schedules.PolynomialDecay(
        config.learning_rate, steps, config.end_learning_rate
    ),
    "constant": lambda config, steps: (
        keras.optimizers.schedules.PolynomialDecay(
            config.learning_rate, steps, config.learning_rate
        )
    ),
    "rsqrt": lambda config, steps: InverseSquareRoot(
        config.learning_rate, config.timescale
    ),
}


OPTIMIZERS = {
    "adamw": keras.optimizers.AdamW,
    "sgd": keras.optimizers.SGD,
    "lion": keras.optimizers.Lion,
    "lamb": keras.optimizers.Lamb,
    "muon": keras.optimizers.Muon,
    **({"schedule_free": schedule_free()} if schedule_free() else {}),
}
if "rms_rate" not in inspect.signature(OPTIMIZERS["muon"]).parameters:
    del OPTIMIZERS["muon"]  # That of Keras 3.12 has steps of other sizes.
RULES = {
    # The epsilon of the original's Adam; Keras's own is 1e-7.
    "adamw": lambda config: {
        "beta_1": config.beta_1,
        "beta_2": config.beta_2,
        "epsilon": 1e-8,
    },
    "sgd": lambda config: {"momentum": config.momentum},
    # arXiv:2302.06675; beta_2 is Keras's 0.99.
    "lion": lambda config: {"beta_1": config.beta_1},
    # arXiv:1904.00962.
    "lamb": lambda config: {
        "beta_1": config.beta_1,
        "beta_2": config.beta_2,
        "epsilon": 1e-6,
    },
    # arXiv:2502.16982: matrices of the MLPs; all else, as the heads' kernels
    # of three axes, and the classification layer take steps of AdamW.
    "muon": lambda config: {
        "adam_beta_1": config.beta_1,
        "adam_beta_2": config.beta_2,
        "adam_weight_decay": config.weight_decay,
        "epsilon": 1e-8,
        "exclude_layers": ["predictions"],
    },
    # arXiv:2405.15682.
    "schedule_free": lambda config: {
        "beta_1": config.beta_1,
        "beta_2": config.beta_2,
        "epsilon": 1e-8,
    },
}


def make_optimizer(
    config: OptimizerConfig,
    model,
    *,
    total_steps: int,
    steps_per_epoch: int = 1,
    training=None,
) -> keras.optimizers.Optimizer:
    """Make the optimizer of a model.

    Args:
        config: an `OptimizerConfig`: the kind, the rates, the schedule; null
            fields are as from scratch.
        model: a Keras model; layers that are not to be trained are frozen.
        total_steps: updates of the weights in the whole training.
        steps_per_epoch: updates in a pass over the data, the unit of
            `config.warmup_epochs`.
        training: a `TrainingConfig` with gradient accumulation or a moving
            average of the weights, None for neither.

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
    # Keras 3.12 has not all of them.
    check_choice("optimizer", config.name, OPTIMIZERS)
    config = _from_scratch(config)
    variables = model.trainable_variables
    accumulated = training.accumulation_steps if training else 1
    averaged = training.ema_decay if training else 0.0
    if config.name == "schedule_free" and (averaged or accumulated > 1):
        raise ValueError(
            "schedule_free averages the weights itself, over all calls. "
            f"Received: training.ema_decay={averaged}, "
            f"training.accumulation_steps={accumulated}. Leave them out."
        )
    rule = RULES[config.name](config)
    if config.beta_2 is None:  # Then it is Keras's own, see `with_defaults`.
        rule = {k: x for k, x in rule.items() if not k.endswith("beta_2")}
    options = {
        **rule,
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
    # On torch, the call returns an object of another class.
    kind = fused(type(OPTIMIZERS[config.name](**options)))
    rates = {}
    decay = config.layer_decay
    if decay is not None and decay != 1:
        depths = layer_depths(model)
        rates = {x: decay**depth for x, depth in depths.items()}
    if rates or (averaged and accumulated > 1):
        kind = with_layer_rates(kind, rates)
    optimizer = kind(**options)
    optimizer.exclude_from_weight_decay(
        var_list=[x for x in variables if x.name != "kernel"]
    )
    return optimizer


def make_schedule(
    config,
    *,
    total_steps: int,
    steps_per_epoch: int = 1,
    accumulation_steps: int = 1,
) -> WarmupCooldown:
    """Make the schedule of an `OptimizerConfig`; see `make_optimizer`.

    Example:
        >>> config = OptimizerConfig(learning_rate=0.03, warmup_steps=500)
        >>> float(make_schedule(config, total_steps=20_000)(500))
        0.03
    """
    config = _from_scratch(config)
    warmup = _warmup(config, total_steps, steps_per_epoch)
    if warmup + config.cooldown_steps >= total_steps:
        raise ValueError(
            "The warm-up and the cool-down must be shorter than the training. "
            f"Received: a warm-up of {warmup} steps (optimizer.warmup_steps, "
            f"optimizer.warmup_epochs), a cool-down of {config.cooldown_steps} "
            f"(optimizer.cooldown_steps), a training of {total_steps}."
        )
    return WarmupCooldown(
        SHAPES[config.schedule](config, total_steps - warmup),
        total_steps=total_steps,
        warmup_steps=warmup,
        cooldown_steps=config.cooldown_steps,
        accumulation_steps=accumulation_steps,
    )


def _from_scratch(config):
    """Return a config without null rates, for who has no recipe."""
    known = {**SCRATCH["optimizer"], "layer_decay": SCRATCH["layer_decay"]}
    return dataclasses.replace(
        config,
        **{k: x for k, x in known.items() if getattr(config, k) is None},
    )


def _warmup(config, total_steps, steps_per_epoch):
    """Return the updates in the warm-up."""
    if config.warmup_steps is not None:
        return config.warmup_steps
    if config.warmup_epochs is not None:
        return round(config.warmup_epochs * steps_per_epoch)
    usual = WARMUP_EPOCHS * steps_per_epoch
    return max(min(usual, (total_steps - config.cooldown_steps) // 2), 0)


def layer_depths(model) -> dict[str, int]:
    """Count the blocks between each weight and the classification layer.

    As in "BEiT" (arXiv:2106.08254), appendix B: 0 for the classification
    layer, pooling and the last normalisation, 1 for the last block, and one
    more than the first block for the patches and what is added to them.

    Returns:
        Path of a trainable variable to its depth.

    Raises:
        ValueError: when the model has no layers block_0, block_1, ...

    Example:
        >>> layer_depths(model)["patch_embed/kernel"]
        13
    """
    names = [layer.name for layer in model.layers]
    blocks = [name for name in names if name.startswith("block_")]
    if not blocks:
        raise ValueError(
            "layer_decay counts the blocks of a Vision Transformer or Mixer. "
            f"Received: the model {model.name!r}, which has none. Use "
            "layer_decay=1."
        )
    first = names.index(blocks[0])
    depths = {}
    for place, layer in enumerate(model.layers):
        # A network may have other layers in between.
        depth = sum(name.startswith("block_") for name in names[place:])
        for variable in layer.trainable_variables:
            depths[variable.path] = depth + (place < first)
    return depths
