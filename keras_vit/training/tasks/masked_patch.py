"""Masked patches: a Vision Transformer predicts those that are hidden.

Appendix B.1.2 of "An Image Is Worth 16x16 Words" (arXiv:2010.11929), as a task
of `train`.

Axes: B images of a batch, H and W height and width, C channels, R and G rows
and columns of the grid of patches, N = R * G patches, P prefix tokens,
T = P + N tokens, D hidden dimension, S cells along a side that a patch is
downsized to, M answers per patch, K colours.
"""

import dataclasses
import math

import keras

from keras_vit.data.array_ops import ops_of
from keras_vit.io.checks import check_choice, check_types
from keras_vit.models import VisionTransformer
from keras_vit.training import build
from keras_vit.training.build import Task
from keras_vit.training.tasks.hidden_patches import (
    CorruptPatches,
    HiddenPatches,
    patch_pixels,
    streams_of,
)

__all__ = [
    "CELLS",
    "LEVELS",
    "MASKED_PATCH",
    "MaskedBatches",
    "MaskedPatchConfig",
    "check_grid",
    "colour_classes",
    "corruption",
    "masked_network",
    "num_hidden",
    "patch_colours",
]

# Target to the rows and columns of the grid that a patch is downsized to.
CELLS = {"mean_colour": 1, "downsized": 4, "pixels": None}
LEVELS = 8  # 3 bits
LEVEL = 256 // LEVELS


@dataclasses.dataclass(frozen=True)
class MaskedPatchConfig:
    """Which patches are hidden, and what the model predicts of them.

    The defaults are those of "An Image Is Worth 16x16 Words"
    (arXiv:2010.11929), appendix B.1.2.
    """

    target: str = "mean_colour"
    """What the model predicts of a hidden patch: its "mean_colour" in 3 bits
    per channel, 512 classes (8 for grey images); such colours of the patch
    "downsized" to 4x4, 16 at once; or all its "pixels", with their squared
    error as the loss."""

    corruption_rate: float = 0.5
    """Share of the patches of an image that are hidden."""

    mask_rate: float = 0.8
    """Share of the hidden patches whose embedding is replaced by a learned
    one."""

    random_rate: float = 0.1
    """Share of the hidden patches whose embedding is replaced by that of
    another patch of the image; the rest keep theirs."""

    def __post_init__(self):
        check_types(self)
        check_choice("target", self.target, CELLS)
        if not 0 < self.corruption_rate <= 1:
            raise ValueError(
                "corruption_rate must be above 0 and at most 1. Received: "
                f"corruption_rate={self.corruption_rate!r}."
            )
        rates = self.mask_rate, self.random_rate
        if min(rates) < 0 or sum(rates) > 1 + 1e-9:
            raise ValueError(
                "mask_rate and random_rate must not be negative and add up to "
                f"1 at most. Received: mask_rate={self.mask_rate!r}, "
                f"random_rate={self.random_rate!r}."
            )


@dataclasses.dataclass(frozen=True)
class MaskedBatches(HiddenPatches):
    """Turns images into the sources of embeddings, and what to predict.

    Example:
        >>> batches.enumerate(step).map(MaskedBatches(
        ...     config, (14, 14), seed=0, batch_size=64).training)
    """

    name = "corruption"
    draws = 3

    @staticmethod
    def config_of(recipe) -> MaskedPatchConfig:
        """See `HiddenPatches`."""
        return recipe.masked_patch

    def hide(self, drawn, images) -> tuple:
        """See `HiddenPatches`."""
        source, hidden = corruption(drawn, self.config)
        cells = CELLS[self.config.target]
        if cells is None:
            answers = patch_pixels(images, self.grid)
        else:
            answers = colour_classes(patch_colours(images, self.grid, cells))
        count = num_hidden(self.grid[0] * self.grid[1], self.config)
        return {"source": source}, answers, hidden, count


