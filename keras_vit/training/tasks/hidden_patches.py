"""Hidden patches: drawn by the number of a batch, and left out of a network.

The batches are of images without labels; crops are drawn in the same way.

Axes: B images of a batch, H and W height and width, C channels, R and G rows
and columns of the grid of patches, N = R * G patches, M numbers of a patch, D
hidden dimension.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar

import keras
from keras import ops

from keras_vit.data import FitStream, Share
from keras_vit.data.array_ops import ops_of
from keras_vit.data.batches import ThreadedBatches
from keras_vit.data.seeds import key, uniform
from keras_vit.layers.common import ConfiguredLayer
from keras_vit.preprocessing import rescale
from keras_vit.training import build

__all__ = [
    "CorruptPatches",
    "HiddenPatches",
    "NumberedStream",
    "hidden_source",
    "patch_pixels",
    "streams_of",
    "through_hidden",
]

# In place of the epoch in a key: what is hidden in training and in evaluation,
# which is the same each time.
TRAINING, EVALUATION = 0, 1


@dataclasses.dataclass(frozen=True)
class HiddenPatches:
    """Turns images into inputs, answers and weights about hidden patches.

    Args:
        config: the options of the task.
        grid: (rows, columns) of the patches.
        seed: non-negative int, of the run.
        batch_size: images in a whole batch.
        share: the `Share` of it that this process reads.
    """

    config: Any
    grid: tuple
    seed: int
    batch_size: int
    share: Share = Share()

    name: ClassVar[str]
    """Of what is drawn, so that tasks draw apart."""

    draws: ClassVar[int]
    """Numbers that are drawn for each patch."""

    @classmethod
    def of_run(cls, recipe, model, *, batch_size: int, share=None, stream=None):
        """Return those of a recipe, for whole batches or a share.

        Args:
            stream: the images of the training, None in an evaluation; what is
                hidden does not depend on it.
        """
        del stream
        config = cls.config_of(recipe)
        share = share or Share()
        return cls(config, model.config.grid, recipe.seed, batch_size, share)

    @staticmethod
    def config_of(recipe):
        """Return the options of the task in a recipe."""
        raise NotImplementedError

    def hide(self, drawn, images) -> tuple:
        """Return inputs, answers, which are hidden, and how many of an image.

        Those are a dictionary, (B, N, M), (B, N) and an int.

        Args:
            drawn: float32 (B, N, draws) in [0, 1).
            images: (B, H, W, C) in [0, 255].
        """
        raise NotImplementedError

    def training(self, step, batch):
        """Return batch number `step` of the training."""
        return self._hidden(TRAINING, step, batch[0])

    def evaluation(self, number, batch):
        """Return the batch of an evaluation, (images, labels, weights (B,))."""
        images, _, weights = batch
        inputs, answers, hidden = self._hidden(EVALUATION, number, images)
        return inputs, answers, hidden * weights[:, None, None]

    def _hidden(self, part, number, images):
        """Inputs, answers (B, N, M), and weights (B, N, 1) of mean 1."""
        tf = ops_of(images)
        patches = self.grid[0] * self.grid[1]
        drawn = uniform(
            (self.batch_size, patches, self.draws),
            key(self.name, self.seed, part, number),
        )
        drawn = tf.gather(drawn, self.share.rows(self.batch_size))
        inputs, answers, hidden, count = self.hide(drawn, images)
        weights = patches / count * tf.cast(hidden, tf.float32)[..., None]
        return {"image": images, **inputs}, answers, weights


def streams_of(
    batches: Any, images: Callable = lambda *given: given
) -> dict[str, Any]:
    """Return what makes the training and validation batches of a `Task`.

    Args:
        batches: subclass of `HiddenPatches`, or a class with the same methods.
        images: from the recipe, dataset and model to those that images are
            read by.
    """

    def make_stream(recipe, dataset, model, share=None):
        stream = build.make_stream(*images(recipe, dataset, model), share=share)
        made = batches.of_run(
            recipe,
            model,
            batch_size=recipe.training.batch_size,
            share=share,
            stream=stream,
        )
        return NumberedStream(stream, made.training)

    def make_validation(recipe, dataset, model, share=None):
        given = images(recipe, dataset, model)
        found = build.make_validation(*given, share=share)
        if found is None:
            return None
        share = share or Share()
        made = batches.of_run(
            recipe,
            model,
            batch_size=recipe.training.micro_batch_size,
            share=Share(share.index, share.count),
        )
        return found.enumerate().map(made.evaluation)

    return {"make_stream": make_stream, "make_validation": make_validation}


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
                "What is hidden or cropped is drawn by the numbers of batches. "
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
            tf.autograph.experimental.do_not_convert(self.change),
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


@keras.saving.register_keras_serializable("keras_vit")
class CorruptPatches(ConfiguredLayer):
    """Replaces embeddings of patches by a learned one, or by one another.

    Appendix B.1.2 of "An Image Is Worth 16x16 Words" (arXiv:2010.11929), after
    BERT's [mask] token.

    Input shape:
        Embeddings (B, N, D), and source (B, N), the number of the patch whose
        embedding each one gets, or -1 for the learned one.

    Output shape:
        (B, N, D).

    Example:

    >>> embeddings = keras.random.normal((1, 4, 8))
    >>> CorruptPatches()(embeddings, [[0, -1, 3, 3]]).shape
    (1, 4, 8)
    """

    def build(self, embeddings_shape, source_shape=None):
        self.mask = self.add_weight(
            name="mask",
            shape=(1, 1, embeddings_shape[-1]),
            initializer=keras.initializers.RandomNormal(stddev=0.02),
        )

    def call(self, embeddings, source):
        source = ops.expand_dims(source, -1)  # (B, N, 1)
        taken = ops.take_along_axis(
            embeddings, ops.maximum(source, 0), axis=1
        )  # (B, N, D)
        mask = ops.cast(self.mask, taken.dtype)
        return ops.where(source < 0, mask, taken)


def hidden_source(hidden):
    """Return the source of `CorruptPatches` that hides patches.

    Args:
        hidden: bool tensor (B, N).

    Returns:
        int32 tensor (B, N), -1 where hidden.
    """
    places = ops.arange(hidden.shape[1], dtype="int32")
    return ops.where(hidden, -1, places[None])


def through_hidden(model, x, source) -> tuple:
    """Return features and patch tokens of views with hidden patches.

    Args:
        model: a `VisionTransformer`.
        x: views (B, H, W, C).
        source: int32 (B, N), see `CorruptPatches`.

    Returns:
        (B, D), and the tokens after the last norm (B, N, D).
    """
    layers = model.layers[1:]
    names = [layer.name for layer in layers]
    first, last = (names.index(y) + 1 for y in ("patch_embed", "encoder_norm"))
    for layer in layers[:first]:
        x = layer(x)
    x = CorruptPatches(dtype=model.dtype_policy, name="corrupt_patches")(
        x, source
    )
    for layer in layers[first:last]:
        x = layer(x)
    tokens = x[:, -source.shape[1] :]
    for layer in layers[last:]:
        x = layer(x)
    return x, tokens
