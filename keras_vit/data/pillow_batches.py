"""Training and evaluation batches read by Pillow, without TensorFlow.

Axes: B images of a batch, H and W height and width, C channels, K classes.
"""

import functools
from collections.abc import Callable

import numpy as np

from keras_vit.data.array_mixing import array_batch_augmenter
from keras_vit.data.array_ops import ARRAYS
from keras_vit.data.augmentation import image_augmenter
from keras_vit.data.dataset import Examples
from keras_vit.data.image_reader import Geometry
from keras_vit.data.pillow_reader import pillow_reader
from keras_vit.data.threaded_batches import ThreadedBatches, in_threads

__all__ = ["evaluation_by_pillow", "training_by_pillow"]


def training_by_pillow(stream, step: int) -> ThreadedBatches:
    """The batches of a `TrainingStream` from step `step` on, without end."""
    _check_in_memory(stream.examples)
    image = _training_image(stream)
    augment = array_batch_augmenter(stream.augmentation, stream.seed)
    places = [stream.read_rows.index(row) for row in stream.rows]
    order_of = functools.lru_cache(2)(
        lambda epoch: stream.examples.order(
            seed=stream.seed, epoch=epoch, batch_size=stream.batch_size
        )
    )

    def batch(number):
        number += step
        epoch, inside = divmod(number, stream.steps_per_epoch)
        first = inside * stream.batch_size
        examples = order_of(epoch)[first + np.array(stream.read_rows)]
        read = in_threads(image, [(epoch, example) for example in examples])
        source = _readable(read, examples, stream.count_skipped)
        images = np.stack([_or_black(read[i], stream.geometry) for i in source])
        labels = stream.examples.labels[examples[source]]
        images, labels = augment(
            images, one_hot(labels, stream.num_classes), number
        )
        return images[places], labels[places]

    return ThreadedBatches(batch, batch_size=len(stream.rows))


def _check_in_memory(examples) -> None:
    if not isinstance(examples, Examples):
        raise ValueError(
            f"{examples.source} is read from its files by TensorFlow. "
            "Received: data.reader='pillow'. Set it to tensorflow."
        )


def _training_image(stream) -> Callable:
    config = stream.geometry.config
    read = pillow_reader(
        stream.examples, config.train, stream.geometry, stream.seed
    )
    augment = image_augmenter(
        stream.augmentation, flip=config.flip, seed=stream.seed
    )

    def image(epoch, example):
        pixels = read(epoch, example)
        return None if pixels is None else augment(pixels, epoch, example)

    return image


def _readable(read, examples, count_skipped) -> np.ndarray:
    """For each image of a batch its number, or of the next that was read."""
    unread = np.array([image is None for image in read])
    if unread.any():
        count_skipped(examples[unread])
    size = len(read)
    place = np.arange(size)
    ahead = (place[None] - place[:, None]) % size  # (B, B)
    return np.where(unread[None], size, ahead).argmin(axis=1)


def _or_black(image, geometry: Geometry):
    if image is not None:
        return image
    shape = (*geometry.image_size, geometry.channels)
    return np.zeros(shape, geometry.config.rounding)


def one_hot(labels, num_classes: int) -> np.ndarray:
    """float32 (B, K) of classes (B,), or of vectors of several classes."""
    if labels.ndim == 2:
        return labels.astype("float32")
    return ARRAYS.one_hot(labels, num_classes)


def evaluation_by_pillow(
    examples, geometry: Geometry, batch_size: int, rows: list[int]
) -> ThreadedBatches:
    """See `evaluation_batches`; `rows` are those of the share."""
    _check_in_memory(examples)
    read = pillow_reader(examples, geometry.config.evaluation, geometry)
    num_classes = examples.labels.shape[1:]

    def batch(number):
        first = number * batch_size
        own = [first + row for row in rows if first + row < len(examples)]
        found = in_threads(read, [(0, example) for example in own])
        images = [_or_black(image, geometry) for image in found]
        missing = [_or_black(None, geometry)] * (len(rows) - len(own))
        labels = np.zeros((len(rows), *num_classes), "int32")
        labels[: len(own)] = examples.labels[own]
        mask = np.zeros(len(rows), bool)
        mask[: len(own)] = [image is not None for image in found]
        return np.stack(images + missing), labels, mask

    return ThreadedBatches(
        batch,
        batch_size=len(rows),
        num_batches=-(-len(examples) // batch_size),
    )
