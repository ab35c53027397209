"""Training and evaluation batches of images, whatever reads them.

Axes: B images of a batch, H and W height and width, C channels, K classes.
"""

import dataclasses
import logging

import numpy as np

from keras_vit.data.array_mixing import check_augmentation
from keras_vit.data.augmentation import rows_needed
from keras_vit.data.config import AugmentationConfig, PreprocessingConfig
from keras_vit.data.image_reader import Geometry
from keras_vit.data.pillow_batches import (
    evaluation_by_pillow,
    training_by_pillow,
)
from keras_vit.data.readers import hide_accelerators
from keras_vit.data.tensorflow_batches import (
    evaluation_by_tensorflow,
    training_by_tensorflow,
)
from keras_vit.io.checks import check_size

__all__ = [
    "Share",
    "TrainingStream",
    "evaluation_batches",
    "training_stream",
]

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

    def size(self, batch_size: int) -> int:
        """Number of images of the share, of a batch of B.

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
        """Numbers of the images of the share in a batch of B, ascending."""
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
) -> "TrainingStream":
    """Makes the training batches of a split.

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
        self.steps_per_epoch = len(examples) // batch_size
        self.skipped = set()
        self.rows = share.rows(batch_size)
        self.read_rows = rows_needed(augmentation, self.rows, batch_size)

    def from_step(self, step: int):
        """The batches from step `step` on; none before it are decoded.

        Args:
            step: int, counted from the first batch of the first epoch.

        Returns:
            An endless `tf.data.Dataset`, or a `keras.utils.PyDataset` where
            the reader is "pillow", of the share's images, uint8 or float32
            (B, H, W, C) in [0, 255], and labels, float32 (B, K).
        """
        return TRAINING[self.examples.reader](self, step)

    def names_of(self, step: int) -> list[str]:
        """Names of the B images of a batch, for messages."""
        return self.examples.names_in(**self.position(step))

    def position(self, step: int) -> dict:
        """What `Examples.shuffled` takes, of a step."""
        epoch, inside = divmod(step, self.steps_per_epoch)
        skip = inside * self.batch_size
        return {
            "seed": self.seed,
            "epoch": epoch,
            "batch_size": self.batch_size,
            "skip": skip,
        }

    def count_skipped(self, examples: np.ndarray) -> np.ndarray:
        """Notes that images (their numbers) cannot be read, and warns once."""
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
    """Reads every image once, in order, in batches of one size.

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
        int32 (B,), or (B, K) where an image may have any number of classes;
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
    hide_accelerators(examples.reader)
    if not len(examples) or batch_size < 1:
        raise ValueError(
            f"There must be images and a batch_size above 0. Received: "
            f"{len(examples)} images of {examples.source}, "
            f"batch_size={batch_size}."
        )
    config = preprocessing or PreprocessingConfig()
    geometry = Geometry(check_size("image_size", image_size), channels, config)
    rows = (share or Share()).rows(batch_size)
    return EVALUATION[examples.reader](examples, geometry, batch_size, rows)


# What reads the images to the functions that make batches with it.
TRAINING = {
    "tensorflow": training_by_tensorflow,
    "pillow": training_by_pillow,
}
EVALUATION = {
    "tensorflow": evaluation_by_tensorflow,
    "pillow": evaluation_by_pillow,
}


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
