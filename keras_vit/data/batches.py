"""Training and evaluation batches of images, read by TensorFlow or by Pillow.

Training batches also come from tf.data, PyDataset, grain, torch, or arrays;
except for tf.data, none of them needs TensorFlow.

Axes: B images of a batch, H and W height and width, C channels, K classes.
"""

import copy
import dataclasses
import functools
import itertools
import logging
import math
import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import keras
import numpy as np

from keras_vit.data.array_ops import ARRAYS, ops_of
from keras_vit.data.augmentation import (
    array_batch_augmenter,
    batch_augmenter,
    check_augmentation,
    image_augmenter,
    rows_needed,
)
from keras_vit.data.config import (
    AugmentationConfig,
    PreprocessingConfig,
    hide_accelerators,
)
from keras_vit.data.dataset import Examples
from keras_vit.data.image_reader import image_reader, pillow_reader
from keras_vit.data.resizing import Geometry
from keras_vit.io.checks import check_kind, check_size, check_whole
from keras_vit.runtime.machine import shortage

__all__ = [
    "FitStream",
    "Share",
    "ThreadedBatches",
    "TrainingStream",
    "evaluation_batches",
    "images_per_batch",
    "in_threads",
    "training_stream",
]

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


LOGGER = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class Share:
    """The share of every batch that one of several processes reads.

    Args:
        index: int, which one.
        count: int, how many there are.
        parts: int, smaller batches that a batch is cut into before it is
            shared, for accumulated gradients.

    Example:
        >>> Share(1, 2).rows(8)
        [4, 5, 6, 7]
        >>> Share(1, 2, parts=2).rows(8)
        [2, 3, 6, 7]
    """

    index: int = 0
    count: int = 1
    parts: int = 1

    def __post_init__(self):
        check_whole(0, index=self.index)
        check_whole(1, count=self.count, parts=self.parts)
        if self.index >= self.count:
            raise ValueError(
                f"The shares have numbers from 0 to {self.count - 1}. "
                f"Received: index={self.index}, count={self.count}."
            )

    def size(self, batch_size: int) -> int:
        """Return the number of images of the share, of a batch of B.

        Raises:
            ValueError: when a batch cannot be cut into equal shares.
        """
        if batch_size % (self.count * self.parts):
            raise ValueError(
                f"A batch of {batch_size} cannot be cut into {self.parts} "
                f"parts of {self.count} equal shares. Make it a multiple of "
                f"{self.count * self.parts}."
            )
        return batch_size // self.count

    def rows(self, batch_size: int) -> list[int]:
        """List the images of the share in a batch of B, ascending."""
        part = batch_size // self.parts
        each = self.size(batch_size) // self.parts
        first = self.index * each
        return [
            start + first + i
            for start in range(0, batch_size, part)
            for i in range(each)
        ]


def training_stream(
    examples,
    num_classes: int,
    *,
    image_size: int | tuple[int, int],
    channels: int,
    batch_size: int,
    preprocessing: PreprocessingConfig | None = None,
    augmentation: AugmentationConfig | None = None,
    seed: int = 0,
    share: Share | None = None,
    class_weights: np.ndarray | None = None,
) -> "TrainingStream":
    """Make the training batches of a split.

    Args:
        examples: an `Examples`.
        num_classes: int, K.
        image_size: pixels, one side or (height, width).
        channels: 1 for grey, 3 for colour.
        batch_size: int, B, at most the number of images.
        preprocessing: a `PreprocessingConfig`, its defaults if None.
        augmentation: an `AugmentationConfig`, its defaults if None.
        seed: non-negative int.
        share: a `Share` of each batch, the whole of it if None.
        class_weights: array of shape (K,), what the loss of an image of a
            class is multiplied by; None for no weights.

    Returns:
        A `TrainingStream`.

    Raises:
        ValueError: when the images do not fill one batch, or a size or a
            label does not fit.

    Example:
        >>> digits = open_dataset(DataConfig("digits"))
        >>> stream = training_stream(
        ...     digits.train, 10, image_size=16, channels=1, batch_size=64
        ... )
        >>> model.fit(
        ...     stream.from_step(0),
        ...     epochs=3,
        ...     steps_per_epoch=stream.steps_per_epoch,
        ...     shuffle=False,
        ... )
    """
    _check_examples(examples)
    check_whole(1, num_classes=num_classes, batch_size=batch_size)
    check_whole(0, seed=seed)
    check_kind(AugmentationConfig | None, augmentation=augmentation)
    check_kind(Share | None, share=share)
    hide_accelerators(examples.reader)
    return TrainingStream(
        examples,
        num_classes,
        Geometry(
            check_size("image_size", image_size),
            channels,
            preprocessing or PreprocessingConfig(),
        ),
        augmentation or AugmentationConfig(),
        batch_size=batch_size,
        seed=seed,
        share=share or Share(),
        class_weights=class_weights,
    )