def corruption(draws, config: MaskedPatchConfig):
    """Draw which patches are hidden, and what replaces their embeddings.

    Args:
        draws: float32 tensor or array (B, N, 3) of numbers in [0, 1).
        config: a `MaskedPatchConfig`: which patches, and the target.

    Returns:
        Two of shape (B, N): source, int32, the number of the patch
        of the same image whose embedding each patch gets, or -1 for the
        [mask] embedding; and hidden, bool, the patches to predict, the same
        number in each image.
    """
    tf = ops_of(draws)
    patches = draws.shape[1]
    places = tf.argsort(tf.argsort(draws[..., 0], stable=True), stable=True)
    hidden = places < num_hidden(patches, config)  # (B, N)
    own = tf.range(patches)[None]  # (1, N)
    shift = 1 + tf.cast(draws[..., 2] * (patches - 1), tf.int32)
    other = (own + tf.minimum(shift, patches - 1)) % patches  # never itself
    kind = draws[..., 1]
    replaced = tf.where(
        kind < config.mask_rate + config.random_rate, other, own
    )
    replaced = tf.where(kind < config.mask_rate, -1, replaced)
    return tf.where(hidden, replaced, own), hidden


def num_hidden(patches: int, config: MaskedPatchConfig) -> int:
    """Return the number of hidden patches of each image, at least one."""
    return max(1, round(config.corruption_rate * patches))


def patch_colours(images, grid: tuple, cells: int):
    """Mean colours of the patches, or of equal cells of each patch.

    Args:
        images: tensor or array (B, H, W, C).
        grid: (rows, columns) of the patches.
        cells: S, rows and columns of cells in a patch.

    Returns:
        float32 (B, N, S * S, C); the cells go row by row.
    """
    tf = ops_of(images)
    rows, columns = grid
    height, width, channels = images.shape[1:]
    images = tf.cast(images, tf.float32)
    shape = [
        *(-1, rows, cells, height // (rows * cells)),
        *(columns, cells, width // (columns * cells), channels),
    ]
    means = tf.reduce_mean(tf.reshape(images, shape), (3, 6))  # (B,R,S,G,S,C)
    means = tf.transpose(means, [0, 1, 3, 2, 4, 5])  # (B, R, G, S, S, C)
    return tf.reshape(
        means, [-1, rows * columns, cells**2, channels]
    )  # (B, N, S * S, C)


def colour_classes(colours):
    """Return the classes of colours in 3 bits per channel.

    Args:
        colours: float32 tensor or array (..., C) in [0, 255].

    Returns:
        int32 (...): for red, green and blue 64 r + 8 g + b with levels
        from 0 to 7; for grey the level.
    """
    tf = ops_of(colours)
    levels = tf.clip_by_value(
        tf.cast(colours // LEVEL, tf.int32), 0, LEVELS - 1
    )
    digits = [LEVELS**place for place in range(colours.shape[-1])][::-1]
    return tf.reduce_sum(levels * tf.constant(digits, tf.int32), axis=-1)


def check_grid(image_size: tuple, grid: tuple, target: str) -> None:
    """Raise a ValueError unless the patches have whole cells, and others."""
    if grid[0] * grid[1] < 2:
        raise ValueError(
            "There is nothing to tell a hidden patch from. Received: images "
            f"of {image_size} pixels that are one patch. Lower "
            "model.patch_size."
        )
    cells = CELLS[target] or 1
    for size, patches in zip(image_size, grid, strict=True):
        if size % (patches * cells):
            raise ValueError(
                f"Patches must be a multiple of {cells} pixels high and wide "
                f"for masked_patch.target={target!r}. Received: images of "
                f"{image_size} pixels in {grid} patches. Choose another "
                "model.patch_size, model.image_size or target."
            )


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
        super().update_state(y_true, y_pred, build.counted(sample_weight))


def _make_model(recipe, class_names):
    del class_names
    _check(recipe)

    def check(config):
        build.check_plain("masked_patch", config)
        check_grid(config.image_size, config.grid, recipe.masked_patch.target)

    return build.make_encoder(recipe, check)


def _check(recipe):
    build.check_trains_all("masked_patch", recipe.training, with_classes=False)
    metric = recipe.training.best_metric
    if recipe.masked_patch.target == "pixels" and metric == "val_accuracy":
        raise ValueError(
            "The squared error of pixels has no accuracy. Received: training."
            f"best_metric={metric!r}. Set it to val_loss."
        )


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
