"""Labels as a model takes them.

Axes: N images, H and W height and width, C channels, K classes.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from keras_vit.data.stateless import order, seeded_order

__all__ = [
    "Chosen",
    "Examples",
    "check_labels",
    "label_vector",
]


def label_vector(label, num_classes: int):
    """One-hot of a class, or the vector of a label that is one already.

    Args:
        label: int scalar, or vector of K with a 1 for each class.
        num_classes: int, K.

    Returns:
        float32 tensor of shape (K,).
    """
    import tensorflow as tf

    if label.shape.rank:
        return tf.cast(label, tf.float32)
    return tf.one_hot(label, num_classes)


def check_labels(labels, num_classes: int, source: str) -> None:
    """Refuses labels that are no class.

    Args:
        labels: see `Examples`; None for those of a stream, which are only
            known when they are read.
        num_classes: int, K.
        source: name of the data, for the message.

    Raises:
        ValueError: with a wrong label, and where it is.
    """
    if labels is None:
        return
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


KINDS = ("array", "encoded", "path")


@dataclasses.dataclass(frozen=True)
class Examples:
    """Images and labels that belong together, any of which can be read.

    Args:
        contents: uint8 array of shape (N, H, W, C); or array of N objects:
            encoded images (bytes), or paths of images (str).
        labels: int32 array of shape (N,); or uint8 of shape (N, K), with a 1
            for each class of an image that has several or none.
        kind: "array", "encoded" or "path", what `contents` holds.
        source: name of the data and the split, for messages.
        numbers: int array of shape (N,), which image of the source each one
            is; None for all in order.
        on_broken_image: "stop" or "skip", see `DataConfig`.

    Raises:
        ValueError: when kind, contents and labels do not fit together.

    Example:
        >>> images = np.zeros((2, 8, 8, 1), "uint8")
        >>> examples = Examples(images, np.array([0, 1]), source="zeros")
        >>> len(examples), examples.name_of(1)
        (2, 'zeros[1]')
    """

    contents: np.ndarray
    labels: np.ndarray
    kind: str = "array"
    source: str = "image"
    numbers: np.ndarray | None = None
    on_broken_image: str = "stop"

    def __post_init__(self):
        if self.kind not in KINDS:
            raise ValueError(
                f"kind must be one of {', '.join(map(repr, KINDS))}. "
                f"Received: {self.kind!r}."
            )
        shape, dtype = self.contents.shape, self.contents.dtype
        if self.kind == "array" and (len(shape) != 4 or dtype != np.uint8):
            raise ValueError(
                "Images must be a uint8 array of shape (N, height, width, "
                f"channels). Received: {dtype} of shape {shape}."
            )
        if len(self.labels) != len(self.contents):
            raise ValueError(
                "There must be one label an image. Received: labels of shape "
                f"{self.labels.shape} for {len(self.contents)} images."
            )

    def __len__(self) -> int:
        return len(self.contents)

    def name_of(self, example: int) -> str:
        """Names an image in a message.

        Args:
            example: its number, 0 to N - 1.

        Returns:
            Its path, or the source with the number in it.
        """
        if self.kind == "path":
            return str(self.contents[example])
        return f"{self.source}[{self._numbers()[example]}]"

    def subset(self, examples: Sequence[int] | np.ndarray) -> "Examples":
        """Keeps some of the images.

        Args:
            examples: their numbers, 0 to N - 1.

        Returns:
            An `Examples` of these; their names stay.
        """
        return dataclasses.replace(
            self,
            contents=self.contents[examples],
            labels=self.labels[examples],
            numbers=self._numbers()[examples],
        )

    def in_order(self):
        """All images once.

        Returns:
            A `tf.data.Dataset` of dictionaries: "epoch" (0), "example",
            "number" (of the source), "content" and "label".
        """
        import tensorflow as tf

        zero = tf.constant(0, tf.int64)
        numbers = tf.data.Dataset.range(len(self))
        return numbers.map(lambda example: (zero, example)).map(self._fetch())

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

        def of_epoch(number):
            epoch_order = seeded_order(seed, number, len(self))[:per_epoch]
            return tf.data.Dataset.from_tensor_slices(epoch_order).map(
                lambda example: (number, example)
            )

        epochs = tf.data.Dataset.range(epoch, tf.int64.max)
        return epochs.flat_map(of_epoch).skip(skip).map(self._fetch())

    def names_in(self, *, seed: int, epoch: int, skip: int, take: int):
        """Names of images at a position of the shuffled epochs.

        Args:
            seed: non-negative int.
            epoch: int.
            skip: int, images of the epoch before them.
            take: int, how many.

        Returns:
            list of str.
        """
        used = order(seed, epoch, len(self))[skip : skip + take]
        return [self.name_of(example) for example in used]

    def _numbers(self):
        return np.arange(len(self)) if self.numbers is None else self.numbers

    def _fetch(self):
        import tensorflow as tf

        # On the host: a GPU would fill up with the images.
        with tf.device("CPU"):
            contents = tf.constant(
                self.contents
                if self.kind == "array"
                else self.contents.tolist()
            )
            labels = tf.constant(self.labels)
            numbers = tf.constant(self._numbers(), tf.int64)
        return lambda epoch, example: {
            "epoch": epoch,
            "example": example,
            "number": tf.gather(numbers, example),
            "content": tf.gather(contents, example),
            "label": tf.gather(labels, example),
        }


@dataclasses.dataclass(frozen=True)
class Chosen:
    """Some of the examples, read in their order, to be evaluated on.

    Args:
        examples: an `Examples` or a `StreamedExamples`.
        numbers: integer array, which of them.

    Example:
        >>> evaluation_batches(Chosen(digits.train, [0, 5]), image_size=8,
        ...                    channels=1, batch_size=2)
    """

    examples: Any
    numbers: np.ndarray

    def __len__(self) -> int:
        return len(self.numbers)

    def __getattr__(self, name: str):
        return getattr(self.examples, name)

    def in_order(self):
        """As `Examples.in_order`, of the chosen images alone."""
        import tensorflow as tf

        chosen = np.zeros(len(self.examples), bool)
        chosen[self.numbers] = True
        is_chosen = tf.constant(chosen)
        return self.examples.in_order().filter(
            lambda record: tf.gather(is_chosen, record["example"])
        )
