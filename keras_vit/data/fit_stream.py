"""Batches of whatever else Keras's `fit` takes.

A machine without TensorFlow trains from arrays, grain or torch loaders.
"""

import copy
import itertools
import sys
from collections.abc import Iterator

import keras
import numpy as np

from keras_vit.data.batches import Share

__all__ = ["FitStream"]


class FitStream:
    """Batches of a data set of `fit`, from any step on.

    What each batch holds is the data set's own: a resumed run sees the same
    batches if it gives the same ones each time that it is read from its
    start. Batches before the step are read again, except of a `PyDataset`,
    which is asked for the ones needed.

    Args:
        data: a `tf.data.Dataset`, a `keras.utils.PyDataset`, a grain or torch
            `DataLoader`, or any iterable that can be read more than once, of
            batches (images, labels): images (B, H, W, C) in [0, 255], labels
            (B, K), one-hot. Or arrays (images, labels) and a `batch_size`.
        batch_size: int, of arrays.
        steps_per_epoch: int, batches in an epoch; the length of the data if
            None.

    Attributes:
        steps_per_epoch: int.

    Raises:
        ValueError: when the data has no length and none is given.

    Example:
        >>> loader = torch.utils.data.DataLoader(images_and_labels, 64)
        >>> stream = FitStream(loader)
        >>> model.fit(
        ...     stream.from_step(0),
        ...     steps_per_epoch=stream.steps_per_epoch,
        ...     shuffle=False,
        ... )
    """

    def __init__(
        self,
        data,
        *,
        batch_size: int | None = None,
        steps_per_epoch: int | None = None,
    ):
        if isinstance(data, tuple):
            data = _Arrays(*data, batch_size=batch_size)
        self.data = data
        self.steps_per_epoch = steps_per_epoch or _length(data)
        self.share = Share()

    def from_step(self, step: int):
        """The batches from one on.

        Args:
            step: int, counted from the first batch of the first epoch.

        Returns:
            What `fit` takes, without end.
        """
        if isinstance(self.data, keras.utils.PyDataset):
            return _From(self.data, step, self.steps_per_epoch, self.share)
        if _is_tensorflow_dataset(self.data):
            batches = self.data.take(self.steps_per_epoch).repeat().skip(step)
            return self._of_dataset(batches)
        # Of Python's iterators, fit takes generators of tuples only.
        batches = itertools.islice(self._epochs(), step, None)
        return (_taken(batch, self.share) for batch in batches)

    def shared(self, share: Share) -> "FitStream":
        """The same batches, of which a process takes a share.

        All of each batch is read; its rows are taken then.

        Args:
            share: a `Share`.

        Returns:
            A `FitStream`.
        """
        other = copy.copy(self)
        other.share = share
        return other

    def names_of(self, step: int) -> list[str]:
        """Names a batch, for messages.

        Args:
            step: int.

        Returns:
            list of one str: which images these are, the data set knows.
        """
        epoch, inside = divmod(step, self.steps_per_epoch)
        return [f"batch {inside} of epoch {epoch}"]

    def _of_dataset(self, batches):
        if self.share.count == 1:
            return batches
        import tensorflow as tf

        sizes = {x.shape[0] for x in keras.tree.flatten(batches.element_spec)}
        if len(sizes) != 1 or None in sizes:
            raise ValueError(
                "Several processes share batches of one known size. Received: "
                f"batches of {batches.element_spec}. Use drop_remainder=True."
            )
        rows = self.share.rows(sizes.pop())
        return batches.map(
            lambda *batch: tuple(tf.gather(x, rows) for x in batch)
        )

    def _epochs(self) -> Iterator:
        while True:
            batches = itertools.islice(iter(self.data), self.steps_per_epoch)
            count = 0
            for batch in batches:
                count += 1
                yield tuple(batch)
            if count < self.steps_per_epoch:
                raise ValueError(
                    f"The data has {count} batches where steps_per_epoch="
                    f"{self.steps_per_epoch} are expected. Give the number "
                    "of batches, and data that can be read more than once."
                )


def _taken(batch, share):
    if share.count == 1:
        return batch
    return tuple(values[share.rows(len(values))] for values in batch)


def _is_tensorflow_dataset(data) -> bool:
    # Who has one has imported TensorFlow; others need not have it.
    tf = sys.modules.get("tensorflow")
    return tf is not None and isinstance(data, tf.data.Dataset)


def _length(data) -> int:
    try:
        length = len(data)
    except TypeError:
        length = 0
    if length < 1:
        raise ValueError(
            f"{type(data).__name__} does not say how many batches it has: "
            "give steps_per_epoch."
        )
    return length


class _Arrays(keras.utils.PyDataset):
    """Batches of arrays in their order."""

    def __init__(self, images, labels, *, batch_size):
        super().__init__()
        if not batch_size or not 1 <= batch_size <= len(images):
            raise ValueError(
                f"Arrays need a batch_size from 1 to {len(images)}, the "
                f"number of images. Received: batch_size={batch_size}."
            )
        self.images, self.labels = np.asarray(images), np.asarray(labels)
        self.batch_size = batch_size

    def __len__(self):
        return len(self.images) // self.batch_size

    def __getitem__(self, index):
        rows = slice(index * self.batch_size, (index + 1) * self.batch_size)
        return self.images[rows], self.labels[rows]


class _From(keras.utils.PyDataset):
    """A PyDataset from a step on, its epochs one after the other."""

    def __init__(self, data, step, steps_per_epoch, share):
        super().__init__(
            workers=data.workers,
            use_multiprocessing=data.use_multiprocessing,
            max_queue_size=data.max_queue_size,
        )
        self.data = data
        self.step = step
        self.per_epoch = steps_per_epoch
        self.share = share

    @property
    def num_batches(self):
        return None

    def __getitem__(self, index):
        batch = self.data[(self.step + index) % self.per_epoch]
        return _taken(batch, self.share)
