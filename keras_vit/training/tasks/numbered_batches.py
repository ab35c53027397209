"""Batches of images without labels, changed by their number.

Axes: B images of a batch, H and W height and width, C channels, R and G rows
and columns of the grid of patches, N = R * G patches, M numbers of a patch.
"""

from collections.abc import Callable

from keras_vit.data import FitStream
from keras_vit.data.array_ops import ops_of
from keras_vit.data.batches import ThreadedBatches
from keras_vit.preprocessing import rescale

__all__ = ["NumberedStream", "patch_pixels"]


class NumberedStream:
    """Training batches that their number changes, from any step on.

    Args:
        stream: the `TrainingStream` of the images.
        change: from the number of a step and its batch (images, labels) to
            what the network is trained with; the same on tensors of tf.data
            and on arrays.

    Raises:
        ValueError: for a `FitStream`, whose batches have no numbers.
    """

    def __init__(self, stream, change: Callable):
        if isinstance(stream, FitStream):
            raise ValueError(
                "What is hidden is drawn by the numbers of the batches. "
                "Received: a dataset whose train is a FitStream. Give the "
                "images as keras_vit.data.Examples, or --data."
            )
        self.stream = stream
        self.change = change
        self.steps_per_epoch = stream.steps_per_epoch

    def from_step(self, step: int):
        """See `TrainingStream.from_step`; the step and the seed alone decide
        how a batch is changed."""
        images = self.stream.from_step(step)
        if isinstance(images, ThreadedBatches):
            return images.enumerate().map(
                lambda number, batch: self.change(step + number, batch)
            )
        import tensorflow as tf

        steps = tf.data.Dataset.range(step, tf.int64.max)
        return tf.data.Dataset.zip((steps, images)).map(
            self.change,
            num_parallel_calls=tf.data.AUTOTUNE,
            deterministic=True,
        )

    def names_of(self, step: int) -> list[str]:
        """See `TrainingStream.names_of`."""
        return self.stream.names_of(step)


def patch_pixels(images, grid: tuple):
    """Return all pixels of each patch in [-1, 1], as the model gets them.

    Args:
        images: tensor or array (B, H, W, C) in [0, 255].
        grid: (rows, columns) of the patches.

    Returns:
        float32 (B, N, M), the pixels by row, column and channel.
    """
    tf = ops_of(images)
    rows, columns = grid
    height, width, channels = images.shape[1:]
    size = height // rows, width // columns
    pixels = rescale(tf.cast(images, tf.float32))
    pixels = tf.reshape(pixels, [-1, rows, size[0], columns, size[1], channels])
    pixels = tf.transpose(pixels, [0, 1, 3, 2, 4, 5])  # (B, R, G, ..., C)
    answers = size[0] * size[1] * channels
    return tf.reshape(pixels, [-1, rows * columns, answers])  # (B, N, M)