class TrainingStream:
    """The training batches of a split, from any step on.

    Batch i depends on i and the seed alone, so that a run that resumes at
    batch i sees what an uninterrupted run sees. Each epoch has its own order
    and leaves out the images at its end that do not fill a batch.

    The images of a share are those of the whole batch, except where images
    cannot be read. Only the share is decoded, with the images that Mixup adds;
    CutMix, random erasing and KerasCV need the whole batch.

    Made by `training_stream`, which says more of the arguments.

    Attributes:
        steps_per_epoch: int, batches in an epoch.
        skipped: set of the names of images that could not be read so far.
    """

    def __init__(
        self,
        examples,
        num_classes: int,
        geometry: Geometry,
        augmentation: AugmentationConfig,
        *,
        batch_size: int,
        seed: int,
        share: Share,
        class_weights: np.ndarray | None = None,
    ):
        if not 1 <= batch_size <= len(examples):
            raise ValueError(
                f"batch_size={batch_size} does not fit the {len(examples)} "
                "training images, which must fill a batch. Choose a "
                f"batch_size from 1 to {len(examples)}."
            )
        _check_labels(examples.labels, num_classes, examples.source)
        if examples.reader == "pillow":
            check_augmentation(augmentation)
        self.examples = examples
        self.num_classes = num_classes
        self.geometry = geometry
        self.augmentation = augmentation
        self.batch_size = batch_size
        self.seed = seed
        self.share = share
        if class_weights is not None:
            _check_weights(class_weights, num_classes)
        self.class_weights = class_weights
        self.steps_per_epoch = len(examples) // batch_size
        self.skipped = set()
        self.rows = share.rows(batch_size)
        self.read_rows = rows_needed(augmentation, self.rows, batch_size)

    def from_step(self, step: int):
        """Return the batches from step `step` on; none before it are decoded.

        Args:
            step: int, counted from the first batch of the first epoch.

        Returns:
            An endless `tf.data.Dataset`, or a `keras.utils.PyDataset` where
            the reader is "pillow", of the share's images, uint8 or float32
            (B, H, W, C) in [0, 255], and labels, float32 (B, K); with weights
            of the classes also the weight of each image, float32 (B,).
        """
        batches = TRAINING[self.examples.reader](self, step)
        if self.class_weights is None:
            return batches
        return batches.map(self._with_weights)

    def _with_weights(self, images, labels):
        # Of mixed labels, as of Mixup, the mean of their classes' weights.
        weights = np.asarray(self.class_weights, "float32")
        weighted = labels * weights  # (B, K)
        return images, labels, ops_of(labels).reduce_sum(weighted, axis=-1)

    def names_of(self, step: int) -> list[str]:
        """Return the names of the B images of a batch, for messages."""
        return self.examples.names_in(**self.position(step))

    def position(self, step: int) -> dict:
        """Return what `Examples.shuffled` takes, of a step."""
        epoch, inside = divmod(step, self.steps_per_epoch)
        skip = inside * self.batch_size
        return {
            "seed": self.seed,
            "epoch": epoch,
            "batch_size": self.batch_size,
            "skip": skip,
        }

    def count_skipped(self, examples: np.ndarray) -> np.ndarray:
        """Note that images (their numbers) cannot be read, and warn once."""
        message = "%s cannot be read as an image and is skipped (%d so far)."
        names = {self.examples.name_of(int(example)) for example in examples}
        for name in sorted(names - self.skipped):
            self.skipped.add(name)
            LOGGER.warning(message, name, len(self.skipped))
        return examples


