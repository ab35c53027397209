"""Training and evaluation batches read by tf.data.

Axes: B images of a batch, H and W height and width, C channels, K classes.
"""

import os

from keras_vit.data.augmentation import batch_augmenter, image_augmenter
from keras_vit.data.image_reader import Geometry, image_reader

__all__ = ["evaluation_by_tensorflow", "training_by_tensorflow"]


def training_by_tensorflow(stream, step: int):
    """The batches of a `TrainingStream` from step `step` on, without end."""
    import tensorflow as tf

    records = stream.examples.shuffled(**stream.position(step))
    parallel = {
        "num_parallel_calls": tf.data.AUTOTUNE,
        "deterministic": True,
    }
    records = _keep_rows(records, stream.read_rows, stream.batch_size)
    # AutoGraph would search it for Python's branches, which takes seconds;
    # it has tf.cond's.
    image = tf.autograph.experimental.do_not_convert(_image(stream))
    images = records.map(image, **parallel)
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
    """Replaces each image that was not read by the next one that was."""
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


def evaluation_by_tensorflow(
    examples, geometry: Geometry, batch_size: int, rows: list[int]
):
    """See `evaluation_batches`; `rows` are those of the share."""
    import tensorflow as tf

    read = image_reader(examples, geometry.config.evaluation, geometry)

    def image(record):
        result, readable = read(record)
        return result, tf.cast(record["label"], tf.int32), readable

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
    """Batches of one size, the last one filled up with zeros."""
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
    """A batch of padding alone."""
    import tensorflow as tf

    return tf.data.Dataset.from_tensors(
        tuple(tf.zeros(spec.shape, spec.dtype) for spec in element_spec)
    )


def _one_hot(label, num_classes: int):
    """float32 (K,) of a class, or of the vector of several classes."""
    import tensorflow as tf

    if label.shape.rank:
        return tf.cast(label, tf.float32)
    return tf.one_hot(label, num_classes)


def _keep_rows(records, rows: list[int], batch_size: int):
    """Keeps some rows of each batch of single images, before decoding."""
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
    """Keeps the rows of a share, of those that were read for it."""
    import tensorflow as tf

    if read_rows != rows:
        values = tf.gather(values, [read_rows.index(row) for row in rows])
    return tf.ensure_shape(values, [len(rows), *values.shape[1:]])
