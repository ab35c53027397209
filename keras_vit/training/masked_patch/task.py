"""Masked patch prediction as what a run learns.

Appendix B.1.2 of "An Image Is Worth 16x16 Words" (arXiv:2010.11929).

Axes: B images, N patches, M answers for a patch, K colours.
"""

import keras

from keras_vit.data import Share
from keras_vit.models import ViTConfig
from keras_vit.training import build, inputs
from keras_vit.training.masked_patch.batches import (
    MaskedBatches,
    MaskedStream,
    check_grid,
)
from keras_vit.training.masked_patch.config import CELLS
from keras_vit.training.masked_patch.network import headless, masked_network
from keras_vit.training.model_config import config_of
from keras_vit.training.task import Task

__all__ = ["MASKED_PATCH", "masked_batches"]

# The model is made for a class that is then left out.
NO_CLASS = ("",)


class ColourAccuracy(keras.metrics.SparseCategoricalAccuracy):
    """Share of the hidden colours that are named right.

    Example:
        >>> model.compile("sgd", loss, weighted_metrics=[ColourAccuracy("a")])
    """

    def update_state(self, y_true, y_pred, sample_weight=None):
        if sample_weight is not None:
            # Whole numbers: 5 of 10 are 0.5 and not 0.49999997.
            sample_weight = keras.ops.cast(sample_weight > 0, "float32")
        super().update_state(y_true, y_pred, sample_weight)


def make_model(recipe, class_names):
    del class_names
    _check(recipe)
    if recipe.model.weights is None:
        # Before the memory for a large model is taken.
        _check_grid(recipe, config_of(recipe.model, len(NO_CLASS)))
    model = build.make_model(recipe, NO_CLASS)
    _check_grid(recipe, model.config)
    return headless(model)


def _check(recipe):
    if recipe.training.trainable != "all":
        raise ValueError(
            "The head is new for each target, so that the model learns with "
            f"it. Received: training.trainable={recipe.training.trainable!r}. "
            'Set it to "all".'
        )
    scored = recipe.training.best_metric
    if recipe.masked_patch.target == "pixels" and scored == "val_accuracy":
        raise ValueError(
            "The squared error of pixels has no accuracy. Received: training."
            f"best_metric={scored!r}. Set it to val_loss."
        )


def _check_grid(recipe, config):
    if type(config) is not ViTConfig:
        raise ValueError(
            "Masked patches are hidden from a plain Vision Transformer. "
            f"Received: a {type(config).__name__.removesuffix('Config')}. "
            "Choose another --model.name, --model.weights or no variant."
        )
    check_grid(config.image_size, config.grid, recipe.masked_patch.target)


def masked_batches(
    recipe, model, *, batch_size: int, share: Share | None = None
) -> MaskedBatches:
    """What the images of a recipe go through.

    Args:
        recipe: a `Recipe`.
        model: a `VisionTransformer`.
        batch_size: int, images in a whole batch.
        share: the `Share` of it that is read, the whole if None.

    Returns:
        A `MaskedBatches`.
    """
    return MaskedBatches(
        recipe.masked_patch,
        model.config.grid,
        recipe.seed,
        batch_size,
        share or Share(),
    )


def make_stream(recipe, dataset, model, share=None):
    batches = masked_batches(
        recipe, model, batch_size=recipe.training.batch_size, share=share
    )
    return MaskedStream(
        inputs.make_stream(recipe, dataset, model, share), batches
    )


def make_validation(recipe, dataset, model, share=None):
    found = inputs.make_validation(recipe, dataset, model, share)
    if found is None:
        return None
    share = share or Share()
    batches = masked_batches(
        recipe,
        model,
        batch_size=recipe.training.micro_batch_size,
        share=Share(share.index, share.count),
    )
    return found.enumerate().map(batches.evaluation)


def make_loss(recipe):
    if CELLS[recipe.masked_patch.target] is None:
        return keras.losses.MeanSquaredError()
    return keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def make_metrics(recipe):
    if CELLS[recipe.masked_patch.target] is None:
        return []
    return [ColourAccuracy("accuracy")]


MASKED_PATCH = Task(
    make_model=make_model,
    make_network=lambda recipe, model: masked_network(
        model, recipe.masked_patch.target
    ),
    make_stream=make_stream,
    make_validation=make_validation,
    make_loss=make_loss,
    make_metrics=make_metrics,
    names_classes=False,
)