def evaluation_batches(
    examples,
    *,
    image_size: int | tuple[int, int],
    channels: int,
    batch_size: int,
    preprocessing: PreprocessingConfig | None = None,
    share: Share | None = None,
):
    """Read every image once, in order, in batches of one size.

    Args:
        examples: an `Examples`.
        image_size: pixels, one side or (height, width).
        channels: 1 for grey, 3 for colour.
        batch_size: int, B.
        preprocessing: a `PreprocessingConfig`, its defaults if None.
        share: a `Share` of each batch, the whole of it if None.

    Returns:
        A `tf.data.Dataset`, or a `keras.utils.PyDataset` where the reader is
        "pillow", of images, uint8 or float32 (B, H, W, C) in [0, 255]; labels,
        int32 (B,), or (B, K) where an image may have any number of classes,
        or float (B, K) of numbers;
        and mask, bool (B,). The last batch is padded with black images of
        label 0. The mask is False for these, and for images
        that cannot be read where they are skipped. All shares have the same
        number of batches.

    Raises:
        ValueError: when there are no images, or sizes do not fit.

    Example:
        >>> batches = evaluation_batches(
        ...     digits.test, image_size=16, channels=1, batch_size=64
        ... )
        >>> sum(int(np.sum(mask)) for _, _, mask in batches)
        359
    """
    _check_examples(examples)
    check_whole(1, batch_size=batch_size)
    check_kind(Share | None, share=share)
    hide_accelerators(examples.reader)
    if not len(examples):
        raise ValueError(
            f"There must be images. Received: none, of {examples.source}."
        )
    config = preprocessing or PreprocessingConfig()
    geometry = Geometry(check_size("image_size", image_size), channels, config)
    share = share or Share()
    held = share.size(batch_size)
    if short := shortage(held * math.prod(geometry.image_size) * channels):
        raise ValueError(
            f"{held:,} images of a batch take {short}. Received: "
            f"batch_size={batch_size!r}. Give fewer."
        )
    rows = share.rows(batch_size)
    return EVALUATION[examples.reader](examples, geometry, batch_size, rows)


def _check_examples(examples) -> None:
    if not hasattr(examples, "reader"):
        raise ValueError(
            "examples are a part of a data set, as open_dataset(config).train. "
            f"Received: {examples!r:.80}."
        )


def _check_weights(weights, num_classes: int) -> None:
    found = np.asarray(weights)
    numbers = found.dtype.kind in "biuf" and found.shape == (num_classes,)
    if not numbers or not (np.isfinite(found) & (found >= 0)).all():
        raise ValueError(
            f"class_weights are a number of at least 0 for each of "
            f"{num_classes} classes. Received: {weights!r:.80}."
        )


def _check_labels(labels, num_classes: int, source: str) -> None:
    if labels is None:
        return  # Those of a stream are only known when they are read.
    if labels.ndim == 2:
        if labels.shape[1] != num_classes:
            raise ValueError(
                f"The labels of {source} have {labels.shape[1]} classes, "
                f"the model has {num_classes}."
            )
        return
    wrong = (labels < 0) | (labels >= num_classes)
    if wrong.any():
        first = int(wrong.argmax())
        raise ValueError(
            f"{source} has labels outside of 0 to {num_classes - 1}: "
            f"{wrong.sum()} of {len(labels)}, the first one is "
            f"{labels[first]} of image {first}. Correct them, or the number "
            "of classes."
        )


def without_autograph(make: Callable) -> Callable:
    """Wrap a function that makes a `tf.data.Dataset`, which starts faster.

    AutoGraph would search the functions that it maps, and all that they call,
    for Python's branches, which takes seconds; they have tf.cond's.
    """

    @functools.wraps(make)
    def made(*args, **kwargs):
        import tensorflow as tf

        plain = tf.autograph.experimental.do_not_convert(make)
        return plain(*args, **kwargs)

    return made


