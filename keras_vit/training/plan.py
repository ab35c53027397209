"""When a run checkpoints, evaluates, logs and ends, counted in steps.

A step is an update of the weights. It takes one batch, or several smaller ones
whose gradients are accumulated; Keras's `fit` counts those. What `fit` calls an
epoch is here the stretch from one checkpoint to the next.
"""

import dataclasses
import math

__all__ = ["Plan"]


@dataclasses.dataclass(frozen=True)
class Plan:
    """The lengths of a run.

    Args:
        total: int, steps of the whole run.
        steps_per_epoch: int, steps in one pass over the data.
        batch_size: int, images in a step.
        checkpoint_every: int, steps from one checkpoint to the next.
        evaluate_every: int, steps from one evaluation to the next, a multiple
            of checkpoint_every. There is one more at the end.
        log_every: int, steps between two lines of metrics.
        batches_per_step: int, parts that the batch of a step is cut into.
        batches_per_call: int, batches in one call of the compiled step.

    Raises:
        ValueError: when the calls do not fill the run or its stretches.

    Example:
        >>> Plan(total=50, steps_per_epoch=20, batch_size=8,
        ...      checkpoint_every=20, evaluate_every=40).evaluations
        [2, 3]
    """

    total: int
    steps_per_epoch: int
    batch_size: int
    checkpoint_every: int
    evaluate_every: int
    log_every: int = 50
    batches_per_step: int = 1
    batches_per_call: int = 1

    def __post_init__(self):
        for name in ("total", "checkpoint_every"):
            batches = getattr(self, name) * self.batches_per_step
            if batches % self.batches_per_call:
                raise ValueError(
                    f"steps_per_execution={self.batches_per_call} must divide "
                    f"the batches of the whole run and of the stretch to each "
                    f"checkpoint. Received: {batches} batches ({name}). Set "
                    "training.steps and training.checkpoint_every_steps to "
                    "multiples of it."
                )

    @property
    def stretches(self) -> int:
        """Number of checkpoints of the whole run."""
        return math.ceil(self.total / self.checkpoint_every)

    @property
    def batches(self) -> int:
        """Batches of a stretch; the last one may be shorter."""
        return self.checkpoint_every * self.batches_per_step

    @property
    def evaluations(self) -> list[int]:
        """Numbers of the stretches, counted from 1, that end with one."""
        every = self.evaluate_every // self.checkpoint_every
        return [
            number
            for number in range(1, self.stretches + 1)
            if number % every == 0 or number == self.stretches
        ]

    def is_last_call(self, stretch: int, batch: int) -> bool:
        """Whether the run ends with the call that begins at a batch.

        Args:
            stretch: int, counted from 0.
            batch: int, in the stretch, counted from 0.
        """
        done = stretch * self.batches + batch + self.batches_per_call
        return done >= self.total * self.batches_per_step

    def step(self, stretch: int, batches: int) -> int:
        """Steps that are done after some batches of a stretch.

        Args:
            stretch: int, counted from 0.
            batches: int, batches of it that are done.
        """
        return (
            stretch * self.checkpoint_every + batches // self.batches_per_step
        )
