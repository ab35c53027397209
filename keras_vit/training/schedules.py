"""Learning rates: Keras's schedules after a warm-up, before a cool-down."""

import keras
from keras import ops

__all__ = ["InverseSquareRoot", "WarmupCooldown", "make_schedule"]

Schedule = keras.optimizers.schedules.LearningRateSchedule


@keras.saving.register_keras_serializable("keras_vit")
class InverseSquareRoot(Schedule):
    """Falls as the inverse square root of the step.

    "Scaling Vision Transformers" (arXiv:2106.04560), section 3.5; the form
    is that of big_vision, rate / sqrt(1 + step / timescale).

    Args:
        initial_learning_rate: float, at step 0.
        timescale: int, the step at which it is down to 1 / sqrt(2).

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
    """Another schedule with linear warm-up before and cool-down at the end.

    The warm-up of `create_learning_rate_schedule` in
    google-research/vision_transformer, which the other schedule's first rate
    is multiplied with; the cool-down of "Scaling Vision Transformers"
    (arXiv:2106.04560), figure 7.

    Args:
        schedule: a Keras schedule; its step 0 is the end of the warm-up.
        warmup_steps: int.
        cooldown_steps: int.
        total_steps: int, the step at which the cool-down reaches 0.
        accumulation_steps: int, calls of the optimizer for one step.

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


# From the config and the steps after the warm-up to what happens in them.
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


def make_schedule(
    config,
    *,
    total_steps: int,
    steps_per_epoch: int = 1,
    accumulation_steps: int = 1,
) -> WarmupCooldown:
    """Makes the schedule of an `OptimizerConfig`.

    Args:
        config: an `OptimizerConfig`.
        total_steps: int, updates of the weights in the whole training.
        steps_per_epoch: int, updates in a pass over the data, the unit of
            `config.warmup_epochs`.
        accumulation_steps: int, calls of the optimizer for one update.

    Returns:
        A Keras schedule.

    Raises:
        ValueError: when warm-up and cool-down leave nothing of the training.

    Example:
        >>> config = OptimizerConfig(learning_rate=0.03, warmup_steps=500)
        >>> float(make_schedule(config, total_steps=20_000)(500))
        0.03
    """
    warmup = config.warmup_steps
    if warmup is None:
        warmup = round(config.warmup_epochs * steps_per_epoch)
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