@without_autograph
def training_by_tensorflow(stream, step: int):
    """Make the batches of a `TrainingStream` from a step on, without end."""
    import tensorflow as tf

    records = stream.examples.shuffled(**stream.position(step))
    parallel = {
        "num_parallel_calls": tf.data.AUTOTUNE,
        "deterministic": True,
    }
    records = _keep_rows(records, stream.read_rows, stream.batch_size)
    images = records.map(_image(stream), **parallel)
    batches = images.batch(len(stream.read_rows), drop_remainder=True)
    steps = tf.data.Dataset.range(step, tf.int64.max)
    batches = tf.data.Dataset.zip((batches, steps))
    return batches.map(_batch(stream), **parallel).prefetch(tf.data.AUTOTUNE)


def _image(stream):
    config = stream.geometry.config
    read = image_reader(
        stream.examples, config.train, stream.geometry, stream.seed
    )
    augment = image_augmenter(
        stream.augmentation, flip=config.flip, seed=stream.seed
    )

    def image(record):
        result, readable = read(record)
        epoch, example = record["epoch"], record["example"]
        return {
            "image": augment(result, epoch, example),
            "label": _one_hot(record["label"], stream.num_classes),
            "readable": readable,
            "example": example,
        }

    return image


def _batch(stream):
    import tensorflow as tf

    augment = batch_augmenter(stream.augmentation, stream.seed)

    def batch(records, step):
        records = tf.cond(
            tf.reduce_all(records["readable"]),
            lambda: records,
            lambda: _replace_unread(stream, records),
        )
        augmented = augment(records["image"], records["label"], step)
        size = (*stream.geometry.image_size, stream.geometry.channels)
        images, labels = (
            _rows_of(x, stream.read_rows, stream.rows) for x in augmented
        )
        images = tf.ensure_shape(images, (None, *size))
        return images, tf.ensure_shape(labels, (None, stream.num_classes))

    return batch


def _replace_unread(stream, records):
    """Replace each image that was not read by the next one that was."""
    import tensorflow as tf

    readable = records["readable"]
    unread = tf.boolean_mask(records["example"], ~readable)
    counted = tf.numpy_function(stream.count_skipped, [unread], tf.int64)
    size = len(stream.read_rows)
    place = tf.range(size)
    ahead = (place[None] - place[:, None]) % size  # (B, B)
    source = tf.argmin(tf.where(readable[None], ahead, size), axis=1)
    with tf.control_dependencies([counted]):
        return {
            name: tf.gather(values, source) for name, values in records.items()
        }


