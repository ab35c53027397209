"""A Vision Transformer that predicts hidden patches, as a task of `train`.

Appendix B.1.2 of "An Image Is Worth 16x16 Words" (arXiv:2010.11929).

Axes: B images, N patches, P prefix tokens, T = P + N tokens, D hidden
dimension, M answers per patch, K colours.
"""

import math

import keras

from keras_vit.models import VisionTransformer, ViTConfig
from keras_vit.training import build
from keras_vit.training.build import Task
from keras_vit.training.model_config import config_of
from keras_vit.training.tasks.corrupt_patches import CorruptPatches
from keras_vit.training.tasks.numbered_batches import streams_of
from masked_patch.config import CELLS
from masked_patch.corruption import (
    LEVELS,
    MaskedBatches,
    check_grid,
)

__all__ = [
    "MASKED_PATCH",
    "masked_network",
]


def masked_network(model: VisionTransformer, target: str) -> keras.Model:
    """Build the network that predicts hidden patches from a model's layers.

    Args:
        model: a `VisionTransformer`, whose layers the network shares, except
            those that pool its tokens.
        target: see `MaskedPatchConfig`.

    Returns:
        A Keras model from a dictionary of "image" (B, H, W, C) and "source",
        int32 (B, N), to logits of colours (B, N, M, K), or with "pixels" to
        values (B, N, M).

    Example:
        >>> network = masked_network(model, "mean_colour")
        >>> network({"image": images, "source": source}).shape
        (64, 196, 1, 512)
    """
    config = model.config
    patches = math.prod(config.grid)
    source = keras.Input((patches,), dtype="int32", name="source")
    corrupt = CorruptPatches(dtype=model.dtype_policy, name="corrupt_patches")
    x = corrupt(model.get_layer("patch_embed").output, source)  # (B, N, D)
    names = [layer.name for layer in model.layers]
    last = max(i for i, name in enumerate(names) if name.startswith("block_"))
    for layer in model.layers[names.index("patch_embed") + 1 : last + 1]:
        x = layer(x)  # (B, T, D)
    x = model.get_layer("encoder_norm")(x)
    x = x[:, config.num_prefix_tokens :]  # (B, N, D)
    cells = CELLS[target]
    if cells is None:
        pixels = math.prod(config.image_size) // patches
        shape = (pixels * config.channels,)  # M
    else:
        shape = (cells**2, LEVELS**config.channels)  # M, K
    # In float32 under mixed precision, as a classification layer.
    x = keras.layers.Dense(
        math.prod(shape),
        kernel_initializer="zeros",
        dtype="float32",
        name="answers",
    )(x)
    x = keras.layers.Reshape((patches, *shape), dtype="float32")(x)
    inputs = {"image": model.input, "source": source}
    return keras.Model(inputs, x, name="masked")


class ColourAccuracy(keras.metrics.SparseCategoricalAccuracy):
    """Share of the hidden colours that are predicted correctly."""

    def update_state(self, y_true, y_pred, sample_weight=None):
        if sample_weight is not None:
            # Whole numbers: 5 of 10 are 0.5 and not 0.49999997.
            sample_weight = keras.ops.cast(sample_weight > 0, "float32")
        super().update_state(y_true, y_pred, sample_weight)


def _make_model(recipe, class_names):
    del class_names
    _check(recipe)
    if recipe.model.weights is None:
        # Before the memory for a large model is taken.
        _check_model(recipe, config_of(recipe.model, len(build.NO_CLASS)))
    model = build.make_model(recipe, build.NO_CLASS)
    _check_model(recipe, model.config)
    return build.headless(model)


def _check(recipe):
    training = recipe.training
    if training.trainable != "all" or training.lora_rank:
        raise ValueError(
            "The head is new for each target, so the model must learn with "
            f"it. Received: training.trainable={training.trainable!r}, "
            f'training.lora_rank={training.lora_rank}. Set them to "all" and '
            "0."
        )
    if training.class_weight != "none":
        raise ValueError(
            "Masked patches have no classes to weigh. Received: training."
            f"class_weight={training.class_weight!r}. Leave it out."
        )
    metric = recipe.training.best_metric
    if recipe.masked_patch.target == "pixels" and metric == "val_accuracy":
        raise ValueError(
            "The squared error of pixels has no accuracy. Received: training."
            f"best_metric={metric!r}. Set it to val_loss."
        )


def _check_model(recipe, config):
    if type(config) is not ViTConfig:
        raise ValueError(
            "Masked patches need a plain Vision Transformer. Received: a "
            f"{type(config).__name__.removesuffix('Config')}. Choose another "
            "--model.name, --model.weights or no variant."
        )
    check_grid(config.image_size, config.grid, recipe.masked_patch.target)


def _make_loss(recipe):
    if recipe.masked_patch.target == "pixels":
        return keras.losses.MeanSquaredError()
    return keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def _make_metrics(recipe):
    if recipe.masked_patch.target == "pixels":
        return []
    return [ColourAccuracy("accuracy")]


MASKED_PATCH = Task(
    make_model=_make_model,
    make_network=lambda recipe, model: masked_network(
        model, recipe.masked_patch.target
    ),
    **streams_of(MaskedBatches),
    make_loss=_make_loss,
    make_metrics=_make_metrics,
    names_classes=False,
)
