"""Batches that hold every image once, for evaluation.

Axes: B images of a batch, H and W height and width, C channels, K classes.
"""

from keras_vit.data.accelerators import leave_accelerators
from keras_vit.data.config import PreprocessingConfig
from keras_vit.data.preprocess import Geometry, image_reader, pair
from keras_vit.data.share import Share, chosen_rows

__all__ = ["evaluation_batches"]


def evaluation_batches(
    examples,
    *,
    image_size: int | tuple[int, int],
    channels: int,
    batch_size: int,
    preprocessing: PreprocessingConfig | None = None,
    share: Share | None = None,
):
    """Reads every image once, in order, in batches of one size.

    Args:
        examples: an `Examples` or a `StreamedExamples`.
        image_size: pixels, one side or (height, width).
        channels: 1 for grey, 3 for colour.
        batch_size: int, B.
        preprocessing: a `PreprocessingConfig`, its defaults if None.
        share: a `Share` of each batch, the whole of it if None.

    Returns:
        A `tf.data.Dataset` of images, uint8 or float32 (B, H, W, C) in
        [0, 255]; labels, int32 (B,), or (B, K) where an image may have any
        number of classes; and mask, bool (B,). The last batch is padded with
        black images of label 0, at which the mask is False; so it is at
        images that cannot be read, where these are skipped. Each share has as
        many batches as the others.

    Raises:
        ValueError: when there are no images, or sizes do not fit.

    Example:
        >>> batches = evaluation_batches(
        ...     digits.test, image_size=16, channels=1, batch_size=64
        ... )
        >>> sum(int(mask.numpy().sum()) for _, _, mask in batches)
        359
    """
    import tensorflow as tf

    if not len(examples) or batch_size < 1:
        raise ValueError(
            f"There must be images and a batch_size above 0. Received: "
            f"{len(examples)} images of {examples.source}, "
            f"batch_size={batch_size}."
        )
    leave_accelerators()
    config = preprocessing or PreprocessingConfig()
    geometry = Geometry(pair(image_size), channels, config)
    read = image_reader(examples, config.evaluation, geometry)

    def image(record):
        result, readable = read(record)
        return result, tf.cast(record["label"], tf.int32), readable

    rows = (share or Share()).rows(batch_size)
    batches = _padded(
        chosen_rows(examples.in_order(), rows, batch_size).map(
            image, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True
        ),
        len(rows),
    )
    if 0 < len(examples) % batch_size <= rows[0]:
        # The last batch ends before the images of this share.
        batches = batches.concatenate(_empty(batches.element_spec))
    size = -(-len(examples) // batch_size)
    return batches.apply(
        tf.data.experimental.assert_cardinality(size)
    ).prefetch(tf.data.AUTOTUNE)


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
