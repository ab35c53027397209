"""Batches: their sizes, their waits, and whose answer is whose."""

import asyncio
import threading

import numpy as np
import pytest

from keras_vit.serving.service import Batcher, ModelError, batch_sizes


def image(number):
    return np.full((2, 2), number, "float32")


class Doubling:
    """Twice the number of each image; notes sizes and threads."""

    def __init__(self, broken=()):
        self.sizes, self.threads, self.broken = [], set(), broken

    def __call__(self, images):
        self.sizes.append(len(images))
        self.threads.add(threading.current_thread().name)
        numbers = images[:, 0, 0]
        for number in numbers:
            if number in self.broken:
                raise ValueError(f"broken: {number:g}")
        return 2 * numbers[:, None]


def answers(compute, numbers, largest=4, wait=0.01, observed=None) -> list:
    """What a batcher answers for images that come at the same time."""

    async def ask():
        observe = (lambda *found: None) if observed is None else observed
        batcher = Batcher(compute, largest, wait, observe)
        collecting = asyncio.create_task(batcher.run())
        try:
            return await asyncio.gather(
                *(batcher.submit(image(x)) for x in numbers),
                return_exceptions=True,
            )
        finally:
            collecting.cancel()
            batcher.close()

    return asyncio.run(ask())


@pytest.mark.parametrize(
    ("largest", "sizes"),
    [
        (1, (1,)),
        (2, (1, 2)),
        (3, (1, 2, 3)),
        (8, (1, 2, 4, 8)),
        (12, (1, 2, 4, 8, 12)),
    ],
)
def test_sizes_are_powers_of_two_and_the_largest(largest, sizes):
    assert batch_sizes(largest) == sizes


@pytest.mark.parametrize("count", range(1, 14))
def test_each_image_gets_its_own_answer(count):
    compute, found = Doubling(), []
    rows = answers(compute, range(count), observed=lambda *x: found.append(x))
    assert [float(row[0]) for row in rows] == [2 * i for i in range(count)]
    assert set(compute.sizes) <= {1, 2, 4}
    assert len(compute.sizes) == -(-count // 4)
    assert sum(images for images, _ in found) == count
    assert compute.threads == {"model"}


def test_the_broken_image_of_a_batch_alone_has_no_answer():
    rows = answers(Doubling(broken={2}), range(6))
    assert isinstance(rows[2], ModelError)
    assert str(rows[2]) == "ValueError: broken: 2"
    others = [float(row[0]) for i, row in enumerate(rows) if i != 2]
    assert others == [0, 2, 6, 8, 10]


def test_a_full_batch_does_not_wait():
    async def ask():
        batcher = Batcher(Doubling(), 2, 3600)
        collecting = asyncio.create_task(batcher.run())
        async with asyncio.timeout(60):
            await asyncio.gather(*(batcher.submit(image(x)) for x in range(4)))
        collecting.cancel()
        batcher.close()

    asyncio.run(ask())


def test_an_image_waits_for_others_no_longer_than_it_is_told():
    compute = Doubling()

    async def ask():
        batcher = Batcher(compute, 64, 0.2)
        collecting = asyncio.create_task(batcher.run())
        loop = asyncio.get_running_loop()
        start = loop.time()
        first = asyncio.create_task(batcher.submit(image(1)))
        await asyncio.sleep(0.1)
        assert batcher.waiting == 1
        await asyncio.gather(first, batcher.submit(image(2)))
        assert 0.2 <= loop.time() - start < 60
        assert batcher.waiting == 0
        collecting.cancel()
        batcher.close()

    asyncio.run(ask())
    assert compute.sizes == [2]


def test_who_is_cancelled_is_not_computed():
    compute = Doubling()

    async def ask():
        batcher = Batcher(compute, 64, 0.2)
        collecting = asyncio.create_task(batcher.run())
        tasks = [
            asyncio.create_task(batcher.submit(image(x))) for x in range(8)
        ]
        await asyncio.sleep(0.05)
        for task in tasks[1:]:
            task.cancel()
        assert float((await tasks[0])[0]) == 0
        collecting.cancel()
        batcher.close()

    asyncio.run(ask())
    assert compute.sizes == [1]


def test_warming_up_computes_every_size():
    compute = Doubling()
    batcher = Batcher(compute, 12, 0)
    batcher.warm_up(image(1))
    batcher.close()
    assert compute.sizes == [1, 2, 4, 8, 12]
