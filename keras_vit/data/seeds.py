"""Random numbers and orders that depend on what they are for, without state.

A draw is keyed by the seed of the run, its purpose, the epoch and the number
of the image (or of the batch). What happens to an image therefore depends
neither on its batch nor on earlier draws, and a resumed run sees what an
uninterrupted run sees.
"""

import hashlib
import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

__all__ = [
    "LANES",
    "PURPOSES",
    "balanced_order",
    "grouped_order",
    "key",
    "order",
    "philox",
    "random_bits",
    "random_words",
    "seeded_order",
    "uniform",
]

# Changing a number here changes every run. A purpose without a number needs
# none: see `_stream`.
PURPOSES = {
    "crop": 0,
    "flip": 1,
    "affine": 2,
    "rand_augment": 3,
    "mixup": 4,
    "cutmix": 5,
    "random_erasing": 6,
    "corruption": 7,
}
MAX_PURPOSES = 64
# Images of an epoch that have keys of their own: 1.1e12.
EXAMPLE_BITS = 40
WORD = 2**32 - 1
MANTISSA = 2**23 - 1  # The bits of a word that make a float32 in [0, 1).
SCRAMBLE = (0x3EC8F720, 0x02461E29)  # TensorFlow's key for the seeds
# Into how many rows of its own images a batch is cut, where images are read in
# groups: more processes than that read some groups more than once.
LANES = 64
FEW = 32  # words up to which Python is faster than NumPy


def key(purpose: str, seed: int, epoch, example) -> Any:
    """Make the key of a draw, the seed of a stateless TensorFlow op.

    Args:
        purpose: what it is for, as "flip"; any other text has other draws.
        seed: non-negative int below 2**57, the seed of the run.
        epoch: int, or int64 scalar of TensorFlow, below 2**23.
        example: the same, below 2**40, number of the image or the batch.

    Returns:
        int64 array of shape (2,); a tensor if one is given.
    """
    stream = _stream(purpose, seed)
    numbers = (int, np.integer)
    if isinstance(epoch, numbers) and isinstance(example, numbers):
        return np.array([stream, (epoch << EXAMPLE_BITS) + example], np.int64)
    import tensorflow as tf

    position = tf.cast(epoch, tf.int64) * 2**EXAMPLE_BITS + tf.cast(
        example, tf.int64
    )
    return tf.stack([tf.constant(stream, tf.int64), position])


def _stream(purpose: str, seed: int) -> int:
    """Return the first number of a key, below 2**63."""
    if purpose in PURPOSES:
        return seed * MAX_PURPOSES + PURPOSES[purpose]
    digest = hashlib.sha256(f"{purpose} {seed}".encode()).digest()
    return int.from_bytes(digest[:8], "little") >> 1


def uniform(shape: tuple[int, ...], key):
    """Draw float32 numbers in [0, 1), the same ones on every device.

    A key that is an array makes an array, of the numbers that TensorFlow
    makes of the same key.
    """
    if isinstance(key, np.ndarray):
        bits = random_bits(key, math.prod(shape)) & MANTISSA
        return (bits / (MANTISSA + 1)).astype(np.float32).reshape(shape)
    import tensorflow as tf

    # Unless it is named, the generator depends on the device.
    return tf.random.stateless_uniform(shape, seed=key, alg="philox")


