"""Some images of a data set, however it is read."""

import dataclasses
from typing import Any

import numpy as np

__all__ = ["Chosen"]


@dataclasses.dataclass(frozen=True)
class Chosen:
    """Some of the examples, read in their order, to be evaluated on.

    Args:
        examples: an `Examples` or a `StreamedExamples`.
        numbers: integer array, which of them.

    Example:
        >>> evaluation_batches(Chosen(digits.train, [0, 5]), image_size=8,
        ...                    channels=1, batch_size=2)
    """

    examples: Any
    numbers: np.ndarray

    def __len__(self) -> int:
        return len(self.numbers)

    def __getattr__(self, name: str):
        return getattr(self.examples, name)

    def in_order(self):
        """As `Examples.in_order`, of the chosen images alone."""
        import tensorflow as tf

        chosen = np.zeros(len(self.examples), bool)
        chosen[self.numbers] = True
        is_chosen = tf.constant(chosen)
        return self.examples.in_order().filter(
            lambda record: tf.gather(is_chosen, record["example"])
        )
