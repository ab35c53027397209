"""Random numbers that are functions of what they are for, without state.

A draw is keyed by the seed of the run, its purpose, the epoch and the number
of the image (or of the batch). So what happens to an image depends neither on
the batch that it is in nor on what was drawn before, and a run that continues
sees what an uninterrupted one sees.
"""

import numpy as np

__all__ = ["PURPOSES", "key", "order", "seeded_order", "uniform"]

# Changing a number here changes every run: add at the end.
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


def key(purpose: str, seed: int, epoch, example):
    """Makes the seed of a stateless TensorFlow op.

    Args:
        purpose: one of `PURPOSES`.
        seed: non-negative int below 2**57, the seed of the run.
        epoch: int64 scalar below 2**23.
        example: int64 scalar below 2**40, number of the image or the batch.

    Returns:
        int64 tensor of shape (2,).

    Example:
        >>> key("flip", seed=3, epoch=1, example=2).shape
        TensorShape([2])
    """
    import tensorflow as tf

    stream = seed * MAX_PURPOSES + PURPOSES[purpose]
    position = tf.cast(epoch, tf.int64) * 2**EXAMPLE_BITS + tf.cast(
        example, tf.int64
    )
    return tf.stack([tf.constant(stream, tf.int64), position])


def uniform(shape: tuple[int, ...], key):
    """Draws numbers in [0, 1).

    Args:
        shape: of the result.
        key: int64 tensor of shape (2,).

    Returns:
        float32 tensor of the shape; the same on every device, which is why
        the generator is named.
    """
    import tensorflow as tf

    return tf.random.stateless_uniform(shape, seed=key, alg="philox")


def order(seed: int, epoch: int, size: int) -> np.ndarray:
    """The order of an epoch.

    Args:
        seed: non-negative int.
        epoch: int, counted from 0.
        size: int, N.

    Returns:
        int64 array of shape (N,), each of 0 to N - 1 once.

    Example:
        >>> sorted(order(seed=0, epoch=3, size=4).tolist())
        [0, 1, 2, 3]
    """
    return np.random.default_rng((seed, epoch, size)).permutation(size)


def seeded_order(seed: int, epoch, size: int):
    """The same, of an epoch that TensorFlow counts.

    Args:
        seed: non-negative int.
        epoch: int64 scalar.
        size: int, N.

    Returns:
        int64 tensor of shape (N,).
    """
    import tensorflow as tf

    drawn = tf.numpy_function(
        lambda epoch: order(seed, int(epoch), size), [epoch], tf.int64
    )
    return tf.ensure_shape(drawn, [size])
