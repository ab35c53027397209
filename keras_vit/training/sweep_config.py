"""What a sweep compares."""

import dataclasses

__all__ = ["SweepConfig"]


@dataclasses.dataclass(frozen=True)
class SweepConfig:
    """What recipes/sweep.py compares; the other recipes do not read it."""

    learning_rates: tuple[float, ...] = ()
    """Learning rates to choose from on the validation images."""

    train_split: str | None = None
    """Split of tensorflow-datasets that the best one is trained on: the whole
    training set, as "train"; null adds the validation images to the training
    images of data that is cut by fractions."""

    def __post_init__(self):
        if not all(rate > 0 for rate in self.learning_rates):
            raise ValueError(
                "learning_rates must be above 0. Received: "
                f"learning_rates={self.learning_rates!r}."
            )
