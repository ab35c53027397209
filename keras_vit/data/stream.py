"""Training batches without end, each a function of its number.

Axes: B images of a batch, H and W height and width, C channels, K classes.
"""

import logging

from keras_vit.data.accelerators import leave_accelerators
from keras_vit.data.augmentation import AugmentationConfig
from keras_vit.data.config import PreprocessingConfig
from keras_vit.data.labels import check_labels, label_vector
from keras_vit.data.mixing import batch_augmenter, rows_needed
from keras_vit.data.preprocess import Geometry, image_reader, pair
from keras_vit.data.share import Share, chosen_rows, picked
from keras_vit.data.varied import image_augmenter

__all__ = ["TrainingStream", "training_stream"]

LOGGER = logging.getLogger(__name__)


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
) -> "TrainingStream":
    """Makes the training batches of a split.

    Args:
        examples: an `Examples` or a `StreamedExamples`.
        num_classes: int, K.
        image_size: pixels, one side or (height, width).
        channels: 1 for grey, 3 for colour.
        batch_size: int, B, at most the number of images.
        preprocessing: a `PreprocessingConfig`, its defaults if None.
        augmentation: an `AugmentationConfig`, its defaults if None.
        seed: non-negative int.
        share: a `Share` of each batch, the whole of it if None.

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
    leave_accelerators()
    return TrainingStream(
        examples,
        num_classes,
        Geometry(
            pair(image_size), channels, preprocessing or PreprocessingConfig()
        ),
        augmentation or AugmentationConfig(),
        batch_size=batch_size,
        seed=seed,
        share=share or Share(),
    )


class TrainingStream:
    """The training batches of a split, from any step on.

    Batch i depends on i and the seed alone, so that a run which continues at
    batch i sees what an uninterrupted run sees. Each epoch has its own order
    and skips the images that fill no batch at its end, others each time.

    A share is as in the whole batch, but where images cannot be read. It alone
    is decoded, with what Mixup adds; for CutMix, erasing and KerasCV, all is.

    Args:
        examples: an `Examples` or a `StreamedExamples`.
        num_classes: int, K.
        geometry: a `Geometry`.
        augmentation: an `AugmentationConfig`.
        batch_size: int, B.
        seed: non-negative int.
        share: a `Share`.

    Attributes:
        steps_per_epoch: int, batches in an epoch.
        skipped: set of the names of images that could not be read so far.

    Raises:
        ValueError: see `training_stream`.

    Example:
        See `training_stream`.
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
    ):
        if not 1 <= batch_size <= len(examples):
            raise ValueError(
                f"batch_size={batch_size} does not fit the {len(examples)} "
                "training images, which must fill a batch. Choose a "
                f"batch_size from 1 to {len(examples)}."
            )
        check_labels(examples.labels, num_classes, examples.source)
        self.examples = examples
        self.num_classes = num_classes
        self.geometry = geometry
        self.augmentation = augmentation
        self.batch_size = batch_size
        self.seed = seed
        self.share = share
        self.steps_per_epoch = len(examples) // batch_size
        self.skipped = set()
        self.rows = share.rows(batch_size)
        self.read = rows_needed(augmentation, self.rows, batch_size)

    def from_step(self, step: int):
        """The batches from one on; none before it are decoded.

        Args:
            step: int, counted from the first batch of the first epoch.

        Returns:
            An endless `tf.data.Dataset` of the share's images, uint8 or
            float32 (B, H, W, C) in [0, 255], and labels, float32 (B, K).
        """
        import tensorflow as tf

        records = self.examples.shuffled(
            per_epoch=self.steps_per_epoch * self.batch_size,
            **self._position(step),
        )
        parallel = {
            "num_parallel_calls": tf.data.AUTOTUNE,
            "deterministic": True,
        }
        records = chosen_rows(records, self.read, self.batch_size)
        # Its branches are tf.cond's: to look for Python's takes seconds.
        image = tf.autograph.experimental.do_not_convert(self._image())
        images = records.map(image, **parallel)
        batches = images.batch(len(self.read), drop_remainder=True)
        steps = tf.data.Dataset.range(step, tf.int64.max)
        batches = tf.data.Dataset.zip((batches, steps))
        return batches.map(self._batch(), **parallel).prefetch(tf.data.AUTOTUNE)

    def names_of(self, step: int) -> list[str]:
        """Names the images of a batch, for messages.

        Args:
            step: int, as for `from_step`.

        Returns:
            list of B str.
        """
        return self.examples.names_in(
            take=self.batch_size, **self._position(step)
        )

    def _position(self, step: int) -> dict:
        epoch, inside = divmod(step, self.steps_per_epoch)
        skip = inside * self.batch_size
        return {"seed": self.seed, "epoch": epoch, "skip": skip}

    def _image(self):
        config = self.geometry.config
        read = image_reader(
            self.examples, config.train, self.geometry, self.seed
        )
        augment = image_augmenter(
            self.augmentation, flip=config.flip, seed=self.seed
        )

        def image(record):
            result, readable = read(record)
            epoch, example = record["epoch"], record["example"]
            return {
                "image": augment(result, epoch, example),
                "label": label_vector(record["label"], self.num_classes),
                "readable": readable,
                "example": example,
            }

        return image

    def _batch(self):
        import tensorflow as tf

        augment = batch_augmenter(self.augmentation, self.seed)

        def batch(records, step):
            records = tf.cond(
                tf.reduce_all(records["readable"]),
                lambda: records,
                lambda: self._replaced(records),
            )
            varied = augment(records["image"], records["label"], step)
            size = (*self.geometry.image_size, self.geometry.channels)
            images, labels = (picked(x, self.read, self.rows) for x in varied)
            images = tf.ensure_shape(images, (None, *size))
            return images, tf.ensure_shape(labels, (None, self.num_classes))

        return batch

    def _replaced(self, records):
        """Puts the next image that was read in place of one that was not."""
        import tensorflow as tf

        readable = records["readable"]
        unread = tf.boolean_mask(records["example"], ~readable)
        counted = tf.numpy_function(self._count_skipped, [unread], tf.int64)
        size = len(self.read)
        place = tf.range(size)
        ahead = (place[None] - place[:, None]) % size  # (B, B)
        source = tf.argmin(tf.where(readable[None], ahead, size), axis=1)
        with tf.control_dependencies([counted]):
            return {
                name: tf.gather(values, source)
                for name, values in records.items()
            }

    def _count_skipped(self, examples):
        message = "%s cannot be read as an image and is skipped (%d so far)."
        names = {self.examples.name_of(int(example)) for example in examples}
        for name in sorted(names - self.skipped):
            self.skipped.add(name)
            LOGGER.warning(message, name, len(self.skipped))
        return examples
