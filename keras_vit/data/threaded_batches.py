"""Batches that threads make, some ahead of the one that is needed."""

import functools
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import keras

__all__ = ["ThreadedBatches", "images_per_batch", "in_threads"]

AHEAD = 2  # batches
CHUNK = 8  # Images that a thread reads at a time.


class ThreadedBatches(keras.utils.PyDataset):
    """Batches made by a function of their number, in threads.

    What Keras's `fit`, `evaluate` and `predict` take, on every backend. They
    may be read any number of times, from any one on.

    Args:
        make: function of the number of a batch to the batch, a tuple.
        batch_size: int, images in each.
        num_batches: int; None where there is no end.
        parts: int, smaller batches that each is cut into.

    Attributes:
        batch_size: int, of the smaller ones.

    Example:
        >>> batches = ThreadedBatches(
        ...     lambda i: (np.full(4, i),), batch_size=4, num_batches=3
        ... )
        >>> [int(numbers[0]) for (numbers,) in batches]
        [0, 1, 2]
    """

    def __init__(
        self,
        make: Callable,
        *,
        batch_size: int,
        num_batches: int | None = None,
        parts: int = 1,
    ):
        super().__init__()
        self.batch_size = batch_size // parts
        self._make = make
        self._wholes = num_batches
        self._parts = parts
        self._started: dict[int, Future] = {}
        self._lock = threading.Lock()

    @property
    def num_batches(self) -> int | None:
        """Number of batches, None where there is no end."""
        return None if self._wholes is None else self._wholes * self._parts

    def __len__(self) -> int:
        if self.num_batches is None:
            raise TypeError("There is no end of the batches.")
        return self.num_batches

    def __iter__(self) -> Iterator:
        number = 0
        while self.num_batches is None or number < self.num_batches:
            yield self[number]
            number += 1

    def __getitem__(self, index: int):
        number, part = divmod(index, self._parts)
        batch = self._whole(number).result()
        rows = slice(part * self.batch_size, (part + 1) * self.batch_size)
        if self._parts == 1:
            return batch
        return keras.tree.map_structure(lambda x: x[rows], batch)

    def _whole(self, number):
        wanted = range(number, number + AHEAD + 1)
        if self._wholes is not None:
            wanted = range(number, min(wanted.stop, self._wholes))
        with self._lock:
            for i in self._started.keys() - {*wanted}:
                self._started.pop(i).cancel()
            for i in wanted:
                if i not in self._started:
                    made = _batch_threads().submit(self._make, i)
                    self._started[i] = made
            return self._started[number]

    def map(self, function: Callable) -> "ThreadedBatches":
        """Change each batch by a function of what is in it."""
        return self._changed(lambda i: function(*self._make(i)), self._parts)

    def enumerate(self) -> "ThreadedBatches":
        """Put its number in front of each batch."""
        return self._changed(lambda i: (i, self._make(i)), self._parts)

    def rebatch(self, batch_size: int) -> "ThreadedBatches":
        """Cut each batch into smaller ones, a whole number of them."""
        parts = self.batch_size // batch_size
        return self._changed(self._make, self._parts * parts)

    def _changed(self, make, parts):
        return ThreadedBatches(
            make,
            batch_size=self.batch_size * self._parts,
            num_batches=self._wholes,
            parts=parts,
        )


def images_per_batch(batches) -> int:
    """Return the images in each of some batches; 0 where they do not say.

    Args:
        batches: `ThreadedBatches` or a `tf.data.Dataset`.
    """
    if isinstance(batches, ThreadedBatches):
        return batches.batch_size
    return keras.tree.flatten(batches.element_spec)[0].shape[0] or 0


def in_threads(function: Callable, items: Iterable) -> list:
    """Return the results of a function of each item, in their order."""
    items = list(items)
    chunks = [items[i : i + CHUNK] for i in range(0, len(items), CHUNK)]

    def run(chunk):
        return [function(*item) for item in chunk]

    return [x for part in _image_threads().map(run, chunks) for x in part]


@functools.cache
def _image_threads():
    return ThreadPoolExecutor(os.cpu_count(), thread_name_prefix="images")


# Apart from the others, for which they wait.
@functools.cache
def _batch_threads():
    return ThreadPoolExecutor(AHEAD + 1, thread_name_prefix="batches")