def random_bits(key: np.ndarray, size: int) -> np.ndarray:
    """Draw random words, int64 (size,) in [0, 2**32), as TensorFlow does."""
    if size <= FEW:
        return np.array([*itertools.islice(random_words(key), size)], np.int64)
    blocks = np.arange(-(-size // 4), dtype=np.uint64)
    words = philox((blocks, 0, *_scrambled(key)[2:]), _scrambled(key)[:2])
    return np.stack(words, axis=1).reshape(-1)[:size].astype(np.int64)


def random_words(key: np.ndarray) -> Iterator[int]:
    """Return the same words one at a time, without end."""
    first, second, third, fourth = _scrambled(key)
    for block in itertools.count():
        yield from philox((block, 0, third, fourth), (first, second))


def _scrambled(key) -> tuple:
    """Return what the stateless ops of TensorFlow make of their seeds.

    Two words are the key of Philox, two the upper half of its counter.
    """
    low, high = (int(number) for number in key)
    return philox((low & WORD, low >> 32, high & WORD, high >> 32), SCRAMBLE)


def philox(counter, key) -> tuple:
    """Four random words of a counter of four words and a key of two.

    Philox4x32-10: Salmon et al., "Parallel Random Numbers: As Easy as 1, 2,
    3" (2011), section 3.3. Words are ints, or uint64 arrays of ints, below
    2**32. NumPy's Philox has words of 64 bits.
    """
    one, two, three, four = counter
    left, right = key
    for _ in range(10):
        first, second = one * 0xD2511F53, three * 0xCD9E8D57
        one, two = (second >> 32) ^ two ^ left, second & WORD
        three, four = (first >> 32) ^ four ^ right, first & WORD
        left, right = (left + 0x9E3779B9) & WORD, (right + 0xBB67AE85) & WORD
    return one, two, three, four


def order(seed: int, epoch: int, size: int) -> np.ndarray:
    """Return the order of an epoch: 0 to size - 1, once each, as int64."""
    return np.random.default_rng((seed, epoch, size)).permutation(size)


def balanced_order(
    seed: int, epoch: int, labels: np.ndarray, size: int
) -> np.ndarray:
    """Return the order of an epoch that has each class equally often.

    A class with fewer images than its share has all of them several times, one
    with more has different ones in each epoch.

    Args:
        seed: non-negative int.
        epoch: int.
        labels: int array of shape (N,), the class of each image.
        size: int, length of the epoch; the classes' shares of it differ by one
            at most.

    Returns:
        int64 array of shape (size,) of numbers 0 to N - 1.
    """
    random = np.random.default_rng((seed, epoch, len(labels), size))
    members = [np.flatnonzero(labels == x) for x in np.unique(labels)]
    shares = np.full(len(members), size // len(members))
    more = random.permutation(len(members))[: size % len(members)]
    shares[more] += 1
    found = []
    for images, share in zip(members, shares, strict=True):
        rounds = share // len(images) + 1
        drawn = [random.permutation(images) for _ in range(rounds)]
        found.append(np.concatenate(drawn)[:share])
    return random.permutation(np.concatenate(found))


def grouped_order(
    seed: int, epoch: int, groups: np.ndarray, *, batch_size: int, window: int
) -> np.ndarray:
    """Return the order of an epoch of images that are read in groups.

    The groups are shuffled and cut into lanes; images are shuffled in the
    parts of a lane. Each lane fills rows of its own of every batch, so that a
    process needs few groups besides those of its rows.

    Args:
        seed: non-negative int.
        epoch: int.
        groups: int array of shape (N,), the group of each image.
        batch_size: int, B.
        window: int, images of all lanes that are needed at the same time.

    Returns:
        int64 array of numbers 0 to N - 1, once each, without those that do
        not fill a batch.
    """
    random = np.random.default_rng((seed, epoch, len(groups)))
    _, group = np.unique(groups, return_inverse=True)
    places = random.permutation(group.max() + 1)
    examples = np.argsort(places[group], kind="stable")
    lanes = math.gcd(batch_size, LANES)
    steps, width = len(groups) // batch_size, max(window // lanes, 1)
    table = examples[: steps * batch_size].reshape(lanes, -1)
    for i, lane in enumerate(table):
        # Not all lanes need new groups at the same step.
        ends = range((i + 1) * width // lanes, len(lane), width)
        for part in np.split(lane, ends):
            random.shuffle(part)
    rows = table.reshape(lanes, steps, batch_size // lanes)
    return rows.swapaxes(0, 1).reshape(-1)


def seeded_order(draw: Callable, epoch, size: int):
    """Return the order of an epoch that is an int64 scalar, as an op.

    Args:
        draw: function of the epoch, an int, to `size` numbers.
        epoch: the scalar.
        size: int.
    """
    import tensorflow as tf

    drawn = tf.numpy_function(lambda epoch: draw(int(epoch)), [epoch], tf.int64)
    return tf.ensure_shape(drawn, [size])
