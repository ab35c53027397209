"""Shuffled, augmented training batches, each a function of its number.

Axes: B images of a batch, H and W height and width, C channels, K classes.
"""

import keras
import numpy as np

from keras_vit.data.augment import RandomAffine
from keras_vit.data.dataset import Split

__all__ = ["TrainingBatches"]


class TrainingBatches(keras.utils.PyDataset):
    """The batches of all epochs in one sequence.

    Batch i depends on i and the seed alone, so that a run which continues at
    batch i sees what an uninterrupted run sees. Each epoch has its own order
    and skips the images that fill no batch at its end. Keras cuts the
    sequence into epochs where `fit` is told `steps_per_epoch`; `shuffle=False`
    keeps it from shuffling the epochs among each other.

    Args:
        split: the `Split` to draw from.
        num_classes: int, K.
        batch_size: int, B, at most the number of images.
        epochs: int.
        seed: non-negative int.
        augment: a `RandomAffine`, None for images as they are.

    Attributes:
        steps_per_epoch: int, batches in an epoch.

    Raises:
        ValueError: when the images do not fill one batch.

    Example:
        >>> batches = TrainingBatches(
        ...     split, 10, batch_size=64, epochs=100, seed=0
        ... )
        >>> model.fit(
        ...     batches,
        ...     epochs=100,
        ...     steps_per_epoch=batches.steps_per_epoch,
        ...     shuffle=False,
        ... )
    """

    def __init__(
        self,
        split: Split,
        num_classes: int,
        *,
        batch_size: int,
        epochs: int,
        seed: int,
        augment: RandomAffine | None = None,
    ):
        super().__init__()
        if batch_size > len(split):
            raise ValueError(
                f"batch_size={batch_size} is more than the {len(split)} "
                "training images, so that they fill no batch. Choose a "
                "smaller batch_size."
            )
        self.split = split
        self.num_classes = num_classes
        self.batch_size = batch_size
        self.epochs = epochs
        self.seed = seed
        self.augment = augment or RandomAffine()
        self.steps_per_epoch = len(split) // batch_size

    def __len__(self) -> int:
        return self.epochs * self.steps_per_epoch

    def __getitem__(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        """Makes one batch.

        Args:
            index: int, counted from the first batch of the first epoch.

        Returns:
            Images, uint8 (B, H, W, C), and one-hot labels, float32 (B, K).
        """
        epoch, step = divmod(index, self.steps_per_epoch)
        # Numbers of images are below len(split): the order draws from a
        # stream that no image's augmentation draws from.
        key = (self.seed, epoch, len(self.split))
        order = np.random.default_rng(key).permutation(len(self.split))
        examples = order[step * self.batch_size :][: self.batch_size]
        images = self.augment(
            self.split.images[examples], examples, seed=self.seed, epoch=epoch
        )
        labels = self.split.labels[examples]
        return images, np.eye(self.num_classes, dtype="float32")[labels]
