"""One split of a data set of tensorflow-datasets, in memory or streamed.

Axes: N images, H and W height and width, C channels, K classes.
"""

import math
from collections.abc import Callable

import numpy as np

from keras_vit.data.config import DataConfig
from keras_vit.data.examples import Examples
from keras_vit.data.streamed import StreamedExamples

__all__ = ["read_split"]


def read_split(builder, config: DataConfig, split: str):
    """Opens a split; in memory if it fits there.

    Args:
        builder: a prepared `tfds.core.DatasetBuilder`.
        config: a `DataConfig` with a name.
        split: as "train[:98%]".

    Returns:
        An `Examples` of pixels where all images have one size, else of
        encoded images; above memory_limit_mib a `StreamedExamples`.

    Raises:
        ValueError: when the split is unknown or empty, or has no labels.
    """
    import tensorflow_datasets as tfds

    features = builder.info.features
    small = None not in features[config.image_key].shape
    size = _mebibytes(builder, config, split, decoded=small)
    large = size > config.memory_limit_mib
    decoders = tfds.decode.PartialDecoding(
        {config.image_key: True, config.label_key: True},
        decoders=None
        if small and not large
        else {config.image_key: tfds.decode.SkipDecoding()},
    )
    source = f"{config.name}:{split}"
    if large:
        parse = _parser(features, decoders, config)
        examples = StreamedExamples.of_split(
            builder,
            split,
            parse,
            shuffle_buffer=config.shuffle_buffer,
            source=source,
            on_broken_image=config.on_broken_image,
        )
        return examples.between(0, config.max_examples or len(examples))
    images, labels = _read(builder, config, split, decoders)
    return Examples(
        np.stack(images) if small else np.array(images, object),
        np.stack(labels),
        kind="array" if small else "encoded",
        source=source,
        on_broken_image=config.on_broken_image,
    )


def _mebibytes(builder, config: DataConfig, split: str, *, decoded: bool):
    """How much memory a split takes; 0 where its size is not known."""
    splits = builder.info.splits
    if not splits:
        return 0.0
    size = splits[split].num_examples
    if decoded:
        each = math.prod(builder.info.features[config.image_key].shape)
    else:
        total = sum(part.num_bytes for part in splits.values())
        each = total / sum(part.num_examples for part in splits.values())
    return min(size, config.max_examples or size) * each / 2**20


def _read(builder, config: DataConfig, split: str, decoders):
    """Lists of images and labels."""
    import tensorflow_datasets as tfds

    try:
        dataset = builder.as_dataset(
            split=split,
            shuffle_files=False,
            decoders=decoders,
            read_config=tfds.ReadConfig(try_autocache=False),
        )
    except NotImplementedError as error:
        raise ValueError(
            f"{builder.info.full_name} is prepared in files that TensorFlow "
            f"does not read ({error}): prepare it as tfrecord."
        ) from error
    if config.max_examples is not None:
        dataset = dataset.take(config.max_examples)
    num_classes = _num_label_classes(builder.info.features, config)
    images, labels = [], []
    for example in dataset.as_numpy_iterator():
        images.append(example[config.image_key])
        labels.append(_label(example[config.label_key], num_classes))
    if not images:
        raise ValueError(f"The split {split!r} of {config.name} is empty.")
    if min(label.min() for label in labels) < 0:
        raise ValueError(
            f"The split {split!r} of {config.name} has labels below 0: it "
            "has images without labels. Choose another split."
        )
    return images, labels


def _num_label_classes(features, config: DataConfig) -> int | None:
    """K where an image has any number of labels; None where it has one."""
    feature = features[config.label_key]
    return getattr(getattr(feature, "feature", None), "num_classes", None)


def _label(label, num_classes: int | None):
    """The class; or, of several ones, a vector with a 1 for each."""
    if num_classes is None:
        return np.int32(label)
    vector = np.zeros(num_classes, np.uint8)
    vector[np.asarray(label)] = 1
    return vector


def _parser(features, decoders, config: DataConfig) -> Callable:
    """A function from a serialised example to the image and the label."""
    import tensorflow as tf

    num_classes = _num_label_classes(features, config)
    needed = decoders.extract_features(features)

    def parse(serialised):
        example = needed.deserialize_example(
            serialised, decoders=decoders.decoders
        )
        label = example[config.label_key]
        if num_classes is None:
            return example[config.image_key], tf.cast(label, tf.int32)
        hot = tf.one_hot(label, num_classes, True, False, dtype=tf.bool)
        vector = tf.cast(tf.reduce_any(hot, axis=0), tf.uint8)
        return example[config.image_key], vector

    return parse
