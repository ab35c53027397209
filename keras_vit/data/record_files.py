"""Images read from the files of tensorflow-datasets, too many for memory.

Axes: K classes.
"""

import dataclasses
from collections.abc import Callable

import numpy as np

from keras_vit.data.stateless import seeded_order

__all__ = ["StreamedExamples"]

OPEN_FILES = 16
BLOCK = 16  # Images taken from one file before the next.


@dataclasses.dataclass(frozen=True)
class StreamedExamples:
    """Images and labels in TFRecord files, read one after the other.

    An epoch reads the files in an order of its own, several at a time, and
    shuffles within a buffer of undecoded images. Continuing within an epoch
    reads what was used of it again, and does not decode it.

    Args:
        files: paths of the files.
        starts: int array, images to leave out at the start of each file.
        sizes: int array, images to use of each file.
        parse: function of a serialised example, a string scalar, which
            returns the encoded image and the label.
        source: name of the data and the split, for messages.
        shuffle_buffer: int, images.
        on_broken_image: "stop" or "skip", see `DataConfig`.
        first: int, number of the first image in the split.

    Attributes:
        labels: None; those of a stream are only known when they are read.

    Example:
        >>> examples = StreamedExamples.of_split(
        ...     builder, "train[:99%]", parse, source="imagenet2012:train[:99%]"
        ... )
    """

    files: np.ndarray
    starts: np.ndarray
    sizes: np.ndarray
    parse: Callable
    source: str = "image"
    shuffle_buffer: int = 50_000
    on_broken_image: str = "stop"
    first: int = 0
    kind: str = "encoded"
    labels: None = None

    @classmethod
    def of_split(cls, builder, split: str, parse: Callable, **options):
        """Finds the files of a split.

        Args:
            builder: a prepared `tfds.core.DatasetBuilder`.
            split: as "train[:99%]".
            parse: see the class.
            **options: further arguments of the class.

        Returns:
            A `StreamedExamples`.

        Raises:
            ValueError: when the data is not in TFRecord files.
        """
        if builder.info.file_format.value != "tfrecord":
            raise ValueError(
                f"{builder.info.full_name} is prepared as "
                f"{builder.info.file_format.value} files, which TensorFlow "
                "does not read: prepare it as tfrecord."
            )
        parts = builder.info.splits[split].file_instructions
        return cls(
            np.array([part.filename for part in parts], object),
            np.array([part.skip for part in parts]),
            np.array([_size(part) for part in parts]),
            parse,
            **options,
        )

    def __len__(self) -> int:
        return int(self.sizes.sum())

    def name_of(self, example: int) -> str:
        """Names an image in a message.

        Args:
            example: its number, 0 to N - 1.

        Returns:
            The source with the number in it.
        """
        return f"{self.source}[{self.first + example}]"

    def between(self, start: int, stop: int) -> "StreamedExamples":
        """Keeps a range of the images.

        Args:
            start: int, the first one.
            stop: int, the one after the last.

        Returns:
            A `StreamedExamples` of these, numbered from 0; names stay.
        """
        ends = np.cumsum(self.sizes)
        low = np.clip(start - (ends - self.sizes), 0, self.sizes)
        high = np.clip(stop - (ends - self.sizes), 0, self.sizes)
        kept = high > low
        return dataclasses.replace(
            self,
            files=self.files[kept],
            starts=(self.starts + low)[kept],
            sizes=(high - low)[kept],
            first=self.first + start,
        )

    def in_order(self):
        """All images once.

        Returns:
            A `tf.data.Dataset` of dictionaries: "epoch" (0), "example",
            "number" (of the split), "content" and "label".
        """
        import tensorflow as tf

        zero = tf.constant(0, tf.int64)
        files = tf.data.Dataset.range(len(self.files))
        records = files.flat_map(self._reader())
        return records.map(lambda *record: self._parsed(zero, *record))

    def shuffled(self, *, seed: int, epoch: int, per_epoch: int, skip: int):
        """All epochs from one on, each in its own order.

        Args:
            seed: non-negative int.
            epoch: int, the first one.
            per_epoch: int, images of an epoch that are used, at most N.
            skip: int, images of the first epoch to leave out.

        Returns:
            An endless `tf.data.Dataset` of dictionaries as `in_order`.
        """
        import tensorflow as tf

        read = self._reader()

        def of_epoch(number):
            # Of this graph, lest that of the process be mixed in; not 0, which
            # TensorFlow would compare with the other seed, a tensor.
            tf.compat.v1.set_random_seed(1)
            order = seeded_order(seed, number, len(self.files))
            return (
                tf.data.Dataset.from_tensor_slices(order)
                .interleave(
                    read,
                    cycle_length=OPEN_FILES,
                    block_length=BLOCK,
                    num_parallel_calls=tf.data.AUTOTUNE,
                    deterministic=True,
                )
                .shuffle(
                    min(self.shuffle_buffer, len(self)),
                    seed=seed * 2**23 + number,
                    reshuffle_each_iteration=False,
                )
                .take(per_epoch)
                .map(lambda *record: (number, *record))
            )

        epochs = tf.data.Dataset.range(epoch, tf.int64.max)
        return epochs.flat_map(of_epoch).skip(skip).map(self._parsed)

    def names_in(self, *, seed: int, epoch: int, skip: int, take: int):
        """Names of images at a position of the shuffled epochs.

        Args:
            seed: non-negative int.
            epoch: int.
            skip: int, images of the epoch before them.
            take: int, how many.

        Returns:
            list of str; the files are read for it.
        """
        records = self.shuffled(
            seed=seed, epoch=epoch, per_epoch=len(self), skip=skip
        )
        return [
            self.name_of(int(record["example"]))
            for record in records.take(take)
        ]

    def _reader(self):
        """A function of the number of a file: its (example, serialised)."""
        import tensorflow as tf

        files = tf.constant(self.files.tolist())
        starts = tf.constant(self.starts, tf.int64)
        sizes = tf.constant(self.sizes, tf.int64)
        firsts = tf.cumsum(sizes, exclusive=True)

        def read(file):
            records = tf.data.TFRecordDataset(files[file])
            records = records.skip(starts[file]).take(sizes[file])
            return records.enumerate(start=firsts[file])

        return read

    def _parsed(self, epoch, example, serialised):
        content, label = self.parse(serialised)
        return {
            "epoch": epoch,
            "example": example,
            "number": example + self.first,
            "content": content,
            "label": label,
        }


def _size(part) -> int:
    """Images of a file that a split uses; -1 says all that are left."""
    rest = part.examples_in_shard - part.skip
    return rest if part.take == -1 else part.take