@without_autograph
def evaluation_by_tensorflow(
    examples, geometry: Geometry, batch_size: int, rows: list[int]
):
    """See `evaluation_batches`; `rows` are those of the share."""
    import tensorflow as tf

    read = image_reader(examples, geometry.config.evaluation, geometry)

    def image(record):
        result, readable = read(record)
        label = record["label"]
        kept = label.dtype.is_floating
        return result, label if kept else tf.cast(label, tf.int32), readable

    batches = _padded(
        _keep_rows(examples.in_order(), rows, batch_size).map(
            image, num_parallel_calls=os.cpu_count(), deterministic=True
        ),
        len(rows),
    )
    if 0 < len(examples) % batch_size <= rows[0]:
        # The last batch ends before the images of this share.
        batches = batches.concatenate(_empty(batches.element_spec))
    size = -(-len(examples) // batch_size)
    options = tf.data.Options()
    # What tunes them ends with its period, up to half of an evaluation later.
    options.autotune.enabled = False
    counted = tf.data.experimental.assert_cardinality(size)
    return batches.apply(counted).prefetch(2).with_options(options)


def _padded(images, batch_size):
    """Return the batches of one size, the last one filled up with zeros."""
    import tensorflow as tf

    def padded(*tensors):
        missing = batch_size - tf.shape(tensors[0])[0]
        return tuple(
            tf.ensure_shape(
                tf.pad(
                    values, [[0, missing]] + [[0, 0]] * (len(values.shape) - 1)
                ),
                [batch_size, *values.shape[1:]],
            )
            for values in tensors
        )

    return images.batch(batch_size).map(padded)


def _empty(element_spec):
    """Return a batch of padding alone."""
    import tensorflow as tf

    return tf.data.Dataset.from_tensors(
        tuple(tf.zeros(spec.shape, spec.dtype) for spec in element_spec)
    )


def _one_hot(label, num_classes: int):
    """Return float32 (K,) of a class, or of the vector of several classes."""
    import tensorflow as tf

    if label.shape.rank:
        return tf.cast(label, tf.float32)
    return tf.one_hot(label, num_classes)


def _keep_rows(records, rows: list[int], batch_size: int):
    """Keep some rows of each batch of single images, before decoding."""
    import tensorflow as tf

    if len(rows) == batch_size:
        return records
    wanted = tf.reduce_any(
        tf.range(batch_size)[:, None] == tf.constant(rows), axis=1
    )  # (B,)
    return (
        records.enumerate()
        .filter(lambda number, _: wanted[number % batch_size])
        .map(lambda _, record: record)
    )


def _rows_of(values, read_rows: list[int], rows: list[int]):
    """Keep the rows of a share, of those that were read for it."""
    import tensorflow as tf

    if read_rows != rows:
        values = tf.gather(values, [read_rows.index(row) for row in rows])
    return tf.ensure_shape(values, [len(rows), *values.shape[1:]])


def training_by_pillow(stream, step: int) -> ThreadedBatches:
    """Make the batches of a `TrainingStream` from a step on, without end."""
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
    return np.zeros(shape, geometry.dtype)


def one_hot(labels, num_classes: int) -> np.ndarray:
    """Encode classes (B,), or vectors of several, as float32 (B, K)."""
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
    dtype = examples.labels.dtype
    dtype = dtype if dtype.kind == "f" else np.dtype("int32")

    def batch(number):
        first = number * batch_size
        own = [first + row for row in rows if first + row < len(examples)]
        found = in_threads(read, [(0, example) for example in own])
        images = [_or_black(image, geometry) for image in found]
        missing = [_or_black(None, geometry)] * (len(rows) - len(own))
        labels = np.zeros((len(rows), *num_classes), dtype)
        labels[: len(own)] = examples.labels[own]
        mask = np.zeros(len(rows), bool)
        mask[: len(own)] = [image is not None for image in found]
        return np.stack(images + missing), labels, mask

    return ThreadedBatches(
        batch,
        batch_size=len(rows),
        num_batches=-(-len(examples) // batch_size),
    )


# What reads the images to the functions that make batches with it.
TRAINING = {
    "tensorflow": training_by_tensorflow,
    "pillow": training_by_pillow,
}

EVALUATION = {
    "tensorflow": evaluation_by_tensorflow,
    "pillow": evaluation_by_pillow,
}


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
        given = {"batch_size": batch_size, "steps_per_epoch": steps_per_epoch}
        check_whole(1, **{x: y for x, y in given.items() if y is not None})
        if isinstance(data, tuple):
            if len(data) != 2:
                raise ValueError(
                    "Arrays are data=(images, labels). Received: a tuple of "
                    f"{len(data)}."
                )
            data = _Arrays(*data, batch_size=batch_size)
        elif batch_size is not None:
            raise ValueError(
                "batch_size cuts arrays into batches, as of data=(images, "
                f"labels). Received: batch_size={batch_size} with a "
                f"{type(data).__name__}, which has its own batches. Leave it "
                "out."
            )
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
        self.images, self.labels = np.asarray(images), np.asarray(labels)
        if (
            self.images.ndim < 1
            or self.labels.shape[:1] != self.images.shape[:1]
        ):
            raise ValueError(
                "There must be one label per image. Received: labels of shape "
                f"{self.labels.shape} for images of shape {self.images.shape}."
            )
        if not batch_size or not 1 <= batch_size <= len(self.images):
            raise ValueError(
                f"Arrays need a batch_size from 1 to {len(self.images)}, the "
                f"number of images. Received: batch_size={batch_size}."
            )
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
