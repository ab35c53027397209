"""Images of many requests, computed together in one thread.

Axes: B images of a batch, K classes.
"""

import asyncio
import concurrent.futures
import functools
import queue
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

__all__ = ["Batcher", "ModelError", "batch_sizes"]


LAST_BATCH = 10  # seconds in which a batch ends after the server did


class ModelError(RuntimeError):
    """The model failed; its cause is what it raised."""


class Waiting(NamedTuple):
    """An image that waits, since when, and where its answer goes."""

    image: np.ndarray
    since: float  # seconds of the event loop
    answer: asyncio.Future


def batch_sizes(largest: int) -> tuple[int, ...]:
    """Return the sizes that batches are padded to: powers of 2, `largest`.

    Each size is another program to compile, so there are few of them.

    Example:
        >>> batch_sizes(12)
        (1, 2, 4, 8, 12)
    """
    powers = (2**i for i in range(largest.bit_length()))
    return (*(x for x in powers if x < largest), largest)


class Batcher:
    """Collects images up to a batch or a time, and computes them in one thread.

    Keras's models are not made for several threads; all that uses the model
    runs in the one of `alone`.

    Args:
        compute: from an array (B, ...) to the answers, an array (B, K).
        largest: int, B at most.
        wait: float, seconds that the first image waits for others.
        observe: called with the images, before filling up, and the seconds of
            each batch.

    Example:
        >>> batcher = Batcher(classifier.probabilities, 8, 0.005)
        >>> collecting = asyncio.create_task(batcher.run())
        >>> row = await batcher.submit(image)  # (K,)
    """

    def __init__(
        self,
        compute: Callable[[np.ndarray], np.ndarray],
        largest: int,
        wait: float,
        observe: Callable[[int, float], None] = lambda images, seconds: None,
    ):
        self.sizes = batch_sizes(largest)
        self._compute, self._wait, self._observe = compute, wait, observe
        self._queue: asyncio.Queue[Waiting] = asyncio.Queue()
        self._gathered = 0  # of the next batch, out of the queue
        self._thread = _ThreadOfTheModel()

    @property
    def waiting(self) -> int:
        """How many images wait for a batch."""
        return self._queue.qsize() + self._gathered

    async def submit(self, image: np.ndarray) -> np.ndarray:
        """Return the row (K,) of an image; a cancelled call leaves the queue.

        Raises:
            ModelError: when `compute` fails for this image.
        """
        loop = asyncio.get_running_loop()
        answer = loop.create_future()
        self._queue.put_nowait(Waiting(image, loop.time(), answer))
        return await answer

    async def alone(self, function: Callable, *arguments: Any) -> Any:
        """Call a function between two batches and return its result.

        Raises:
            ModelError: when the function fails.
        """
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(
            self._thread, _computed, function, *arguments
        )

    async def run(self) -> None:
        """Answers, until it is cancelled."""
        while True:
            batch = await self._collected()
            if batch:
                await self._answer(batch)

    def close(self) -> None:
        """Drops what waits for the thread, and ends it after its batch."""
        self._thread.shutdown(cancel_futures=True)

    def warm_up(self, image: np.ndarray) -> None:
        """Computes a batch of each size, which compiles its program."""
        for size in self.sizes:
            self._compute(np.stack([image] * size))

    async def _collected(self) -> list[Waiting]:
        batch: list[Waiting] = []
        until = None
        while len(batch) < self.sizes[-1]:
            try:
                async with asyncio.timeout_at(until):
                    item = await self._queue.get()
            except TimeoutError:
                break
            if not item.answer.done():
                batch.append(item)
                until = batch[0].since + self._wait
            self._gathered = len(batch)
        self._gathered = 0
        return [item for item in batch if not item.answer.done()]

    async def _answer(self, batch):
        start = time.perf_counter()
        images = [item.image for item in batch]
        rows = await self.alone(self._rows, images)
        self._observe(len(batch), time.perf_counter() - start)
        for item, row in zip(batch, rows, strict=True):
            if item.answer.done():
                continue
            if isinstance(row, ModelError):
                item.answer.set_exception(row)
            else:
                item.answer.set_result(row)

    def _rows(self, images: Sequence[np.ndarray]) -> list:
        """Compute an answer or an error for each image."""
        size = next(size for size in self.sizes if size >= len(images))
        filled = [*images, *[images[0]] * (size - len(images))]
        try:
            rows = _computed(lambda: self._compute(np.stack(filled)))
            return list(rows[: len(images)])
        except ModelError as error:
            if len(images) == 1:
                return [error]
        # One image is the cause: the others get their answers.
        return [row for image in images for row in self._rows([image])]


class _ThreadOfTheModel(concurrent.futures.Executor):
    """A thread that the end of the program does not wait for.

    Python joins those of a ThreadPoolExecutor, though a model may hang.
    """

    def __init__(self):
        self._tasks: queue.SimpleQueue = queue.SimpleQueue()
        self._thread = threading.Thread(
            target=self._work, name="model", daemon=True
        )
        self._thread.start()

    def submit(self, fn, /, *args, **kwargs):
        future = concurrent.futures.Future()
        self._tasks.put((future, functools.partial(fn, *args, **kwargs)))
        return future

    def shutdown(self, wait=True, *, cancel_futures=False):
        while cancel_futures and not self._tasks.empty():
            self._tasks.get()[0].cancel()
        self._tasks.put(None)
        if wait:  # A runtime that computes as its program ends may crash.
            self._thread.join(LAST_BATCH)

    def _work(self):
        while (task := self._tasks.get()) is not None:
            future, function = task
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(function())
                except BaseException as error:
                    future.set_exception(error)


def _computed(function, *arguments):
    """Call a function, whatever it raises: a model may end its thread."""
    try:
        return function(*arguments)
    except BaseException as error:
        raise ModelError(f"{type(error).__name__}: {error}") from error
