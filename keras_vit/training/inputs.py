"""What a recipe trains on and for how long, out of its data.

Axes: B images of a batch, H and W height and width, C channels, K classes.
"""

import dataclasses
import math

from keras_vit import data
from keras_vit.training import build
from keras_vit.training.config import Recipe

__all__ = [
    "Plan",
    "make_plan",
    "make_stream",
    "make_validation",
    "validation_batches",
]


@dataclasses.dataclass(frozen=True)
class Plan:
    """The lengths of a run.

    Args:
        total: int, steps of the whole run.
        steps_per_epoch: int, steps in one pass over the data.
        batch_size: int, images in a step.
        checkpoint_every: int, steps from one checkpoint to the next.
        evaluate_every: int, steps from one evaluation to the next, a multiple
            of checkpoint_every. There is one more at the end.
        log_every: int, steps between two lines of metrics.
        batches_per_step: int, parts that the batch of a step is cut into.
        batches_per_call: int, batches in one call of the compiled step.

    Raises:
        ValueError: when the calls do not fill the run or its stretches.

    Example:
        >>> Plan(total=50, steps_per_epoch=20, batch_size=8,
        ...      checkpoint_every=20, evaluate_every=40).evaluations
        [2, 3]
    """

    total: int
    steps_per_epoch: int
    batch_size: int
    checkpoint_every: int
    evaluate_every: int
    log_every: int = 50
    batches_per_step: int = 1
    batches_per_call: int = 1

    def __post_init__(self):
        for name in ("total", "checkpoint_every"):
            batches = getattr(self, name) * self.batches_per_step
            if batches % self.batches_per_call:
                raise ValueError(
                    f"steps_per_execution={self.batches_per_call} must divide "
                    f"the batches of the whole run and of the stretch to each "
                    f"checkpoint. Received: {batches} batches ({name}). Set "
                    "training.steps and training.checkpoint_every_steps to "
                    "multiples of it."
                )

    @property
    def stretches(self) -> int:
        """Number of checkpoints of the whole run."""
        return math.ceil(self.total / self.checkpoint_every)

    @property
    def batches(self) -> int:
        """Batches of a stretch; the last one may be shorter."""
        return self.checkpoint_every * self.batches_per_step

    @property
    def evaluations(self) -> list[int]:
        """Numbers of the stretches, counted from 1, that end with one."""
        every = self.evaluate_every // self.checkpoint_every
        return [
            number
            for number in range(1, self.stretches + 1)
            if number % every == 0 or number == self.stretches
        ]

    def is_last_call(self, stretch: int, batch: int) -> bool:
        """Whether the run ends with the call that begins at a batch.

        Args:
            stretch: int, counted from 0.
            batch: int, in the stretch, counted from 0.
        """
        done = stretch * self.batches + batch + self.batches_per_call
        return done >= self.total * self.batches_per_step

    def step(self, stretch: int, batches: int) -> int:
        """Steps that are done after some batches of a stretch.

        Args:
            stretch: int, counted from 0.
            batches: int, batches of it that are done.
        """
        return (
            stretch * self.checkpoint_every + batches // self.batches_per_step
        )


def make_plan(recipe: Recipe, steps_per_epoch: int) -> Plan:
    """When a recipe checkpoints, evaluates, logs and ends.

    Args:
        recipe: a `Recipe`.
        steps_per_epoch: int, steps in a pass over the data.

    Returns:
        A `Plan`.
    """
    training = recipe.training
    call = training.steps_per_execution
    every = training.checkpoint_every_steps or training.evaluate_every_steps
    # One pass over the data, in whole calls of the compiled step.
    every = every or max(steps_per_epoch // call, 1) * call
    return Plan(
        total=build.total_steps(recipe, steps_per_epoch),
        steps_per_epoch=steps_per_epoch,
        batch_size=training.batch_size,
        checkpoint_every=every,
        evaluate_every=training.evaluate_every_steps or every,
        log_every=training.log_every_steps,
        batches_per_step=training.accumulation_steps,
        batches_per_call=call,
    )


def make_stream(recipe: Recipe, dataset, model, share=None):
    """The training batches of a recipe in the size that its model takes.

    Args:
        recipe: a `Recipe`.
        dataset: a `Dataset`.
        model: a Keras model.
        share: the `Share` of each batch that this process reads, the whole
            if None.

    Returns:
        A `TrainingStream`; the `FitStream` of a data set that is one.
    """
    if isinstance(dataset.train, data.FitStream):
        return dataset.train if share is None else dataset.train.shared(share)
    height, width, channels = model.input_shape[1:]
    return data.training_stream(
        dataset.train,
        len(dataset.class_names),
        image_size=(height, width),
        channels=channels,
        batch_size=recipe.training.batch_size,
        preprocessing=recipe.preprocessing,
        augmentation=recipe.augmentation,
        seed=recipe.seed,
        share=share,
    )


def make_validation(recipe: Recipe, dataset, model, share=None):
    """What `fit` validates on, each image once; None where there is none.

    Args:
        recipe: a `Recipe`.
        dataset: a `Dataset`.
        model: a Keras model.
        share: the `Share` of each batch of a step that this process reads,
            the whole if None.

    Returns:
        What `fit` takes as validation_data.

    Raises:
        ValueError: when the training may end early and there are no images.
    """
    if dataset.validation is None:
        _check_no_patience(recipe.training.early_stopping_patience)
        return None
    if isinstance(dataset.train, data.FitStream):
        return dataset.validation  # in the form that `fit` takes, as it is
    share = dataclasses.replace(share or data.Share(), parts=1)
    height, width, channels = model.input_shape[1:]
    batches = data.evaluation_batches(
        dataset.validation,
        image_size=(height, width),
        channels=channels,
        batch_size=recipe.training.micro_batch_size,
        preprocessing=recipe.preprocessing,
        share=share,
    )
    return validation_batches(
        batches,
        len(dataset.validation),
        len(dataset.class_names),
        shares=share.count,
    )


def _check_no_patience(patience):
    if patience is not None:
        raise ValueError(
            "Ending the training early needs images to validate on, of which "
            f"the data has none. Received: early_stopping_patience={patience}. "
            "Set it to null, or data.validation_fraction."
        )


def validation_batches(
    batches, num_images: int, num_classes: int, *, shares: int = 1
):
    """Weighs padded batches so that Keras's metrics count each image once.

    Keras's loss is the mean over the images of a batch, padding included, so
    that weights of 1 would let the padding lower it.

    Args:
        batches: tf.data.Dataset of images (B, H, W, C), integer labels (B,)
            or 0 and 1 for each class (B, K), and a mask (B,), False for
            padding; all of one size B.
        num_images: int, images without the padding.
        num_classes: int, K.
        shares: int, processes whose batches make up the whole ones.

    Returns:
        tf.data.Dataset of images, one-hot labels (B, K) and weights (B,).

    Example:
        >>> validation = validation_batches(batches, 359, num_classes=10)
        >>> model.fit(images, labels, validation_data=validation)
    """
    import tensorflow as tf

    size = batches.element_spec[0].shape[0] * shares
    weight = -(-num_images // size) * size / num_images

    def weighed(images, labels, mask):
        if len(labels.shape) == 1:
            labels = tf.one_hot(labels, num_classes)  # (B, K)
        mask = tf.cast(mask, "float32")
        return images, tf.cast(labels, "float32"), weight * mask

    return batches.map(weighed)
