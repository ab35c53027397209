"""Random numbers and orders that depend on what they are for, without state.

A draw is keyed by the seed of the run, its purpose, the epoch and the number
of the image (or of the batch). What happens to an image therefore depends
neither on its batch nor on earlier draws, and a resumed run sees what an
uninterrupted run sees.
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
    """
    import tensorflow as tf

    stream = seed * MAX_PURPOSES + PURPOSES[purpose]
    position = tf.cast(epoch, tf.int64) * 2**EXAMPLE_BITS + tf.cast(
        example, tf.int64
    )
    return tf.stack([tf.constant(stream, tf.int64), position])


def uniform(shape: tuple[int, ...], key):
    """Draws float32 numbers in [0, 1), the same ones on every device."""
    import tensorflow as tf

    # Unless it is named, the generator depends on the device.
    return tf.random.stateless_uniform(shape, seed=key, alg="philox")


def order(seed: int, epoch: int, size: int) -> np.ndarray:
    """The order of an epoch: 0 to size - 1, once each, as int64."""
    return np.random.default_rng((seed, epoch, size)).permutation(size)


def seeded_order(seed: int, epoch, size: int):
    """`order` as an op, of an epoch that is an int64 scalar."""
    import tensorflow as tf

    drawn = tf.numpy_function(
        lambda epoch: order(seed, int(epoch), size), [epoch], tf.int64
    )
    return tf.ensure_shape(drawn, [size])
