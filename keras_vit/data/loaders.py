"""Training batches from tf.data, PyDataset, grain, torch, or arrays.

Except for tf.data, none of them needs TensorFlow.
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
    """Training batches from anything that Keras's `fit` takes.

    The data set itself decides what each batch holds: a resumed run sees the
    same batches if the data set gives the same ones each time that it is read
    from its start. Batches before the step are read again, except of a
    `PyDataset`, which is asked for the ones needed.

    Args:
        data: a `tf.data.Dataset`, a `keras.utils.PyDataset`, a grain or torch
            `DataLoader`, or any iterable that can be read more than once, of
            batches (images, labels): images (B, H, W, C) in [0, 255], labels
            (B, K), one-hot. Or arrays (images, labels) and a `batch_size`.
        batch_size: int, of arrays.
        steps_per_epoch: int, batches in an epoch; the length of the data if
            None.

    Attributes:
        steps_per_epoch: int, batches in an epoch.

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
        self.steps_per_epoch = steps_per_epoch or _num_batches(data)
        self.share = Share()

    def from_step(self, step: int):
        """Return the batches from one on, without end, as `fit` takes them.

        Args:
            step: int, counted from the first batch of the first epoch.
        """
        if isinstance(self.data, keras.utils.PyDataset):
            return _EndlessPyDataset(
                self.data, step, self.steps_per_epoch, self.share
            )
        if _is_tensorflow_dataset(self.data):
            batches = self.data.take(self.steps_per_epoch).repeat().skip(step)
            return self._share_of_tf_data(batches)
        # Of Python's iterators, fit takes generators of tuples only.
        batches = itertools.islice(self._epochs(), step, None)
        return (_share_of(batch, self.share) for batch in batches)

    def shared(self, share: Share) -> "FitStream":
        """Return the share of one process; each still reads whole batches."""
        other = copy.copy(self)
        other.share = share
        return other

    def names_of(self, step: int) -> list[str]:
        """Names a batch, for messages; its images have no names."""
        epoch, inside = divmod(step, self.steps_per_epoch)
        return [f"batch {inside} of epoch {epoch}"]

    def _share_of_tf_data(self, batches):
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


def _share_of(batch, share):
    if share.count == 1:
        return batch
    return tuple(values[share.rows(len(values))] for values in batch)


def _is_tensorflow_dataset(data) -> bool:
    # Who has one has imported TensorFlow; others need not have it.
    tf = sys.modules.get("tensorflow")
    return tf is not None and isinstance(data, tf.data.Dataset)


def _num_batches(data) -> int:
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
    """Batches of arrays, in their order."""

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


class _EndlessPyDataset(keras.utils.PyDataset):
    """The batches of a PyDataset from a step on, epoch after epoch."""

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
        return _share_of(batch, self.share)
